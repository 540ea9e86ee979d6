"""From the grammar to the tables of its parser, by Lark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lark import Lark
from lark.lexer import PatternStr, _create_unless
from lark.parsers.lalr_analysis import Shift

from hloopt.text.tables import Tables, Terminal

__all__ = ["build"]


class _Numbers:
    """Numbers names in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self.known.setdefault(str(name), len(self.known))


def build(file: Path, starts: Sequence[str]) -> Tables:
    """The tables of the grammar in ``file``, for the rules that are read on their own."""
    parser = Lark.open(str(file), parser="lalr", start=list(starts), maybe_placeholders=False)
    # Lark has no public way to its automaton; ``tests/text/test_grammar.py`` notices when it moves.
    table: Any = parser.parser.parser._parse_table
    names = _Numbers()
    rules = [_rule(rule, names) for rule in parser.rules]
    rows = _rows(parser, table, names)
    lexers, lexer_of = _lexers(parser, len(rows))
    return Tables(
        terminals=[_terminal(one) for one in parser.terminals],
        names=list(names.known),
        rules=rules,
        rows=rows,
        starts=table.start_states,
        ends=table.end_states,
        lexers=lexers,
        lexer_of=lexer_of,
        ignored=sorted(parser.lexer_conf.ignore),
    )


def _terminal(found: Any) -> Terminal:
    pattern = found.pattern
    assert not pattern.flags, "fixed texts are compared as they are"
    fixed = pattern.value if isinstance(pattern, PatternStr) else None
    return Terminal(found.name, pattern.to_regexp(), fixed)


def _rule(rule: Any, names: _Numbers) -> tuple[int, int, str, list[int] | None, bool]:
    """By Lark's rules of what a tree has: no tokens that are nameless or begin with "_", and the parts of
    rules that do in their place.
    """
    options = rule.options
    is_spread = rule.origin.name.startswith("_")
    assert options.template_source is None, "the grammar has no templates"
    assert not (is_spread and (rule.alias or options.expand1)), "its parts are spread"
    given = []
    for number, symbol in enumerate(rule.expansion):
        if not symbol.is_term and symbol.name.startswith("_"):
            given.append(-number - 1)
        elif options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            given.append(number)
    size = len(rule.expansion)
    return (
        size,
        names(rule.origin.name),
        str(rule.alias or rule.origin.name),
        None if given == list(range(size)) else given,
        bool(options.expand1 and not rule.alias),
    )


def _rows(parser: Lark, table: Any, names: _Numbers) -> list[list[int]]:
    rule_number = {rule: number for number, rule in enumerate(parser.rules)}
    rows = []
    for state in range(len(table.states)):
        row = []
        for name, (action, argument) in table.states[state].items():
            code = 2 * argument if action is Shift else 2 * rule_number[argument] + 1
            row += [names(name), code]
        rows.append(row)
    return rows


def _lexers(
    parser: Lark, states: int
) -> tuple[list[tuple[list[int], list[tuple[int, list[int]]]]], list[int]]:
    """Each distinct lexer, and which one a state has."""
    terminal_number = {one.name: number for number, one in enumerate(parser.terminals)}
    of_state: Any = parser.parser.lexer.lexers
    found: dict[int, int] = {}
    lexers: list[tuple[list[int], list[tuple[int, list[int]]]]] = []
    lexer_of = []
    for state in range(states):
        lexer = of_state[state]
        if id(lexer) not in found:
            found[id(lexer)] = len(lexers)
            tried, meant = _create_unless(  # type: ignore[no-untyped-call]
                lexer.terminals, lexer.g_regex_flags, lexer.re, lexer.use_bytes
            )
            pairs = [
                (
                    terminal_number[name],
                    [terminal_number[one.name] for one in unless.scanner.terminals],
                )
                for name, unless in meant.items()
            ]
            lexers.append(([terminal_number[one.name] for one in tried], pairs))
        lexer_of.append(found[id(lexer)])
    return lexers, lexer_of

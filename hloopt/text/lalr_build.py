"""From the grammar to the tables of its parser, by Lark."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from lark import Lark
from lark.lexer import _create_unless
from lark.parsers.lalr_analysis import Shift

from hloopt.text.tables import Tables

__all__ = ["build"]

_T = TypeVar("_T", bound=Hashable)


class _Numbers(Generic[_T]):
    """Numbers things in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[_T, int] = {}

    def __call__(self, thing: _T) -> int:
        return self._known.setdefault(thing, len(self._known))

    def things(self) -> list[_T]:
        return list(self._known)


def build(file: Path, starts: Sequence[str]) -> Tables:
    """The tables of the grammar in ``file``, for the rules that are read on their own."""
    parser = Lark.open(str(file), parser="lalr", start=list(starts), maybe_placeholders=False)
    # Lark has no public way to its automaton; ``tests/text/test_grammar.py`` notices when it moves.
    table: Any = parser.parser.parser._parse_table
    root: Any = parser.parser.lexer.root_lexer
    assert not any(one.pattern.flags for one in parser.terminals), (
        "fixed texts are compared as such"
    )
    symbols, rules = _rules(parser)
    names, rows = _rows(parser, table)
    lexers, lexer_of = _lexers(parser, len(rows))
    return Tables(
        terminals=[
            (one.name, one.pattern.type, one.pattern.value, sorted(one.pattern.flags), one.priority)
            for one in parser.terminals
        ],
        symbols=symbols,
        rules=rules,
        names=names,
        rows=rows,
        starts=table.start_states,
        ends=table.end_states,
        lexers=lexers,
        lexer_of=lexer_of,
        newlines=sorted(root.newline_types),
        ignored=sorted(root.ignore_types),
    )


def _rules(
    parser: Lark,
) -> tuple[list[tuple[str, bool, bool]], list[tuple[int, list[int], str | None, bool, bool]]]:
    symbols: _Numbers[tuple[str, bool, bool]] = _Numbers()

    def number(symbol: Any) -> int:
        return symbols((str(symbol.name), symbol.is_term, symbol.is_term and symbol.filter_out))

    rules = []
    for rule in parser.rules:
        options = rule.options
        assert options.template_source is None, "the grammar has no templates"
        expansion = [number(symbol) for symbol in rule.expansion]
        alias = None if rule.alias is None else str(rule.alias)
        rules.append(
            (number(rule.origin), expansion, alias, options.keep_all_tokens, options.expand1)
        )
    return symbols.things(), rules


def _rows(parser: Lark, table: Any) -> tuple[list[str], list[list[int]]]:
    names: _Numbers[str] = _Numbers()
    rule_number = {rule: number for number, rule in enumerate(parser.rules)}
    rows = []
    for state in range(len(table.states)):
        row = []
        for name, (action, argument) in table.states[state].items():
            code = 2 * argument if action is Shift else 2 * rule_number[argument] + 1
            row += [names(str(name)), code]
        rows.append(row)
    return names.things(), rows


def _lexers(
    parser: Lark, states: int
) -> tuple[list[tuple[list[int], list[tuple[int, list[int]]]]], list[int]]:
    """Each distinct lexer, and which one a state has."""
    terminal_number = {one.name: number for number, one in enumerate(parser.terminals)}
    of_state: Any = parser.parser.lexer.lexers
    found: dict[int, int] = {}
    lexers: list[tuple[list[int], list[tuple[int, list[int]]]]] = []

    def add(lexer: Any) -> int:
        if id(lexer) not in found:
            found[id(lexer)] = len(lexers)
            tried, meant = _create_unless(  # type: ignore[no-untyped-call]
                lexer.terminals, lexer.g_regex_flags, lexer.re, lexer.use_bytes
            )
            lexers.append(
                (
                    [terminal_number[one.name] for one in tried],
                    [
                        (
                            terminal_number[name],
                            [terminal_number[one.name] for one in unless.scanner.terminals],
                        )
                        for name, unless in meant.items()
                    ],
                )
            )
        return found[id(lexer)]

    lexer_of = [add(of_state[state]) for state in range(states)]
    add(parser.parser.lexer.root_lexer)
    return lexers, lexer_of

"""From the grammar to the tables of its parser, by Lark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.grammar import Terminal as Leaf
from lark.lexer import PatternStr, TerminalDef

from hloopt.errors import HlooptError
from hloopt.text.tables import Tables, Terminal

__all__ = ["LARK", "build", "make_parser"]

LARK = "1.3."
"""How the version of Lark begins that writes its parsers down as this module reads them."""

# Rules that are read on their own, beside those that hlo.lark imports by lines of rules alone.
_STARTS = ("module", "body", "single", "head", "operands", "attributes")
# Terminals that are sequences of others, and are split into them.
_SEQUENCES = ("LINE", "LINE_HEAD", "LINE_ATTRIBUTE", "PARAMETER")
# A rule that keeps the parts of sequences, which no other rule has.
_PARTS = "sequence_part"


def build(folder: Path) -> Tables:
    """The tables of the grammar in ``folder``."""
    if not lark.__version__.startswith(LARK):
        raise HlooptError(
            f"the parser's tables are made by Lark {LARK}x; this is Lark {lark.__version__}"
        )
    parser, sequences = make_parser(folder)
    # What ``Lark.save`` keeps: the automaton, its rules and terminals by their numbers in a list.
    data, _ = parser.memo_serialize([TerminalDef, Rule])
    table = data["parser"]["parser"]
    names = _Numbers()
    rules = [_rule(rule, names) for rule in parser.rules]
    rule_number = {rule["@"]: number for number, rule in enumerate(data["rules"])}
    starts = sorted({*table["start_states"]} - {_PARTS})
    # Lark's numbers of states depend on the hashes of strings; these do not.
    number, states = _Numbers(), [table["start_states"][start] for start in starts]
    first_states = {start: number(state) for start, state in zip(starts, states, strict=True)}
    rows, lexers, lexer_of = [], _Numbers(), []
    for state in states:
        actions = {table["tokens"][one]: act for one, act in table["states"][state].items()}
        row = []
        for name, (is_reduced, argument) in sorted(actions.items()):
            if is_reduced:
                code = 2 * rule_number[argument["@"]] + 1
            else:
                if argument not in number.known:
                    states.append(argument)
                code = 2 * number(argument)
            row += [names(name), code]
        rows.append(row)
        lexer_of.append(lexers(frozenset(actions)))
    return Tables(
        terminals=[_terminal(one) for one in parser.terminals],
        names=list(names.known),
        rules=rules,
        rows=rows,
        starts=first_states,
        ends={start: number(table["end_states"][start]) for start in starts},
        lexers=[_lexer(parser, accepted) for accepted in lexers.known],
        lexer_of=lexer_of,
        ignored=sorted(parser.ignore_tokens),
        sequences={
            name: "".join(_group(parser, part) for part in parts)
            for name, parts in sequences.items()
        },
    )


def make_parser(folder: Path) -> tuple[Lark, dict[str, list[str]]]:
    """Lark's parser of the grammar, and the parts of the terminals that are sequences of others."""
    file = folder / "hlo.lark"
    text = file.read_text()
    sequences = {
        name: found[1].split()
        for name in _SEQUENCES
        if (found := re.search(rf"^{name}: (.+)$", text, re.MULTILINE))
    }
    parts = sorted({part.rstrip("?") for parts in sequences.values() for part in parts})
    imported = re.findall(r"^%import \.\w+ \(([a-z_, ]+)\)$", text, re.MULTILINE)
    starts = [*_STARTS, *(name for line in imported for name in line.split(", "))]
    parser = Lark(
        f"{text}\n{_PARTS}: {' | '.join(parts)}\n",
        source_path=str(file),
        parser="lalr",
        start=[*starts, _PARTS],
        maybe_placeholders=False,
    )
    return parser, sequences


class _Numbers:
    """Numbers things in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.known.setdefault(thing, len(self.known))


def _terminal(found: TerminalDef) -> Terminal:
    pattern = found.pattern
    assert not pattern.flags, "fixed texts are compared as they are"
    fixed = pattern.value if isinstance(pattern, PatternStr) else None
    return Terminal(found.name, pattern.to_regexp(), fixed)


def _group(parser: Lark, part: str) -> str:
    """A part's expression, in a group of its name where that does not begin with "_"."""
    name = part.rstrip("?")
    group = "?:" if name.startswith("_") else f"?P<{name.removeprefix('LINE_').lower()}>"
    optional = part[len(name) :]
    return f"({group}{parser.get_terminal(name).pattern.to_regexp()}){optional}"


def _rule(rule: Rule, names: _Numbers) -> tuple[int, int, str, list[int] | None, bool]:
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
        elif options.keep_all_tokens or not (isinstance(symbol, Leaf) and symbol.filter_out):
            given.append(number)
    size = len(rule.expansion)
    return (
        size,
        names(rule.origin.name),
        str(rule.alias or rule.origin.name),
        None if given == list(range(size)) else given,
        bool(options.expand1 and not rule.alias),
    )


def _lexer(parser: Lark, accepted: Iterable[str]) -> tuple[list[int], list[tuple[int, list[int]]]]:
    """In Lark's order: priority, width, length, name.  Fixed texts that another terminal fits as well are
    distinguished when that is found.
    """
    number = {one.name: place for place, one in enumerate(parser.terminals)}
    known = {*accepted, *parser.ignore_tokens}
    terminals = sorted((one for one in parser.terminals if one.name in known), key=_precedence)
    fixed = [one for one in terminals if isinstance(one.pattern, PatternStr)]
    meant = []
    for terminal in terminals:
        expression = re.compile(terminal.pattern.to_regexp())
        others = [
            number[one.name]
            for one in fixed
            if terminal not in fixed
            and terminal.priority == one.priority
            and (found := expression.match(one.pattern.value))
            and found[0] == one.pattern.value
        ]
        if others:
            meant.append((number[terminal.name], others))
    embedded = {other for _, others in meant for other in others}
    return [number[one.name] for one in terminals if number[one.name] not in embedded], meant


def _precedence(terminal: TerminalDef) -> tuple[int, int, int, str]:
    pattern = terminal.pattern
    return -terminal.priority, -int(pattern.max_width), -len(pattern.value), terminal.name

"""The parser that tables describe: Lark's, with each state, rule and pattern made when it is first met.

A module meets a tenth of the grammar's states.  Making all of them, and a regular expression for each of
their lexers, would take longer than reading a text of ten thousand lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import Transformer, Tree
from lark.grammar import NonTerminal, Rule, RuleOptions, Terminal
from lark.lexer import (
    AbstractBasicLexer,
    BasicLexer,
    ContextualLexer,
    LexerThread,
    PatternRE,
    PatternStr,
    TerminalDef,
    Token,
)
from lark.parse_tree_builder import ParseTreeBuilder
from lark.parsers.lalr_analysis import IntParseTable, Reduce, Shift
from lark.parsers.lalr_parser import _Parser
from lark.utils import TextSlice

from hloopt.text.expressions import compiled
from hloopt.text.tables import Tables

__all__ = ["Parser"]

# One pattern after the other costs a token up to two microseconds more than all of them in one expression
# (measured: lists of integers), which takes some milliseconds to compile.
_TRIES = 2_000


class Parser:
    """Reads texts by tables; a method of ``transformer`` named like a rule makes its value."""

    def __init__(self, tables: Tables, transformer: Transformer[Token, Any]) -> None:
        self.terminals = [
            TerminalDef(name, (PatternStr if kind == "str" else PatternRE)(value, flags), priority)
            for name, kind, value, flags, priority in tables.terminals
        ]
        rules = _Rules(tables)
        states = _States(tables, rules)
        self._lexer = _Lexers(tables, self.terminals)
        table: Any = IntParseTable(states, tables.starts, tables.ends)  # type: ignore[no-untyped-call]
        self._parser = _Parser(table, _Callbacks(transformer))

    def parse(self, text: str, start: str) -> Any:
        """The value of the rule ``start``.  Raises ``lark.exceptions.UnexpectedInput``."""
        return self._parser.parse(LexerThread.from_text(self._lexer, text), start)


class _Rule(Rule):
    """A rule of a table is made once: it equals itself alone, and that is quick to find out."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class _Rules(dict[int, Rule]):
    """Rules by number."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables

    def __missing__(self, number: int) -> Rule:
        origin, expansion, alias, keep_all_tokens, expand1 = self._tables.rules[number]
        symbols = []
        for symbol in expansion:
            name, is_terminal, is_left_out = self._tables.symbols[symbol]
            symbols.append(Terminal(name, is_left_out) if is_terminal else NonTerminal(name))
        options = RuleOptions(keep_all_tokens, expand1)
        head = NonTerminal(self._tables.symbols[origin][0])
        rule = self[number] = _Rule(head, symbols, 0, alias, options)
        return rule


class _States(dict[int, dict[str, tuple[Any, Any]]]):
    """What a state does with each symbol, by the number of the state."""

    def __init__(self, tables: Tables, rules: _Rules) -> None:
        super().__init__()
        self._tables = tables
        self._rules = rules

    def __missing__(self, state: int) -> dict[str, tuple[Any, Any]]:
        names, row = self._tables.names, self._tables.rows[state]
        made = self[state] = {
            names[name]: (Reduce, self._rules[code >> 1]) if code & 1 else (Shift, code >> 1)
            for name, code in zip(row[::2], row[1::2], strict=True)
        }
        return made


class _Callbacks(dict[Any, Callable[[list[Any]], Any]]):
    """What makes the value of a rule.  (Tokens are their own values.)"""

    def __init__(self, transformer: Transformer[Token, Any]) -> None:
        super().__init__()
        self._transformer = transformer

    def __bool__(self) -> bool:
        return True  # Lark leaves values unmade where there seem to be no callbacks

    def __missing__(self, rule: Rule) -> Callable[[list[Any]], Any]:
        builder: Any = ParseTreeBuilder([rule], Tree)  # type: ignore[no-untyped-call]
        made: Callable[[list[Any]], Any] = builder.create_callback(self._transformer)[rule]
        self[rule] = made
        return made


class _Lexers(ContextualLexer):
    """A lexer for each state, knowing the terminals that may come there."""

    def __init__(self, tables: Tables, terminals: list[TerminalDef]) -> None:
        self._tables = tables
        self._terminals = terminals
        self._by_name = {one.name: one for one in terminals}
        self._expressions: dict[str, re.Pattern[str]] = {}
        self._made: dict[int, _Lexer] = {}
        self.lexers = _OfStates(tables, self._lexer)
        # That with all terminals tells what is wrong from what is in the wrong place.
        self.root_lexer = self._lexer(len(tables.lexers) - 1)

    def _lexer(self, number: int) -> _Lexer:
        if number not in self._made:
            tried, meant = self._tables.lexers[number]
            self._made[number] = _Lexer(
                [self._terminals[one] for one in tried],
                {
                    self._terminals[one].name: {
                        self._terminals[other].pattern.value: self._terminals[other].name
                        for other in others
                    }
                    for one, others in meant
                },
                self._tables,
                self._by_name,
                self._expressions,
            )
        return self._made[number]


class _OfStates(dict[int, AbstractBasicLexer]):
    """The lexer of a state."""

    def __init__(self, tables: Tables, lexer: Callable[[int], AbstractBasicLexer]) -> None:
        super().__init__()
        self._tables = tables
        self._lexer = lexer

    def __missing__(self, state: int) -> AbstractBasicLexer:
        made = self[state] = self._lexer(self._tables.lexer_of[state])
        return made


class _Lexer(BasicLexer):
    """Lark's lexer of one state, which asks a scanner of ours."""

    def __init__(
        self,
        tried: list[TerminalDef],
        meant: dict[str, dict[str, str]],
        tables: Tables,
        by_name: dict[str, TerminalDef],
        expressions: dict[str, re.Pattern[str]],
    ) -> None:
        self.terminals = tried
        self.newline_types = frozenset(tables.newlines)
        self.ignore_types = frozenset(tables.ignored)
        self.callback = {name: _Meant(others) for name, others in meant.items()}
        self.terminals_by_name = by_name
        self._scanner: Any = _Scanner(tried, expressions)


class _Meant:
    """Gives a token the type of the fixed text that it is."""

    def __init__(self, others: dict[str, str]) -> None:
        self._others = others

    def __call__(self, token: Token) -> Token:
        token.type = self._others.get(token, token.type)
        return token


class _Scanner:
    """The first of some terminals that fits."""

    def __init__(self, tried: list[TerminalDef], expressions: dict[str, re.Pattern[str]]) -> None:
        self.allowed_types = {one.name for one in tried}
        self._tried = tried
        self._expressions = expressions
        self._left = _TRIES
        self._whole: re.Pattern[str] | None = None

    def match(self, text: TextSlice[str], position: int) -> tuple[str, str] | None:
        """The text of a token at a position and its terminal; None where no terminal fits."""
        if self._left:
            self._left -= 1
            return self._one_by_one(text, position)
        if self._whole is None:
            parts = (f"(?P<{one.name}>{one.pattern.to_regexp()})" for one in self._tried)
            self._whole = compiled("|".join(parts))
        found = self._whole.match(text.text, position, text.end)
        if found is None:
            return None
        assert found.lastgroup is not None, "every branch has a name"
        return found[0], found.lastgroup

    def _one_by_one(self, text: TextSlice[str], position: int) -> tuple[str, str] | None:
        for terminal in self._tried:
            expression = self._expressions.get(terminal.name)
            if expression is None:
                expression = compiled(terminal.pattern.to_regexp())
                self._expressions[terminal.name] = expression
            found = expression.match(text.text, position, text.end)
            if found is not None:
                return found[0], terminal.name
        return None

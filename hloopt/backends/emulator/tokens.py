"""CUDA C as tokens, and the functions of a program: enough to find which of them synchronise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from hloopt.dataclass import dataclass

__all__ = [
    "SourceFunction",
    "SourceParameter",
    "SourceToken",
    "closing",
    "find_functions",
    "join",
    "synchronizing",
    "tokenize",
    "without_linkage",
]

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s+|//[^\n]*|/\*.*?\*/|(?m:^)[ \t]*\#(?:[^\n\\]|\\.)*)+)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<mark><<=|>>=|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|::|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())

_SYNCHRONIZES = re.compile(
    r"__syncthreads(_\w+)?|__syncwarp|__shfl_(\w+_)?sync|__(ballot|any|all)_sync|__activemask"
    r"|__match_\w+_sync|__reduce_\w+_sync"
)


@dataclass(frozen=True, slots=True)
class SourceToken:
    """A token with the blanks, comments and preprocessor lines before it; ``line`` counts from 1."""

    text: str
    kind: str
    before: str
    line: int


def tokenize(source: str, line: int = 1) -> list[SourceToken]:
    """All tokens, the first in ``line``; the last one is empty and has the blanks after the others."""
    tokens = []
    before = ""
    for match in _TOKEN.finditer(source):
        if match.lastgroup == "space":
            before = match[0]
        else:
            tokens.append(SourceToken(match[0], str(match.lastgroup), before, line))
            before = ""
        line += match[0].count("\n")
    return [*tokens, SourceToken("", "end", before, line)]


def join(tokens: Sequence[SourceToken]) -> str:
    """The text of the tokens."""
    return "".join(token.before + token.text for token in tokens)


def without_linkage(tokens: Sequence[SourceToken]) -> list[SourceToken]:
    """Without ``extern "C"``, which a member of a class cannot have."""
    kept: list[SourceToken] = []
    for token in tokens:
        if token.text == '"C"' and kept and kept[-1].text == "extern":
            before = kept.pop().before + token.before
            kept.append(SourceToken("", "mark", before, token.line))
        else:
            kept.append(token)
    return kept


def closing(tokens: Sequence[SourceToken], opening: int) -> int:
    """Where the bracket at ``opening`` closes.

    Raises ``ValueError`` for one in it, or itself, that does not.
    """
    open_ones: list[SourceToken] = []
    for index in range(opening, len(tokens)):
        token = tokens[index]
        if token.text in _OPENING:
            open_ones.append(token)
        elif token.text in _CLOSING:
            if token.text != _OPENING[open_ones[-1].text]:
                break
            open_ones.pop()
            if not open_ones:
                return index
    unclosed = open_ones[-1]
    raise ValueError(f"line {unclosed.line}: {unclosed.text!r} is not closed")


@dataclass(frozen=True, slots=True)
class SourceParameter:
    """A parameter; of a pointer ``is_pointer`` is set."""

    name: str
    is_pointer: bool


@dataclass(frozen=True)
class SourceFunction:
    """A function at the top level; positions are those of its tokens in the program's.

    begin, body, end   its first token, the brace that opens its body, the one behind the closing brace
    """

    name: str
    tokens: tuple[SourceToken, ...]
    begin: int
    parameters_begin: int
    body: int
    end: int

    @cached_property
    def is_kernel(self) -> bool:
        return any(token.text == "__global__" for token in self.tokens[self.begin : self.body])

    @cached_property
    def parameters(self) -> tuple[SourceParameter, ...]:
        inner = self.tokens[self.parameters_begin + 1 : closing(self.tokens, self.parameters_begin)]
        found = []
        words: list[SourceToken] = []
        depth = 0
        for token in (*inner, SourceToken(",", "mark", "", 0)):
            depth += token.text in ("<", "(", "[")
            depth -= token.text in (">", ")", "]")
            if token.text != "," or depth:
                words.append(token)
            elif words:
                found.append(_parameter(words))
                words = []
        return tuple(found)

    @cached_property
    def calls(self) -> frozenset[str]:
        """The words before an opening parenthesis or template arguments."""
        return frozenset(
            token.text for token in self.tokens[self.body : self.end] if token.kind == "word"
        )

    @cached_property
    def most_threads(self) -> int | None:
        """What ``__launch_bounds__`` says of a block, if it is a number."""
        for index in range(self.begin, self.body):
            if self.tokens[index].text == "__launch_bounds__":
                number, behind = (token.text for token in self.tokens[index + 2 : index + 4])
                return int(number) if number.isdecimal() and behind in (")", ",") else None
        return None


def _parameter(words: Sequence[SourceToken]) -> SourceParameter:
    texts = [token.text for token in words]
    if "=" in texts:
        words = words[: texts.index("=")]
    names = [token.text for token in words if token.kind == "word"]
    return SourceParameter(names[-1], any(token.text == "*" for token in words))


def find_functions(tokens: Sequence[SourceToken]) -> list[SourceFunction]:
    """The functions defined at the top level, in order."""
    everything = tuple(tokens)
    found = []
    begin = index = 0
    parameters_begin = -1
    while index < len(tokens):
        text = tokens[index].text
        if text == "(":
            parameters_begin = index
            index = closing(tokens, index)
        elif text == "{":
            end = closing(tokens, index) + 1
            before = tokens[index - 1].text if index else ""
            if before == ")" and tokens[parameters_begin - 1].kind == "word":
                name = tokens[parameters_begin - 1].text
                found.append(SourceFunction(name, everything, begin, parameters_begin, index, end))
                begin = end
            index = end - 1
        elif text == ";":
            begin = index + 1
        index += 1
    return found


def synchronizing(functions: Sequence[SourceFunction]) -> frozenset[str]:
    """The names of functions that synchronise, themselves or by one they call."""
    found = {
        function.name
        for function in functions
        if any(_SYNCHRONIZES.fullmatch(word) for word in function.calls)
    }
    while True:
        more = {function.name for function in functions if function.calls & found} - found
        if not more:
            return frozenset(found)
        found |= more

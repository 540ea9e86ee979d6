"""What a ``Scope`` holds, as statements: declarations, assignments, blocks, and the names in them.

Only what our own emitters write is read here: a name is declared once in a function, a line is one statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.kernel_ir import statements as tree
from hloopt.kernel_ir.printer import expression_text, statement_text
from hloopt.kernel_ir.statements import bodies_of

__all__ = [
    "ACROSS",
    "LOADED",
    "Block",
    "Choice",
    "Line",
    "Statement",
    "is_scalar",
    "read_statements",
    "replaced_names",
    "tokens",
    "walk",
]

ACROSS: Final = "ACROSS"
"""``ACROSS(name)`` is the array of what all lanes have of a value."""

_TOKEN: Final = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F.]+(?:[pP][-+]?\d+)?\w*|\d[\w.]*(?:(?<=[eE])[-+]\d+\w*)?)"
    r"|(?P<across>ACROSS\(\w+\))"
    r"|(?P<member>(?:\.|->|::)\s*[A-Za-z_]\w*)"
    r"|(?P<name>[A-Za-z_]\w*)"
)
_DECLARED: Final = re.compile(
    r"^(?P<static>static )?(?P<const>const )?(?P<kind>[A-Za-z_][\w:<>, ]*?[\w>]) "
    r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<count>\d+)\])?(?: = (?P<value>.*))?;$"
)
_SET: Final = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)(?P<index>\[.*?\])? (?P<op>[-+*/&|^%]?)= (?P<value>.*);$"
)
LOADED: Final = re.compile(r"^(?P<pointer>[A-Za-z_]\w*)\[(?P<index>[^\[\]]*)\]$")
"""An element of memory, or of an array that no lane has of its own."""

_SCALAR_CALLS: Final = frozenset({
    "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "fmod", "fmodf", "lgamma",
    "lgammaf", "philox4x32", "pow", "power_signed", "power_unsigned", "sin", "sinh", "tan", "tgamma", "tgammaf",
    "threefry2x32",
})  # fmt: skip
"""Functions that are called, or have loops: no compiler makes vectors of what else is in their loop."""

_LEAVES: Final = re.compile(r"^if \((?P<test>.*)\) break;$")
_WORDS: Final = frozenset({"return", "delete", "goto", "throw", "using", "typedef"})


def tokens(text: str) -> Iterator[str]:
    """The names in a text, but those of members; ``ACROSS(name)`` as a whole."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup in ("name", "across"):
            yield match.group()


def replaced_names(text: str, names: dict[str, str], arrays: frozenset[str], lane: str) -> str:
    """A text with other words for names; the place in one of ``arrays`` is followed by the lane."""
    parts: list[str] = []
    at = 0
    while match := _TOKEN.search(text, at):
        parts.append(text[at : match.start()])
        word, at = match.group(), match.end()
        if match.lastgroup == "across":
            parts.append(word[len(ACROSS) + 1 : -1])
        elif match.lastgroup != "name":
            parts.append(word)
        elif word in arrays and text[at : at + 1] == "[":
            end = _closing(text, at)
            inner = replaced_names(text[at + 1 : end], names, arrays, lane)
            parts.append(f"{word}[{inner}][{lane}]")
            at = end + 1
        else:
            parts.append(names.get(word, word))
    parts.append(text[at:])
    return "".join(parts)


def _closing(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if not depth:
            return place
    raise AssertionError(f"a bracket that nobody closes: {text}")


@dataclass(eq=False)
class Line:
    """One statement.

    declares  the name that it declares, empty where it declares none
    kind      its type
    count     of an array, 0 for a variable
    is_fixed  whether it is declared const
    sets      the name that it sets or declares with a value, a pointer where memory is written
    value     what to
    leaves    the test of ``if (test) break;``, empty for other lines
    """

    text: str
    declares: str = ""
    kind: str = ""
    count: int = 0
    is_fixed: bool = False
    is_static: bool = False
    sets: str = ""
    value: str = ""
    leaves: str = ""
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = frozenset(tokens(self.text))

    @property
    def is_plain(self) -> bool:
        """Whether all that it changes is what it sets."""
        return bool(self.declares or self.sets)


@dataclass(eq=False)
class Block:
    """``header { ... }``: a loop."""

    header: str
    inside: list[Statement]


@dataclass(eq=False)
class Choice:
    """``if (...) { ... } else if (...) { ... } else { ... }``."""

    branches: list[Block]


Statement: TypeAlias = "Line | Block | Choice"


def read_statements(body: Sequence[tree.Statement]) -> list[Statement]:
    """The statements of a body; what is told to a compiler of another device is left out."""
    found: list[Statement] = []
    for one in body:
        if isinstance(one, tree.If) and not isinstance(
            one.body[0] if one.body else None, tree.Break
        ):
            branches, rest, word = [], (one,), ""
            while len(rest) == 1 and isinstance(rest[0], tree.If):
                head = f"{word}if ({expression_text(rest[0].test)})"
                branches.append(Block(head, read_statements(rest[0].body)))
                rest, word = rest[0].otherwise, "else "
            if rest:
                branches.append(Block("else", read_statements(rest)))
            found.append(Choice(branches))
        elif bodies_of(one) and not isinstance(one, tree.If):
            head = statement_text(replace(one, body=())).removesuffix("\n}").removesuffix("{")
            head = head.split("\n")[-1].strip()
            found.append(Block(head, read_statements(one.body)))
        elif not statement_text(one).startswith("#pragma"):
            found.append(_line(statement_text(one)))
    return found


def _line(text: str) -> Line:
    leaves = _LEAVES.match(text)
    if leaves:
        return Line(text, leaves=leaves["test"])
    declared = _DECLARED.match(text)
    if declared and declared["kind"].split()[0] not in _WORDS:
        value = declared["value"] or ""
        return Line(
            text,
            declares=declared["name"],
            kind=declared["kind"],
            count=int(declared["count"] or 0),
            is_fixed=declared["const"] is not None,
            is_static=declared["static"] is not None,
            sets=declared["name"] if value else "",
            value=value,
        )
    done = _SET.match(text)
    if done:
        return Line(text, sets=done["name"], value=done["value"])
    return Line(text)


def is_scalar(line: Line, number: str) -> bool:
    """Whether a line cannot be part of a vectorised loop over units of this number.

    It calls what is no vector function, or reads memory where neighbouring units are not neighbours: compilers
    refuse whole loops for such reads where they might do them one by one.
    """
    if not line.names.isdisjoint(_SCALAR_CALLS):
        return True
    loaded = LOADED.match(line.value) if line.declares else None
    if loaded is None:
        return False
    at = f"(?<![\\w.]){re.escape(number)}(?!\\w)"
    return re.search(rf"{at}\)? [*/%]|{at} \* |\* {at}", loaded["index"]) is not None


def walk(statements: Sequence[Statement]) -> Iterator[Line | Block]:
    """Every line, and every block before what is in it."""
    for statement in statements:
        if isinstance(statement, Choice):
            for branch in statement.branches:
                yield from walk([branch])
        else:
            yield statement
            if isinstance(statement, Block):
                yield from walk(statement.inside)

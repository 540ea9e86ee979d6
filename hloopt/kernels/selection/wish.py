"""``--kernel 'PATTERN=NAME{key=value}'``: which kernel some instructions shall have.

A pattern is an instruction's name (with or without ``%``), a glob over names, ``/regex/`` with a match anywhere
in the name, ``op:GLOB`` over opcodes or ``op_name:GLOB`` over what the metadata calls it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.spec import Tile

__all__ = ["Wish", "parse_wish", "read_tile", "tile_text"]

_WISH = re.compile(r"(?P<pattern>.+)=(?P<name>[A-Za-z][\w.-]*)(?P<tile>\{[^{}]*\})?", re.DOTALL)
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """A kernel for the instructions of a pattern; ``text`` is as it was given."""

    text: str
    pattern: str
    kernel: str
    tile: Tile

    @property
    def names_one(self) -> bool:
        """Whether the pattern is a plain name."""
        special = self.pattern.startswith(("op:", "op_name:")) or _regex(self.pattern) is not None
        return not special and not _GLOB & set(self.pattern)

    def matches(self, instruction: Instruction) -> bool:
        """Whether an instruction is meant."""
        pattern = self.pattern
        if (regex := _regex(pattern)) is not None:
            return re.search(regex, instruction.name) is not None
        if pattern.startswith("op:"):
            return fnmatchcase(instruction.opcode, pattern[3:])
        if pattern.startswith("op_name:"):
            fields = instruction.metadata.fields if instruction.metadata is not None else {}
            return fnmatchcase(str(fields.get("op_name", "")), pattern[8:])
        return fnmatchcase(instruction.name, pattern.removeprefix("%"))


def parse_wish(text: str) -> Wish:
    """Read ``PATTERN=NAME{...}``.  Raises ``UsageError``."""
    match = _WISH.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--kernel: '{text}' is not of the form PATTERN=NAME or PATTERN=NAME{{key=N}}"
        )
    pattern = match["pattern"]
    if (regex := _regex(pattern)) is not None:
        try:
            re.compile(regex)
        except re.error as error:
            raise UsageError(f"--kernel: '{pattern}' is no regular expression: {error}") from error
    try:
        tile = read_tile(match["tile"] or "{}")
    except UsageError as error:
        raise UsageError(f"--kernel: '{text}': {error.message}") from error
    return Wish(text, pattern, match["name"], tile)


def _regex(pattern: str) -> str | None:
    if len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/"):
        return pattern[1:-1]
    return None


def read_tile(text: str) -> Tile:
    """``{m=64,n=32}`` as a tile.  Raises ``UsageError``."""
    found: dict[str, int] = {}
    inner = text.strip()[1:-1].strip()
    for entry in inner.split(",") if inner else ():
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not (key and equals and re.fullmatch(r"-?[0-9]+", value)):
            raise UsageError(f"'{entry.strip()}' is not of the form key=integer")
        if key in found:
            raise UsageError(f"the tile gives '{key}' twice")
        found[key] = int(value)
    return found


def tile_text(tile: Tile) -> str:
    """``{m=64,n=32}``, empty for an empty tile."""
    return (
        "{" + ",".join(f"{key}={value}" for key, value in sorted(tile.items())) + "}"
        if tile
        else ""
    )

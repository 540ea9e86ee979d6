"""``--kernel 'PATTERN=NAME{key=value}'``: which kernel some instructions get.

Patterns are those of ``rewrite/naming.py``.
"""

from __future__ import annotations

import re

from hloopt.analysis.hero import find_hero, roots
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.spec import Tile
from hloopt.rewrite.naming import NamePattern, parse_pattern

__all__ = ["KernelRequest", "parse_request", "read_tile", "tile_text"]

_WISH = re.compile(r"(?P<pattern>.+)=(?P<name>[A-Za-z][\w.-]*)(?P<tile>\{[^{}]*\})?", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class KernelRequest:
    """A kernel for the instructions of a pattern; ``text`` is as it was given."""

    text: str
    named: NamePattern
    kernel: str
    tile: Tile

    @property
    def pattern(self) -> str:
        """The pattern's text."""
        return self.named.text

    @property
    def names_one(self) -> bool:
        """Whether the pattern is a plain name."""
        return self.named.names_one

    def matches(self, instruction: Instruction) -> bool:
        """Whether the pattern matches; ``op:`` matches fusions with such a hero, too.

        A pattern that matches a ``while`` matches the loop's kernel.
        """
        if self.named.matches(instruction):
            return True
        loop = fused_loop(instruction)
        if loop is not None:
            return self.named.matches(loop.loop)
        if instruction.opcode != "fusion" or not self.named.text.startswith("op:"):
            return False
        heroes = {find_hero(root).opcode for root in roots(instruction.attributes["calls"])}
        return any(self.named.means("", opcode, "") for opcode in heroes)


def parse_request(text: str) -> KernelRequest:
    """Read ``PATTERN=NAME{...}``.  Raises ``UsageError``."""
    match = _WISH.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--kernel: '{text}' is not of the form PATTERN=NAME or PATTERN=NAME{{key=N}}"
        )
    try:
        pattern = parse_pattern(match["pattern"])
    except UsageError as error:
        raise UsageError(f"--kernel: {error.message}") from error
    try:
        tile = read_tile(match["tile"] or "{}")
    except UsageError as error:
        raise UsageError(f"--kernel: '{text}': {error.message}") from error
    return KernelRequest(text, pattern, match["name"], tile)


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

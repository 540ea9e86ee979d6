"""The state of the parser while it reads a computation."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops import OPS
from hloopt.text.attributes import PHASES, OpcodeSchema, row
from hloopt.text.grammar import pattern, read, shape_of
from hloopt.text.problem import Problem, Undefined, did_you_mean
from hloopt.types import Literal, Shape

__all__ = [
    "HEADS",
    "NO_SHAPE",
    "ROLES",
    "Head",
    "TailPlaces",
    "TextScope",
    "head_of",
    "read_head",
    "undefined",
    "unknown_opcode",
]

NO_SHAPE: Any = None  # until it is read or inferred, before any other code sees the instruction
ROLES = {1: "a literal", 2: "a number"}  # what an opcode's arguments are when they are not operands
_MOST_HEADS = 50_000
_LONGEST_HEAD = 2_000


class Head:
    """A result shape and an opcode, and the literals seen with them."""

    __slots__ = ("literals", "opcode", "row", "shape")

    def __init__(self, shape: Shape | None, found: OpcodeSchema) -> None:
        self.shape = shape
        self.row = found
        self.opcode = found.opcode
        self.literals: dict[str, Literal] = {}


HEADS: dict[str, Head] = {}


def read_head(text: str, at: int) -> Head:
    """``f32[2]{0} add``, which begins ``at``; raises ``Problem``."""
    match = pattern("LINE_HEAD").fullmatch(text)
    if match is None:
        shape, opcode = read("head", text, at)
    else:
        shape, opcode = shape_of(match[1], at) if match[1] else None, match["word"]
    head = head_of(shape, opcode)
    # An unknown opcode is reported each time it is read.
    if len(text) <= _LONGEST_HEAD and not head.row.unknown:
        if len(HEADS) >= _MOST_HEADS:
            HEADS.clear()
        HEADS[text] = head
    return head


def head_of(shape: Shape | None, opcode: str) -> Head:
    """The head made of these; the opcode may be unknown."""
    return Head(shape, row(str(opcode)))


def unknown_opcode(opcode: str, offset: int) -> Problem:
    """The mistake, with what may be meant."""
    inner, _, phase = opcode.rpartition("-")
    hint = did_you_mean(opcode, OPS)
    if phase in PHASES:
        hint = "" if inner in OPS else did_you_mean(inner, OPS).replace("'?", f"-{phase}'?")
    return Problem(offset, f"unknown opcode {opcode!r}{hint}", opcode)


@dataclass(slots=True)
class TextScope:
    """The computation being read: ``items`` is its text, ``base`` where that text begins.

    ``reserved`` holds the names in it and ``serial`` the numbers tried, once an instruction needs one;
    ``elements`` the elements of tuples that operands name by number.  Where ``open`` is set operands that
    are not defined become parameters.
    """

    computation: Computation
    items: list[Any]
    base: int
    reserved: set[str] | None = None
    serial: dict[str, int] = field(default_factory=dict)
    elements: dict[tuple[Instruction, int], Instruction] = field(default_factory=dict)
    open: bool = False


@dataclass(frozen=True, slots=True)
class TailPlaces:
    """Where a tail stands: behind ``split`` characters there is a gap, the metadata."""

    base: int
    split: int = 1 << 62
    gap: int = 0

    def of(self, offset: int) -> int:
        return self.base + offset + (self.gap if offset >= self.split else 0)


def undefined(scope: TextScope, name: str, offset: int, width: int | str) -> Undefined:
    return Undefined(offset, name, scope.computation.name, width)

"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field, replace
from typing import Any, ClassVar, Final, TypeAlias

from hloopt.analysis.effects import Effects
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import callees_first
from hloopt.ops import OPS
from hloopt.ops.traits import FOLDING, LIBRARY, MIRRORED, NOT_MERGEABLE
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.source_lines import merge_lines
from hloopt.types import ArrayShape, Literal, Shape, TupleShape, descending

__all__ = ["CommonSubexpressionElimination"]

_NOT_COMPARED = ("origin", "statistics")
_MOST_TERMS = 8
# What costs more than to copy its result.
_COSTLY = FOLDING - {"ragged-dot", "scaled-dot"} | LIBRARY


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Compute equal things once.

    Two instructions of a computation are equal when opcode, shape with layout, attributes and operands
    are (operands in any order where the op is commutative); constants by value, called computations by
    structure.  So are sums (products, maxima, ...) of the same up to 8 integers in any order and grouping,
    and comparisons with both sides exchanged.  A dot, convolution, reduce and the like that differs from
    another one in its layout alone becomes a copy of that; so do elementwise ops.  Metadata does not count.
    Never merged: side effects, random numbers, optimization barriers (they are there to keep equal things
    apart), tokens, and instructions with control edges.

    computations   whether to let calls, maps, reduces and other ops that apply a computation share equal
                   ones; loops, branches and fusions keep their own
    """

    name: ClassVar[str] = "cse"
    settles: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] add(x, y)
  b = f32[4] add(y, x)
  ROOT r = f32[4] multiply(a, b)
}
"""

    computations: bool = False

    def run(self, module: Module, log: PassLog) -> bool:
        """One pass over each computation, callees first, with a hash table."""
        merger = _Merger(Effects(module), log)
        order = callees_first(module)
        for computation in order:
            merger.merge(computation)
        if self.computations:
            merger.changed |= _share(order, merger.number_of, log)
        return merger.changed


def _share(order: list[Computation], number_of: Callable[[Computation], int], log: PassLog) -> bool:
    """Let callers of equal computations call the first of them."""
    first: dict[Hashable, Computation] = {}
    changed = False
    for computation in order:
        if not computation.callers or not all(map(_may_share, computation.callers)):
            continue
        if any(inner.opcode == "rng-get-and-update-state" for inner in computation):
            continue
        key = (number_of(computation), computation.execution_thread)
        kept = first.setdefault(key, computation)
        if kept is computation or not log.allows():
            continue
        log.hit("share equal computations", computation.root, f"it is like {kept.name}")
        for caller in list(computation.callers):
            for name, value in list(caller.attributes.items()):
                if value is computation:
                    edit.set_attribute(caller, name, kept)
        for mine, other in zip(kept, computation, strict=True):
            merge_lines(mine, (other,))
        edit.remove_computation(computation)
        changed = True
    return changed


def _may_share(caller: Instruction) -> bool:
    """Whether a caller names its computation by one attribute, and says nothing more about it."""
    home = caller.computation
    return (
        caller.op.family in ("control", "reduction", "window", "indexing", "sort", "collective")
        and caller.opcode not in ("while", "conditional", "fusion")
        and caller.is_understood
        and home is not None
        and not any(outer.op.family == "async" for outer in home.callers)
    )


@dataclass
class _Bare:
    """What is known of a computation when layouts are ignored.

    number   the position of an instruction; of a copy in another layout that of what it copies
    seen     what was computed first, by all that it is computed from
    """

    number: dict[Instruction, int] = field(default_factory=dict)
    seen: dict[Hashable, Instruction] = field(default_factory=dict)

    def of(self, instruction: Instruction, position: int) -> int:
        """The number of an instruction at a position."""
        if instruction.opcode != "copy" or not instruction.is_array:
            return position
        source = instruction.operands[0]
        plain = _is_plain(instruction.array) and _is_plain(source.array)
        return self.number[source] if plain else position


def _is_plain(shape: ArrayShape) -> bool:
    """Whether the layout is an order of dimensions alone, without tiles and memory space."""
    return shape.layout is None or not shape.layout.suffix


_ASSOCIATIVE: Final = frozenset(name for name, row in OPS.items() if row.associative)


def _is_regrouped(instruction: Instruction) -> bool:
    """Whether chains of it are compared term by term: integers, which no order of a sum rounds."""
    if instruction.opcode not in _ASSOCIATIVE:
        return False
    shape = instruction.shape
    return isinstance(shape, ArrayShape) and (shape.dtype.is_integer or shape.dtype.is_pred)


@dataclass
class _Table:
    """What a computation had so far: positions, the first instruction of each number, and ``_Bare``."""

    position: dict[Instruction, int] = field(default_factory=dict)
    seen: dict[int, Instruction] = field(default_factory=dict)
    bare: _Bare = field(default_factory=_Bare)


_Key: TypeAlias = tuple[str, int, Hashable, Hashable]
"""Opcode, number of the shape, operands, attributes."""


@dataclass
class _Merger:
    """Equal shapes, keys and structures of computations have the same number, so that each is hashed once.

    ``bare`` has, by the number of a shape, that of the same shape without its layout, where that is an order of
    dimensions alone.
    """

    effects: Effects
    log: PassLog
    changed: bool = False
    structures: dict[Hashable, int] = field(default_factory=dict)
    numbers: dict[Computation, int] = field(default_factory=dict)
    keys: dict[_Key, int] = field(default_factory=dict)
    shapes: dict[Shape, int] = field(default_factory=dict)
    bare: dict[int, int | None] = field(default_factory=dict)
    layoutless: dict[ArrayShape, int] = field(default_factory=dict)
    terms: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)

    def merge(self, computation: Computation) -> None:
        """Merge equal instructions of a computation whose callees are done.

        Most are alone with their opcode and operands: the rest of a key is looked at where two have the same.
        """
        table = _Table()
        alone: dict[Hashable, Instruction | None] = {}
        number = table.bare.number
        for position, instruction in enumerate(computation):
            table.position[instruction] = position
            number[instruction] = table.bare.of(instruction, position)
            if instruction.opcode in NOT_MERGEABLE:
                continue
            if not _is_regrouped(instruction):
                read = [number[operand] for operand in instruction.operands]
                if len(read) == 2:
                    read.sort()
                known = (instruction.opcode, *read)
                first = alone.setdefault(known, instruction)
                if first is instruction:
                    continue
                if first is not None:
                    alone[known] = None
                    self.visit(first, table)
            self.visit(instruction, table)

    def visit(self, instruction: Instruction, table: _Table) -> None:
        """Merge an instruction with an equal one before it, or have it in the table."""
        key = self.key(instruction, table.position)
        if not (self.may_merge(instruction) and self.log.allows()):
            return
        number = self.number(key)
        first = table.seen.setdefault(number, instruction)
        if first is not instruction:
            self.log.hit("merge equal instructions", instruction, f"equal to {first.name}")
            merge_lines(first, (instruction,))
            edit.replace_uses(instruction, first)
            edit.remove(instruction)
            self.changed = True
        elif other := self.in_other_layout(instruction, key, table.bare):
            position = table.position[instruction]
            copy = table.seen[number] = self.copied(instruction, other)
            table.position[copy] = position
            table.bare.number[copy] = table.bare.of(copy, position)

    def number(self, key: _Key) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def number_of(self, computation: Computation) -> int:
        """Equal for computations of the same structure; found when one that calls it is compared."""
        known = self.numbers.get(computation)
        if known is not None:
            return known
        position: dict[Instruction, int] = {}
        rows: list[Hashable] = []
        for instruction in computation:
            number = self.number(self.key(instruction, position))
            position[instruction] = len(rows)
            before = instruction.control_predecessors
            rows.append((number, tuple(position[one] for one in before)) if before else number)
        structure = (tuple(rows), position[computation.root])
        known = self.structures.setdefault(structure, len(self.structures))
        self.numbers[computation] = known
        return known

    def in_other_layout(
        self, instruction: Instruction, key: _Key, bare: _Bare
    ) -> Instruction | None:
        """An instruction before this one that computes the same, but for the layout; its copy is cheaper.

        What is computed of copies in other layouts is the same, too: where a chain of ops is there in two
        layouts, one copy at its end stays.
        """
        opcode, shape, _, said = key
        row = instruction.op
        if not ((row.is_elementwise and opcode != "copy") or opcode in _COSTLY):
            return None
        without_layout = self.bare[shape]
        if without_layout is None:
            return None
        operands = tuple([bare.number[operand] for operand in instruction.operands])
        if row.commutative:
            operands = tuple(sorted(operands))
        known = (opcode, without_layout, operands, said)
        first = bare.seen.setdefault(known, instruction)
        return None if first is instruction else first

    def copied(self, instruction: Instruction, first: Instruction) -> Instruction:
        """A copy of ``first`` in the place of an instruction."""
        self.log.hit("merge all but the layout", instruction, f"{first.name} has another layout")
        merge_lines(first, (instruction,))
        copy = build.make(
            instruction,
            "copy",
            (first,),
            {},
            shape=instruction.shape,
            metadata=instruction.metadata,
        )
        for mark in ("sharding", "frontend_attributes"):
            if mark in instruction.attributes:
                edit.set_attribute(copy, mark, instruction.attributes[mark])
        edit.replace_instruction(instruction, copy)
        self.changed = True
        return copy

    def may_merge(self, instruction: Instruction) -> bool:
        return not (
            instruction.opcode in NOT_MERGEABLE
            or instruction.has_control_edges
            or self.effects.has(instruction)
        )

    def key(self, instruction: Instruction, position: dict[Instruction, int]) -> _Key:
        numbers = tuple([position[operand] for operand in instruction.operands])
        operands: Hashable = numbers
        attributes = instruction.attributes
        if len(numbers) == 2:
            left, right = numbers
            if instruction.op.commutative:
                operands = self.sorted_terms(instruction, left, right)
            elif left > right and attributes.get("direction") in MIRRORED:
                operands = (right, left)
                attributes = {**attributes, "direction": MIRRORED[attributes["direction"]]}
        said: Hashable = ()
        if attributes:
            said = tuple(
                [
                    (name, self.value(attributes[name]))
                    for name in sorted(attributes)
                    if name not in _NOT_COMPARED
                ]
            )
        return (instruction.opcode, self.shape(instruction.shape), operands, said)

    def sorted_terms(self, instruction: Instruction, left: int, right: int) -> Hashable:
        """The operands in one order; those of a chain of integer ops of one kind all together."""
        if not _is_regrouped(instruction):
            return (min(left, right), max(left, right))
        terms: list[int] = []
        for operand, number in zip(instruction.operands, (left, right), strict=True):
            inner = self.terms.get(operand) if operand.opcode == instruction.opcode else None
            terms += (
                inner if inner is not None and operand.shape == instruction.shape else (number,)
            )
        if len(terms) > _MOST_TERMS:
            terms = [left, right]
        self.terms[instruction] = tuple(sorted(terms))
        return self.terms[instruction]

    def shape(self, shape: Shape) -> int:
        """The number of a shape with row-major layouts written out."""
        known = self.shapes.get(shape)
        if known is None:
            whole = _with_layout(shape)
            known = self.shapes.setdefault(whole, len(self.shapes))
            self.shapes[shape] = known
            self.bare[known] = None
            if isinstance(whole, ArrayShape) and whole.dims and _is_plain(whole):
                plain = replace(whole, layout=None)
                self.bare[known] = self.layoutless.setdefault(plain, len(self.layoutless))
        return known

    def value(self, value: Any) -> Hashable:
        if isinstance(value, Computation):
            return ("computation", self.number_of(value))
        if isinstance(value, tuple) and value and isinstance(value[0], Computation):
            return ("computations", *map(self.number_of, value))
        if isinstance(value, Literal):
            return value.key
        hashable: Hashable = value
        return hashable


def _with_layout(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_with_layout, shape.elements)))
    if isinstance(shape, ArrayShape) and shape.layout is None:
        return ArrayShape(shape.dtype, shape.dims, descending(shape.rank), shape.dynamic)
    return shape

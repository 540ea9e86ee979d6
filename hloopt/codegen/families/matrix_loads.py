"""Tiles of the operands of matrix units: copied into shared memory beside the arithmetic, or computed there.

An operand that lies in memory so that 16 bytes of a tile are 16 bytes of it, all inside or all outside, is
copied asynchronously.  Any other is computed by elements into registers, before the products of a step, and
written behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from math import gcd
from typing import Final

from hloopt.analysis.contraction import AxisGroup, Side, exact_dtype, keeps_values
from hloopt.analysis.index import Index, Indices, Symbol, delinearize, linearize, narrowed
from hloopt.codegen import index_at, position_of
from hloopt.codegen.elements import Elements
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.scalars import convert, literal
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Call, Expr, as_expr, both
from hloopt.kernel_ir.statements import Copy
from hloopt.kernel_ir.types import BYTE, INT, UINT
from hloopt.kernels.families.matrix_tiling import (
    CHUNK_BYTES,
    MatrixTiling,
    TileLayout,
)
from hloopt.ops.traits import op_table
from hloopt.types import DType, dtype

__all__ = ["TileLoad", "chunk_place", "in_memory"]


def chunk_place(layout: TileLayout, row: Index, chunk: Index) -> Expr:
    """The number of a chunk in its tile: ``TileLayout.place``."""
    period, span, by = layout.turns
    turn = row % period // span * by
    turned = as_expr(chunk) if turn == Index(0) else as_expr(chunk) ^ as_expr(turn)
    return as_expr(row * layout.chunks) + turned


@dataclass
class TileLoad:
    """Filling the stages of one operand: ``free`` is m or n, ``first`` where the block's tile begins along it.

    tile    all stages in shared memory, in elements of the operand where it is copied, else in words
    values  what a thread has computed and not written yet
    """

    writer: ProductWriter
    tiling: MatrixTiling
    name: str
    side: Side
    free: AxisGroup
    first: Index
    batch: Index
    tile: Array = field(init=False)
    values: Array = field(init=False)

    def __post_init__(self) -> None:
        f, tiling = self.writer.f, self.tiling
        self.layout = tiling.layout(self.writer.contraction, self.side, self.free)
        self.chunks = self.layout.rows * self.layout.chunks
        self.each = -(-self.chunks // tiling.threads)
        self.dtype = dtype("f32" if tiling.element_bytes == 4 else tiling.step.dtype)
        inside = frozenset(f.region.body)
        self.exact = exact_dtype(self.side.instruction, inside.__contains__)
        self.is_copied = self._is_copied()
        stages = tiling.stages * self.layout.elements
        size = tiling.element_bytes
        kind, count = (
            (f.uses.storage(self.dtype), stages) if self.is_copied else (UINT, stages * size // 4)
        )
        per = size if self.is_copied else 4
        self.tile = f.shared_in_launch(kind, count, per, f"{self.name}_tile")

    @property
    def along(self) -> AxisGroup:
        """What moves through the elements of a chunk."""
        return "k" if self.layout.along_k else self.free

    @property
    def per_element(self) -> int:
        """Elements of the matrices in one of ``tile``."""
        return 1 if self.is_copied else 4 // self.tiling.element_bytes

    # ---- copies -------------------------------------------------------------------------------------

    def _is_copied(self) -> bool:
        """Whether each chunk lies in memory as it does in a tile, at a multiple of its size."""
        run = self.layout.each
        if self.exact is not self.dtype or self.writer.contraction.size(self.along) % run:
            return False
        e = self.writer.f.elements
        # Any chunk will do: what is asked is how the place of an element depends on that of its chunk.
        groups: tuple[AxisGroup, ...] = ("b", self.free, "k")
        chunk = {group: self._any(group, run if group == self.along else 1) for group in groups}
        found = []
        for lane in range(run):
            counts = {**chunk, self.along: chunk[self.along] + lane}
            place = in_memory(e, self.side.instruction, self._place(counts), self.dtype)
            if place is None:
                return False
            found.append(place)
        memory, start = found[0]
        return start.is_multiple(run) and all(
            other is memory and at == start + lane for lane, (other, at) in enumerate(found)
        )

    def _any(self, group: AxisGroup, multiple: int) -> Index:
        """A place along b, m, n or k."""
        last = max(0, self._extent(group) - multiple)
        return Symbol(f"any_{group}", 0, last, multiple).index if last else Index(0)

    def _extent(self, group: AxisGroup) -> int:
        return self.writer.contraction.size(group)

    def _place(self, counts: Mapping[AxisGroup, Index]) -> Indices:
        return self.writer.operand_place(self.side, counts)[1]

    def copy(self, stage: Index, step: Index) -> None:
        """Begin to copy the tile of a step into a stage."""
        e = self.writer.f.elements
        with self._chunks() as (_, row, chunk):
            tests, counts = self._counts(step, row, chunk)
            found = in_memory(e, self.side.instruction, self._place(counts), self.dtype)
            assert found is not None, "what is copied lies in memory"
            memory, start = found
            target = self.tile.address(self.element(stage, row, chunk))
            e.scope.add(Copy(target, memory.address(start), CHUNK_BYTES, both(tests)))

    def element(self, stage: Index, row: Index, chunk: Index) -> Expr:
        """Where a chunk of a stage begins in ``tile``."""
        per = self.per_element
        inside = chunk_place(self.layout, row, chunk) * (self.layout.each // per)
        begin = stage * (self.layout.elements // per)
        return inside if begin == Index(0) else as_expr(begin) + inside

    # ---- values -------------------------------------------------------------------------------------

    def declare(self) -> None:
        """Registers for what is computed before the products of a step, and written behind them."""
        if not self.is_copied:
            scope = self.writer.f.scope
            self.values = scope.array(UINT, (self.each, CHUNK_BYTES // 4), f"{self.name}_next")

    def compute(self, step: Index) -> None:
        """The words of the tile of a step; 0 for what lies outside of the operand."""
        with self._chunks() as (at, row, chunk):
            for word, value in enumerate(self._words(step, row, chunk)):
                self.writer.f.elements.scope.set(self.values[at, word], value)

    def write(self, stage: Index) -> None:
        """What was computed, into a stage."""
        e = self.writer.f.elements
        with self._chunks() as (at, row, chunk):
            place = e.scope.declare(INT, self.element(stage, row, chunk), "place")
            for word in range(CHUNK_BYTES // 4):
                e.scope.set(self.tile[place + word], self.values[at, word])

    def _words(self, step: Index, row: Index, chunk: Index) -> list[Expr]:
        e, run = self.writer.f.elements, self.layout.each
        source = self.side.instruction.array.dtype
        kind = e.uses.type(source)
        elements = e.scope.array(kind, (run,), "chunk")
        whole = gcd(run, self._extent(self.along))
        for first in range(0, run, whole):
            tests, counts = self._counts(step, row, chunk, first, whole)
            if tests:
                for lane in range(first, first + whole):
                    e.scope.set(elements[lane], literal(0, source))
            with e.when(*tests) as inner:
                for lane in range(whole):
                    here = {**counts, self.along: counts[self.along] + lane}
                    value = e.value(self.side.instruction, self._place(here))
                    inner.set(elements[first + lane], value)
        per = 4 // self.tiling.element_bytes
        return [
            self._packed([elements[at + lane] for lane in range(per)], source)
            for at in range(0, run, per)
        ]

    def _packed(self, values: list[Expr], source: DType) -> Expr:
        """Elements in a word, as the matrix unit has them, or f32 that are rounded when they are read."""
        uses, scope = self.writer.f.uses, self.writer.f.elements.scope
        name = self.dtype.name
        if name == "f32":
            (one,) = values
            return Call("__float_as_uint", (convert(one, source, self.dtype, uses),), UINT)
        if source.name == "f32":
            return uses.call(f"pack_{name}", *values, type=UINT)
        kind = uses.type(self.dtype)
        made = [
            scope.declare(kind, convert(one, source, self.dtype, uses), "part") for one in values
        ]
        if self.tiling.element_bytes == 2:
            return uses.call(f"pack_pair<{name}>", *made, type=UINT)
        word: Expr = made[0].cast(BYTE).cast(UINT)
        for at, one in enumerate(made[1:], 1):
            word = word | (one.cast(BYTE).cast(UINT) << 8 * at)
        return word

    # ---- places -------------------------------------------------------------------------------------

    @contextmanager
    def _chunks(self) -> Iterator[tuple[Index, Index, Index]]:
        """For each chunk this thread fills: its number, its row and its place in that."""
        f, layout = self.writer.f, self.layout
        e = f.elements
        with e.counting(0, self.each, "i", type=INT, unroll=0) as at:
            number = f.thread() + at * self.tiling.threads
            if number.high >= self.chunks:
                number = e.symbol(number, "number", 0, number.high)
            with guarded(f, number, self.chunks) as inside:
                if self._is_turned:
                    chunk, row = delinearize(inside, (layout.chunks, layout.rows))
                else:
                    row, chunk = delinearize(inside, (layout.rows, layout.chunks))
                row = e.symbol(row, f"{self.name}_row", 0, layout.rows - 1)
                chunk = e.symbol(chunk, f"{self.name}_chunk", 0, layout.chunks - 1)
                yield at, row, chunk

    @property
    def _is_turned(self) -> bool:
        """Whether neighbours in memory are in different rows of the tile."""
        quickest = self.writer.contraction.quickest(self.side)
        return self.layout.along_k and quickest == self.free

    def _counts(
        self, step: Index, row: Index, chunk: Index, first: int = 0, run: int = 0
    ) -> tuple[list[Expr], dict[AxisGroup, Index]]:
        """Where the elements of a chunk from ``first`` on are, and the tests that ``run`` of them are there."""
        e, layout = self.writer.f.elements, self.layout
        run = run or layout.each
        within = chunk * layout.each + first
        wide = self.first + (row if layout.along_k else within)
        deep = step * self.tiling.k + (within if layout.along_k else row)
        tests: list[Expr] = []
        found: dict[AxisGroup, Index] = {"b": self.batch}
        for group, index in ((self.free, wide), ("k", deep)):
            size = self._extent(group)
            place = e.symbol(index, group, 0, index.high)
            length = run if group == self.along else 1
            if place.high > size - length:
                tests.append(as_expr(place) < size)
                place = narrowed(place, size - length + 1)
            found[group] = place
        return tests, found


def _same(_: Instruction, index: Indices) -> Indices:
    return index


def _turned(instruction: Instruction, index: Indices) -> Indices:
    found = [Index(0)] * len(index)
    for at, dimension in enumerate(instruction.attributes["dimensions"]):
        found[dimension] = index[at]
    return tuple(found)


def _reshaped(instruction: Instruction, index: Indices) -> Indices:
    return delinearize(linearize(index, instruction.array.dims), instruction.operands[0].array.dims)


def _bitcast(instruction: Instruction, index: Indices) -> Indices:
    return index_at(position_of(index, instruction.array), instruction.operands[0].array)


def _spread(instruction: Instruction, index: Indices) -> Indices:
    return tuple(index[dimension] for dimension in instruction.attributes.get("dimensions", ()))


_MOVES: Final[Mapping[str, Callable[[Instruction, Indices], Indices]]] = op_table({
    "convert": _same,
    "copy": _same,
    "transpose": _turned,
    "reshape": _reshaped,
    "bitcast": _bitcast,
    "broadcast": _spread,
}, otherwise="is computed by elements")  # fmt: skip
"""Where the element of an operand is that an op gives its own one from."""


def in_memory(
    e: Elements, instruction: Instruction, index: Indices, kind: DType
) -> tuple[Array, Index] | None:
    """Where an element lies as one of ``kind`` that ops only move; None where it is computed or rounded."""
    region = e.region
    while instruction not in region.inputs:
        move = _MOVES.get(instruction.opcode)
        if move is None:
            return None
        operand = instruction.operands[0]
        source, own = operand.array.dtype, instruction.array.dtype
        if source is not own and (instruction.opcode == "bitcast" or not keeps_values(source, own)):
            return None
        index, instruction = move(instruction, index), operand
    number = region.inputs[instruction]
    memory, shape = e.memory.get(region.canonical(number)), region.operands[number]
    if memory is None or region.inlined(number) is not None or shape.dtype is not kind:
        return None
    return memory, position_of(index, shape)

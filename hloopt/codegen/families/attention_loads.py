"""Operands of the attention kernel on their way into shared memory: copied beside the arithmetic, or computed.

With two tiles the next operand is on its way while the one before is multiplied, from the second one of each
step on.  16 bytes that lie in memory as they do in a tile are copied asynchronously; all others are computed
element by element and written, into the same tile at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from hloopt.analysis.attention import TiledProduct
from hloopt.analysis.attention.axes import AxisNumber
from hloopt.analysis.contraction import Axis, AxisGroup, Side, keeps_values
from hloopt.analysis.index import Index, Symbol, delinearize, linearize, narrowed
from hloopt.codegen.families.attention_block import AttentionBlock
from hloopt.codegen.families.attention_products import stored_factor
from hloopt.codegen.families.dot_index import operand_place
from hloopt.codegen.families.matrix_loads import in_memory
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.loads import VECTOR_BYTES
from hloopt.codegen.scalars import literal
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Expr, below, both
from hloopt.kernel_ir.statements import Commit, Copy, Wait
from hloopt.kernel_ir.types import INT

__all__ = ["ColumnTiles", "load_rows"]


@dataclass(frozen=True)
class _Lines:
    """What is loaded: lines of an operand, of which ``size`` are there, from a first one on.

    group  what the neighbours in a line lie along; ``axes`` what the lines do
    """

    product: TiledProduct
    side: Side
    group: AxisGroup
    axes: tuple[AxisNumber, ...]
    first: Index
    size: int
    count: int


def load_rows(block: AttentionBlock) -> None:
    """The block's rows of each product of scores."""
    form = block.form
    size = form.count(form.rows)
    for product in form.scores:
        side = product.contraction.lhs
        lines = _Lines(product, side, "k", form.rows, block.first, size, block.height)
        _load(block, lines, block.own[product.hero])


@dataclass
class ColumnTiles:
    """The operands that one step multiplies, in order: each with the axes of its neighbours."""

    block: AttentionBlock
    operands: Sequence[tuple[TiledProduct, AxisGroup]]
    first: Index
    copied: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Let the first operand be on its way, where there are two tiles."""
        if len(self.block.tiles) > 1:
            self._load(0)

    def arrive(self, number: int) -> Array:
        """The tile with an operand that is to be multiplied now; the next one is on its way."""
        block, scope = self.block, self.block.e.scope
        if len(block.tiles) == 1:
            self._load(number)
            block.f.barrier()
            return block.tiles[0]
        if number in self.copied:
            scope.add(Wait(0))
            if block.products.rounds_copies:
                _round(block, self._lines(number), block.tiles[number % 2])
        block.f.barrier()
        if number + 1 < len(self.operands):
            self._load(number + 1)
        return block.tiles[number % 2]

    def leave(self, number: int) -> None:
        """Wait for those who still multiply what is to be overwritten next."""
        is_last = number + 1 == len(self.operands)
        if len(self.block.tiles) == 1 or (is_last and number % 2 == 0):
            self.block.f.barrier()

    def _lines(self, number: int) -> _Lines:
        block, (product, group) = self.block, self.operands[number]
        side, axes = product.contraction.rhs, block.form.columns
        return _Lines(product, side, group, axes, self.first, block.columns, block.width)

    def _load(self, number: int) -> None:
        block, lines = self.block, self._lines(number)
        tile = block.tiles[number % len(block.tiles)]
        if len(block.tiles) > 1 and _is_copied(block, lines):
            _copy(block, lines, tile)
            block.e.scope.add(Commit())
            self.copied.add(number)
        else:
            _load(block, lines, tile)


def _chunk(block: AttentionBlock, product: TiledProduct) -> int:
    return VECTOR_BYTES * 8 // block.products.kind(product).bits


def _is_copied(block: AttentionBlock, lines: _Lines) -> bool:
    """Whether 16 bytes of a line lie in memory as they do in the tile, at a multiple of 16."""
    contraction = lines.product.contraction
    kind, run = block.products.kind(lines.product), _chunk(block, lines.product)
    depth = contraction.size(lines.group)
    if depth % run or contraction.quickest(lines.side) != lines.group:
        return False
    if not keeps_values(kind, contraction.kind):
        return False
    # Any place will do: what is asked is how neighbours lie.
    line = Symbol("any_line", 0, lines.size - 1).index if lines.size > 1 else Index(0)
    place = Symbol("any_place", 0, depth - run, run).index if depth > run else Index(0)
    found = [_memory_of(block, lines, line, place + lane) for lane in range(run)]
    if found[0] is None:
        return False
    memory, start = found[0]
    return start.is_multiple(run) and all(
        one is not None and one[0] is memory and one[1] == start + lane
        for lane, one in enumerate(found)
    )


def _memory_of(
    block: AttentionBlock, lines: _Lines, line: Index, place: Index
) -> tuple[Array, Index] | None:
    known = {**block.at, **block.axes(lines.axes, line)}
    counts = _operand_axes(block, lines.product, known, lines.group, place)
    _, where = operand_place(lines.side, counts)
    kind = block.products.kind(lines.product)
    return in_memory(block.e, lines.side.instruction, where, kind)


def _copy(block: AttentionBlock, lines: _Lines, tile: Array) -> None:
    """Begin to copy; zeros behind the last line, and behind the last element of each."""
    depth = lines.product.contraction.size(lines.group)
    run = _chunk(block, lines.product)
    with _chunks(block, lines) as (line, place, target):
        at = block.e.symbol(lines.first + line, "at", 0, lines.first.high + lines.count - 1)
        tests = [*below(at, lines.size), *below(place, depth - run + 1)]
        there = _memory_of(block, lines, narrowed(at, lines.size), narrowed(place, depth - run + 1))
        assert there is not None, "it lies in memory"
        memory, start = there
        source = memory.address(start)
        block.e.scope.add(Copy(tile.address(target), source, VECTOR_BYTES, both(tests)))


def _round(block: AttentionBlock, lines: _Lines, tile: Array) -> None:
    """Round what a thread has copied, once for all warps that multiply it."""
    e, run = block.e, _chunk(block, lines.product)
    with _chunks(block, lines) as (_, _, target):
        copied = [
            e.scope.declare(tile.element, tile[target + lane], "copied") for lane in range(run)
        ]
        block.products.put(tile, target, [block.products.stored(one) for one in copied])


@contextmanager
def _chunks(block: AttentionBlock, lines: _Lines) -> Iterator[tuple[Index, Index, Index]]:
    """For each chunk that this thread copies: its line, its place in that, and where it goes."""
    f, e, run = block.f, block.e, _chunk(block, lines.product)
    depth = lines.product.contraction.size(lines.group)
    padded = block.products.depth(depth)
    length, runs = block.products.row_length(depth), -(-padded // run)
    steps = -(-lines.count * runs // block.threads)
    with e.counting(0, steps, "copy", type=INT, unroll=4) as step:
        number = step * block.threads + f.thread()
        if number.high >= lines.count * runs:
            number = e.symbol(number, "run", 0, number.high)
        with guarded(f, number, lines.count * runs) as inside:
            line, place = delinearize(inside, (lines.count, runs))
            line = e.symbol(line, "line", 0, lines.count - 1)
            place = e.symbol(place * run, "place", 0, (runs - 1) * run)
            yield line, place, line * length + place


def _load(block: AttentionBlock, lines: _Lines, tile: Array) -> None:
    """Write lines of an operand; zeros behind the last one, and behind the last element of each."""
    f, e, product, group = block.f, block.e, lines.product, lines.group
    depth = product.contraction.size(group)
    padded = block.products.depth(depth)
    run = next(run for run in (8, 4, 2, 1) if depth % run == 0)
    runs = padded // run
    length, kind = block.products.row_length(depth), block.products.kind(product)
    zero = literal(0, kind)
    steps = -(-lines.count * runs // block.threads)
    # Reads that are under way at once take registers.
    with e.counting(0, steps, "load", type=INT, unroll=run // 2 or 1) as step:
        number = step * block.threads + f.thread()
        if number.high >= lines.count * runs:
            number = e.symbol(number, "run", 0, number.high)
        with guarded(f, number, lines.count * runs) as inside:
            if product.contraction.quickest(lines.side) == group:
                line, place = delinearize(inside, (lines.count, runs))
            else:
                place, line = delinearize(inside, (runs, lines.count))
            line = e.symbol(line, "line", 0, lines.count - 1)
            place = e.symbol(place * run, "place", 0, padded - run)
            at = e.symbol(lines.first + line, "at", 0, lines.first.high + lines.count - 1)
            target = line * length + place
            tests = [*below(at, lines.size), *below(place, depth)]
            if tests:
                block.products.put(tile, target, [zero] * run)
            with e.when(*tests):
                known = {**block.at, **block.axes(lines.axes, narrowed(at, lines.size))}
                values: list[Expr] = []
                for lane in range(run):
                    deep = narrowed(place, depth - run + 1) + lane
                    counts = _operand_axes(block, product, known, group, deep)
                    _, where = operand_place(lines.side, counts)
                    value = e.value(lines.side.instruction, where)
                    source = lines.side.instruction.array.dtype
                    value = stored_factor(e, value, source, product, kind)
                    values.append(block.products.stored(value))
                block.products.put(tile, target, values)


def _operand_axes(
    block: AttentionBlock,
    product: TiledProduct,
    known: Mapping[AxisNumber, Index],
    group: AxisGroup,
    place: Index,
) -> dict[Axis, Index]:
    """Where each axis of a product is: ``place`` along one group, the others from the form's axes."""
    found: dict[Axis, Index] = {}
    for own, sizes in product.contraction.axes.items():
        if own == group:
            parts = delinearize(place, sizes)
            found.update({(own, at): part for at, part in enumerate(parts)})
            continue
        for at in range(len(sizes)):
            axes = product.axes.get((own, at), ())
            if all(axis in known for axis in axes):
                sized = [block.form.sizes[axis] for axis in axes]
                found[own, at] = linearize([known[axis] for axis in axes], sized)
    return found

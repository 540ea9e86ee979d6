"""At which indices ops read operands, and their lines of code, as ``codegen/elemental/`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from itertools import count
from typing import Final, TypeAlias

from hloopt.analysis.code_size import executed_instructions
from hloopt.analysis.index import Index, Indices, Symbol, delinearize, linearize, symbols_of
from hloopt.ir import Instruction
from hloopt.ops.traits import ELEMENTAL, op_table
from hloopt.types import ArrayShape, DotDims, GatherDims

__all__ = [
    "WRITE",
    "CodeBlock",
    "Counter",
    "ElementRequest",
    "Requests",
    "dot_positions",
    "write_other",
]

ElementRequest: TypeAlias = "tuple[Instruction, Indices, CodeBlock]"
"""An element that is wanted, and the block of code where."""
Requests: TypeAlias = Generator[ElementRequest, None, None]


class CodeBlock:
    """A block of code: the indices known in it, and the branches around it, where others may be known."""

    __slots__ = ("around", "before", "known")

    def __init__(
        self,
        around: CodeBlock | None = None,
        before: tuple[tuple[CodeBlock, frozenset[Symbol]], ...] = (),
    ) -> None:
        self.around = around
        self.before = before
        self.known: set[tuple[Instruction, Indices]] = set()

    def has(self, key: tuple[Instruction, Indices]) -> bool:
        block: CodeBlock | None = self
        while block is not None:
            if key in block.known:
                return True
            block = block.around
        return False

    def branch(self, index: Indices) -> CodeBlock:
        """A block in this one, of a branch or loop that begins where ``index`` is known."""
        return CodeBlock(self, (*self.before, (self, frozenset(symbols_of(index)))))


class Counter:
    """Lines that were written, and names of positions; ``first`` has what stands for an instruction."""

    def __init__(self, first: Mapping[Instruction, Instruction]) -> None:
        self.first = first
        self.lines = 0
        self._numbers = count()
        self._names: dict[Hashable, str] = {}

    def symbol(self, high: int) -> Index:
        """A position that a loop counts, from 0 to ``high``."""
        return Symbol(f"loop{next(self._numbers)}", 0, high).index if high > 0 else Index(0)

    def start(self, place: Instruction, where: Indices, high: int) -> Index:
        """A position from 0 to ``high`` given by an element."""
        place = self.first.get(place, place)
        if place.opcode == "constant" and place.literal is not None and not where:
            splat = place.literal.splat
            return Index(max(0, min(int(splat[()]), high)) if splat is not None else 0)
        if high <= 0:
            return Index(0)
        return self.named((place, where), 0, high)

    def named(self, value: Hashable, low: int, high: int) -> Index:
        """What an equal value is called, once it has been given a name."""
        if value not in self._names:
            self._names[value] = f"name{next(self._numbers)}"
            self.lines += 2
        return Symbol(self._names[value], low, high).index

    def anywhere(self, dims: Sequence[int]) -> Indices:
        """An index unrelated to all others."""
        return tuple(self.symbol(size - 1) for size in dims)


def _free(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    if instruction.opcode == "constant":
        w.lines += (
            bool(index) and instruction.literal is not None and instruction.literal.splat is None
        )
    elif instruction.operands:
        yield instruction.operands[0], index, block


def _broadcast(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    operand = instruction.operands[0]
    where = instruction.attributes.get("dimensions", ())
    sizes = operand.array.dims
    yield (
        operand,
        tuple(Index(0) if sizes[at] == 1 else index[to] for at, to in enumerate(where)),
        block,
    )


def _reshape(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    source, result = instruction.operands[0].array, instruction.array
    if source.dims != result.dims:
        linear = linearize(index, result.dims)
        if source.elements > result.elements:
            linear = linear * (source.elements // max(result.elements, 1))
        elif source.elements < result.elements:
            linear = linear // (result.elements // max(source.elements, 1))
        index = delinearize(linear, source.dims)
    yield instruction.operands[0], index, block


def _transpose(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    position = [Index(0)] * len(index)
    for at, dimension in enumerate(instruction.dimensions):
        position[dimension] = index[at]
    yield instruction.operands[0], tuple(position), block


def _slice(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    parts = zip(index, instruction.attributes["slice"], strict=True)
    yield instruction.operands[0], tuple(at * part.stride + part.start for at, part in parts), block


def _reverse(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    sizes, turned = instruction.array.dims, set(instruction.dimensions)
    position = (
        Index(sizes[at] - 1) - place if at in turned else place for at, place in enumerate(index)
    )
    yield instruction.operands[0], tuple(position), block


def _pad(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    operand, value = instruction.operands
    position, certain = [], True
    for at, padding, size in zip(
        index, instruction.attributes["padding"], operand.array.dims, strict=True
    ):
        step = padding.interior + 1
        moved, end = at - padding.low, (size - 1) * step
        if moved.high < 0 or moved.low > end:
            yield value, (), block
            return
        certain = certain and moved.low >= 0 and moved.high <= end and step == 1
        position.append(moved // step if size > 1 else Index(0))
    if certain:
        yield operand, tuple(position), block
        return
    yield value, (), block
    w.lines += 4
    yield operand, tuple(position), block.branch(index)


def _concatenate(
    w: Counter, instruction: Instruction, index: Indices, block: CodeBlock
) -> Requests:
    axis = instruction.dimensions[0]
    at, start = index[axis], 0
    parts: list[tuple[Instruction, int, int]] = []
    for operand in instruction.operands:
        size = operand.array.dims[axis]
        if size and at.high >= start and at.low < start + size:
            parts.append((operand, start, size))
        start += size
    for operand, start, size in parts:
        place = _narrowed(at, start, size) if len(parts) > 1 else at - start
        position = (*index[:axis], place if size > 1 else Index(0), *index[axis + 1 :])
        w.lines += 2 * (len(parts) > 1)
        yield operand, position, block.branch(index) if len(parts) > 1 else block


def _narrowed(at: Index, start: int, size: int) -> Index:
    """The position in a part of an array, where it is known to lie in it."""
    if len(at.terms) == 1:
        ((symbol, factor),) = at.terms
        if factor == 1 and isinstance(symbol, Symbol):
            low = max(symbol.low, start - at.constant)
            high = min(symbol.high, start + size - 1 - at.constant)
            at = Symbol(symbol.name, low, high, symbol.multiple).index + at.constant
    return at - start


def _iota(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    w.lines += 1
    yield from ()


def _dynamic_slice(
    w: Counter, instruction: Instruction, index: Indices, block: CodeBlock
) -> Requests:
    operand, *places = instruction.operands
    first = yield from _starts(w, places, operand, instruction, block)
    yield operand, tuple(a + b for a, b in zip(first, index, strict=True)), block


def _update(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    operand, update, *places = instruction.operands
    first = yield from _starts(w, places, operand, update, block)
    position, certain = [], True
    for at, start, size in zip(index, first, update.array.dims, strict=True):
        moved = at - start
        if moved.high < 0 or moved.low >= size:
            yield operand, index, block
            return
        if moved.low < 0 or moved.high >= size:
            # Once it is a variable, the index no longer shows that it is a difference from the start.
            is_name = not moved.constant and len(moved.terms) == 1
            moved = moved if is_name else w.named(moved, moved.low, moved.high)
            certain = False
        position.append(moved)
    if certain:
        yield update, tuple(position), block
        return
    w.lines += 4
    yield update, tuple(position), block.branch(index)
    yield operand, index, block.branch(index)


def _starts(
    w: Counter,
    places: Sequence[Instruction],
    whole: Instruction,
    part: Instruction,
    block: CodeBlock,
) -> Generator[ElementRequest, None, list[Index]]:
    """Where the part lies: what says so is an array of scalars, or a scalar each."""
    found = []
    for at, (dim, size) in enumerate(zip(whole.array.dims, part.array.dims, strict=True)):
        if dim == size:
            found.append(Index(0))
            continue
        place = places[min(at, len(places) - 1)]
        where = (Index(at),) if place.array.rank else ()
        yield place, where, block
        found.append(w.start(place, where, dim - size))
    return found


def _gather(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    operand, indices = instruction.operands
    dims = GatherDims.of(instruction.attributes)
    batch = [index[at] for at in dims.batch_dims(len(index))]
    position = dims.offsets_in(index, operand.array.rank, Index(0))
    for number, dimension in enumerate(dims.start_index_map):
        where = dims.vector_place(batch, Index(number), indices.array.rank)
        yield indices, where, block
        high = operand.array.dims[dimension] - dims.slice_sizes[dimension]
        position[dimension] += w.start(indices, where, high)
    for dimension, place in dims.batching:
        position[dimension] += batch[place]
    yield operand, tuple(position), block


def _reduce(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    inputs = instruction.fold_inputs
    for init in instruction.operands[len(inputs) :]:
        yield init, (), block
    reduced, kept = set(instruction.dimensions), iter(index)
    sizes = inputs[0].array.dims
    position = tuple(
        w.symbol(size - 1) if at in reduced else next(kept) for at, size in enumerate(sizes)
    )
    w.lines += 3 + executed_instructions(instruction)
    inner = block.branch(index)
    for operand in inputs:
        yield operand, position, inner


def dot_positions(
    instruction: Instruction, index: Indices, contracted: Indices
) -> tuple[Indices, Indices]:
    """Where a dot reads its operands for a result and a contracted index.

    Result dimensions are batch, lhs others, rhs others, each in increasing order.
    """
    dims = DotDims.of(instruction.attributes)
    lhs, rhs = instruction.operands[0].array, instruction.operands[1].array
    left: dict[int, Index] = dict(zip(dims.lhs_contracting, contracted, strict=True))
    right: dict[int, Index] = dict(zip(dims.rhs_contracting, contracted, strict=True))
    rest = iter(index)
    for one, other in zip(dims.lhs_batch, dims.rhs_batch, strict=True):
        left[one] = right[other] = next(rest)
    for at in range(lhs.rank):
        if at not in left:
            left[at] = next(rest)
    for at in range(rhs.rank):
        if at not in right:
            right[at] = next(rest)
    return (
        tuple(left[at] for at in range(lhs.rank)),
        tuple(right[at] for at in range(rhs.rank)),
    )


def write_other(w: Counter, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
    """Loops over windows and products: what they read is nowhere known."""
    w.lines += 5 + executed_instructions(instruction)
    inner = block.branch(index)
    for operand in instruction.operands:
        dims = operand.shape.dims if isinstance(operand.shape, ArrayShape) else ()
        yield operand, w.anywhere(dims), inner


WRITE: Final[Mapping[str, Callable[[Counter, Instruction, Indices, CodeBlock], Requests]]] = (
    op_table(
        {
            "add-dependency": _free,
            "bitcast": _reshape,
            "broadcast": _broadcast,
            "concatenate": _concatenate,
            "constant": _free,
            "copy": _free,
            "dynamic-slice": _dynamic_slice,
            "dynamic-update-slice": _update,
            "gather": _gather,
            "get-tuple-element": _free,
            "iota": _iota,
            "opt-barrier": _free,
            "pad": _pad,
            "reduce": _reduce,
            "reshape": _reshape,
            "reverse": _reverse,
            "slice": _slice,
            "transpose": _transpose,
        },
        ELEMENTAL | {"copy"},
        "a loop (``write_other``), or elementwise",
    )
)
"""Ops that choose at which index an operand is read, as ``codegen/elemental/`` writes them."""

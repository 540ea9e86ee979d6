"""Random bits inside a kernel: each thread runs the generator's block function for its elements.

The counter of a block is the state plus the block's number, so that any element can be had by itself; elements
of one block that a thread computes share it.  Layouts of words are those of ``interpret/random.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from hloopt.analysis.index import Index, Indices, linearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit, each
from hloopt.codegen.scalars import convert, literal, reinterpret
from hloopt.interpret.random import paired_dims, split_dimension
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Member, Select, as_expr, eq
from hloopt.kernel_ir.types import UINT, ULONG, struct
from hloopt.types import DTYPES, ArrayShape, DType, dtype, leaves

__all__ = ["EMITTERS"]

_U32, _U64 = dtype("u32"), dtype("u64")


def _rng_bit_generator(
    e: Elements, instruction: Instruction, index: Indices, leaf: int
) -> Emission:
    *states, bits = leaves(instruction.shape)
    assert isinstance(bits, ArrayShape)
    words = instruction.operands[0].array.dims[0]
    state = yield from each(At(instruction.operands[0], (Index(at),)) for at in range(words))
    threefry = str(instruction.attributes["algorithm"]) == "rng_three_fry"
    if states and leaf == 0:
        blocks = _threefry_blocks(bits) if threefry else _philox_blocks(bits)
        return _state_after(e, state, blocks, index[0], not threefry)
    draw = _threefry if threefry else _philox
    raw, kind = draw(e, instruction, state, bits, index)
    return _as_type(e, instruction, raw, kind, bits.dtype)


def _threefry_blocks(bits: ArrayShape) -> int:
    return bits.elements if bits.dtype.bits == 64 else prod(paired_dims(bits.dims)) // 2


def _philox_blocks(bits: ArrayShape) -> int:
    return -(-bits.elements // (2 if bits.dtype.bits == 64 else 4))


def _state_after(e: Elements, state: list[Expr], blocks: int, word: Index, carries: bool) -> Expr:
    """Word ``word`` of the state that the generator leaves: the counter has advanced by ``blocks``."""
    low = e.scope.declare(ULONG, state[1] + literal(blocks, _U64), "counter")
    values = [state[0], low]
    if len(state) == 3:
        high = state[2] + (low < state[1]) if carries else state[2]
        values.append(e.scope.declare(ULONG, high, "counter_high"))
    if word.is_constant:
        return values[word.constant]
    choice = values[-1]
    for number in range(len(values) - 2, -1, -1):
        choice = Select(eq(word, number), values[number], choice)
    return e.scope.declare(ULONG, choice, "state")


def _threefry(
    e: Elements, instruction: Instruction, state: list[Expr], bits: ArrayShape, index: Indices
) -> tuple[Expr, DType]:
    if bits.dtype.bits == 64:
        block = _block(e, instruction, state, linearize(index, bits.dims), "threefry2x32")
        return _wide(e, _word(block, Index(0), 2), _word(block, Index(1), 2)), _U64
    if not bits.dims:
        block = _block(e, instruction, state, Index(0), "threefry2x32")
        return _word(block, Index(0), 2), _U32
    split = split_dimension(bits.dims)
    pairs = paired_dims(bits.dims)
    half = (*pairs[: split + 1], *pairs[split + 2 :])
    position = (*index[:split], index[split] // 2, *index[split + 1 :])
    block = _block(e, instruction, state, linearize(position, half), "threefry2x32")
    return _word(block, index[split] % 2, 2), _U32


def _philox(
    e: Elements, instruction: Instruction, state: list[Expr], bits: ArrayShape, index: Indices
) -> tuple[Expr, DType]:
    linear = linearize(index, bits.dims)
    if bits.dtype.bits == 64:
        block = _block(e, instruction, state, linear // 2, "philox4x32")
        half = linear % 2
        low = _word(block, half * 2, 4)
        high = _word(block, half * 2 + 1, 4)
        return _wide(e, low, high), _U64
    block = _block(e, instruction, state, linear // 4, "philox4x32")
    return _word(block, linear % 4, 4), _U32


def _block(
    e: Elements, instruction: Instruction, state: list[Expr], number: Index, function: str
) -> Expr:
    """The words of block ``number``, computed once in a block of code."""
    key = ("random", e.frame, instruction, number)
    name = e.scope.known(key)
    if name is not None:
        return name
    scope = e.scope
    counter = scope.declare(ULONG, state[1] + as_expr(number).cast(ULONG), "counter")
    given, kind = [state[0], counter], struct("Words2")
    if function == "philox4x32":
        top, kind = state[2] if len(state) == 3 else state[0], struct("Words4")
        given.append(scope.declare(ULONG, top + (counter < state[1]), "counter_high"))
    words = [part.cast(UINT) for long in given for part in (long, long >> 32)]
    name = scope.declare(kind, e.uses.call(function, *words, type=kind), "block")
    scope.remember(key, name)
    return name


def _word(block: Expr, number: Index, count: int) -> Expr:
    """A word of a block; which one may be known only at run time."""
    steps = [number.constant] if number.is_constant else _steps(number, count)
    *first, last = (Member(block, "word", UINT, as_expr(at)) for at in steps)
    choice: Expr = last
    for at, word in reversed(list(zip(steps, first, strict=False))):
        choice = Select(eq(number, at), word, choice)
    return choice


def _steps(number: Index, count: int) -> list[int]:
    step = 2 if number.is_multiple(2) or (number - 1).is_multiple(2) else 1
    return list(range(number.low, count, step))


def _wide(e: Elements, low: Expr, high: Expr) -> Expr:
    return e.scope.declare(ULONG, low.cast(ULONG) | high.cast(ULONG) << 32, "bits")


def _as_type(e: Elements, instruction: Instruction, raw: Expr, kind: DType, result: DType) -> Expr:
    """The low bits of a word as an element of the result's type."""
    bits = DTYPES[f"u{result.bits}"]
    name = e.declare(kind, raw, "bits")
    narrow = convert(name, kind, bits, e.uses) if bits is not kind else name
    if bits is not kind:
        name = e.declare(bits, narrow, "bits")
    value = reinterpret(name, bits, result, e.uses)
    return e.declare(result, value, instruction.name)


EMITTERS: Final[Mapping[str, Emit]] = {"rng-bit-generator": _rng_bit_generator}

"""Random bits inside a kernel: each thread runs the generator's block function for its elements.

The counter of a block is the state plus the block's number, so that any element can be had by itself; elements
of one block that a thread computes share it.  Layouts of words are those of ``interpret/random.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from hloopt.analysis.index import Index, linearize
from hloopt.codegen.elements import At, Elements, Emission, Emit, each
from hloopt.codegen.scalars import convert, reinterpret
from hloopt.interpret.random import paired_dims, split_dimension
from hloopt.ir import Instruction
from hloopt.types import DTYPES, ArrayShape, DType, dtype, leaves

__all__ = ["EMITTERS"]

_Position = tuple[Index, ...]
_U32, _U64 = dtype("u32"), dtype("u64")


def _rng_bit_generator(
    e: Elements, instruction: Instruction, index: _Position, leaf: int
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


def _state_after(e: Elements, state: list[str], blocks: int, word: Index, carries: bool) -> str:
    """Word ``word`` of the state that the generator leaves: the counter has gone on by ``blocks``."""
    low = e.scope.declare("unsigned long long", f"{state[1]} + {blocks}ull", "counter")
    values = [state[0], low]
    if len(state) == 3:
        carry = f" + ({low} < {state[1]})" if carries else ""
        values.append(e.scope.declare("unsigned long long", f"{state[2]}{carry}", "counter_high"))
    if word.is_constant:
        return values[word.constant]
    choice = values[-1]
    for number in range(len(values) - 2, -1, -1):
        choice = f"{word} == {number} ? {values[number]} : {choice}"
    return e.scope.declare("unsigned long long", choice, "state")


def _threefry(
    e: Elements, instruction: Instruction, state: list[str], bits: ArrayShape, index: _Position
) -> tuple[str, DType]:
    if bits.dtype.bits == 64:
        block = _block(e, instruction, state, linearize(index, bits.dims), "threefry2x32")
        return _wide(e, f"{block}.word[0]", f"{block}.word[1]"), _U64
    if not bits.dims:
        block = _block(e, instruction, state, Index(0), "threefry2x32")
        return f"{block}.word[0]", _U32
    split = split_dimension(bits.dims)
    pairs = paired_dims(bits.dims)
    half = (*pairs[: split + 1], *pairs[split + 2 :])
    position = (*index[:split], index[split] // 2, *index[split + 1 :])
    block = _block(e, instruction, state, linearize(position, half), "threefry2x32")
    return _word(block, index[split] % 2, 2), _U32


def _philox(
    e: Elements, instruction: Instruction, state: list[str], bits: ArrayShape, index: _Position
) -> tuple[str, DType]:
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
    e: Elements, instruction: Instruction, state: list[str], number: Index, function: str
) -> str:
    """The words of block ``number``, computed once in a block of code."""
    key = ("random", e.frame, instruction, number)
    name = e.scope.known(key)
    if name is not None:
        return name
    scope = e.scope
    long = "unsigned long long"
    counter = scope.declare(long, f"{state[1]} + ({long}){number.factor_text}", "counter")
    arguments = [f"(unsigned){state[0]}", f"(unsigned)({state[0]} >> 32)"]
    arguments += [f"(unsigned){counter}", f"(unsigned)({counter} >> 32)"]
    if function == "philox4x32":
        top = state[2] if len(state) == 3 else state[0]
        high = scope.declare(long, f"{top} + ({counter} < {state[1]})", "counter_high")
        arguments += [f"(unsigned){high}", f"(unsigned)({high} >> 32)"]
    kind = "Words4" if function == "philox4x32" else "Words2"
    name = scope.declare(kind, e.uses.call(function, *arguments), "block")
    scope.remember(key, name)
    return name


def _word(block: str, number: Index, count: int) -> str:
    """A word of a block; which one may be known only at run time."""
    if number.is_constant:
        return f"{block}.word[{number.constant}]"
    *first, last = _steps(number, count)
    choice = f"{block}.word[{last}]"
    for at in reversed(first):
        choice = f"{number} == {at} ? {block}.word[{at}] : {choice}"
    return f"({choice})"


def _steps(number: Index, count: int) -> list[int]:
    step = 2 if number.is_multiple(2) or (number - 1).is_multiple(2) else 1
    return list(range(number.low, count, step))


def _wide(e: Elements, low: str, high: str) -> str:
    text = f"(unsigned long long){low} | (unsigned long long){high} << 32"
    return e.scope.declare("unsigned long long", text, "bits")


def _as_type(e: Elements, instruction: Instruction, raw: str, kind: DType, result: DType) -> str:
    """The low bits of a word as an element of the result's type."""
    bits = DTYPES[f"u{result.bits}"]
    name = e.scope.declare(e.uses.type(kind), raw, "bits")
    narrow = convert(name, kind, bits, e.uses) if bits is not kind else name
    if bits is not kind:
        name = e.scope.declare(e.uses.type(bits), narrow, "bits")
    value = reinterpret(name, bits, result, e.uses)
    return e.scope.declare(e.uses.type(result), value, instruction.name)


EMITTERS: Final[Mapping[str, Emit]] = {"rng-bit-generator": _rng_bit_generator}

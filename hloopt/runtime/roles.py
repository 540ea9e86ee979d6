"""What a module needs of its inputs, so that random inputs give useful results.

Each rule follows the data: which parameters reach which operand of which op.  No name and no order of
parameters plays a part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

import numpy as np

from hloopt.interpret.drawn import InputRole
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import ASSOCIATIVE, BITWISE, op_table
from hloopt.runtime.index_ranges import index_ranges
from hloopt.runtime.origins import MOVES, ArrayPlace, Through, by_table, entry_places, moved_from
from hloopt.types import ArrayShape, ConvDims, DotDims

__all__ = ["roles"]


def roles(module: Module) -> dict[ArrayPlace, InputRole]:
    """The roles of those arrays of the entry's parameters that have one."""
    found: dict[ArrayPlace, InputRole] = {}

    def role(place: ArrayPlace) -> InputRole:
        return found.setdefault(place, InputRole())

    for place, limit in index_ranges(module).items():
        role(place).limit = limit
    for place, bound in _bounds(module).items():
        role(place).bound = bound
    for place, fan_in in _fans(module).items():
        role(place).fan_in = fan_in
    for place in _reached_from(module, _positive, _keeps_sign):
        role(place).positive = True
    for place in _reached_from(module, _definite, by_table(_KEEP_DEFINITE)):
        role(place).definite = True
    for place in _reached_from(module, _random_bits, by_table(MOVES)):
        role(place).bits = True
    return found


def _bounds(module: Module) -> dict[ArrayPlace, int]:
    """For what set-dimension-size sets as a size, the smallest bound of such a dimension."""
    sizes: list[tuple[int, Instruction]] = []
    for computation in module:
        for instruction in computation:
            if instruction.opcode == "set-dimension-size":
                (dimension,) = instruction.attributes["dimensions"]
                sizes.append((instruction.array.dims[dimension], instruction.operands[1]))
    bounds: dict[ArrayPlace, int] = {}
    seen: set[ArrayPlace] = set()
    through = by_table(MOVES)
    # The smallest bound goes first: parameters it reaches need no other.
    for bound, size in sorted(sizes, key=lambda pair: pair[0]):
        for place in entry_places(module, [(size, ())], through, seen):
            bounds[place] = bound
    return bounds


def _reached_from(
    module: Module, operands: Callable[[Instruction], Iterable[Instruction]], through: Through
) -> Iterator[ArrayPlace]:
    """The parameters that reach these operands of any instruction."""
    starts = [
        (operand, ())
        for computation in module
        for instruction in computation
        for operand in operands(instruction)
        if isinstance(operand.shape, ArrayShape)
    ]
    return entry_places(module, starts, through, set())


def _fans(module: Module) -> dict[ArrayPlace, int]:
    """For each weight the most products that are summed into one element of a result.

    A product's weight is the operand that is made of parameters alone: of two such ones the right one, the
    kernel of a convolution.  The other operand is data, and stays data: the gradient of a first
    layer's weights is a product of data as well.
    """
    fans: dict[ArrayPlace, int] = {}
    data: set[ArrayPlace] = set()
    for product in _products(module.entry):
        left, right = (moved_from(module, operand) for operand in product.operands[:2])
        weights, others = (right, left) if right else (left, right)
        fan_in = _fan_in(product)
        for place in weights:
            if place not in data:
                fans[place] = max(fan_in, fans.get(place, 1))
        data.update(place for place in others if place not in fans)
    return fans


def _products(entry: Computation) -> Iterator[Instruction]:
    """All products that the entry can reach, in the order in which they are met first."""
    seen = {entry}
    stack = [iter(entry)]
    while stack:
        instruction = next(stack[-1], None)
        if instruction is None:
            stack.pop()
            continue
        if instruction.opcode in _PRODUCTS:
            yield instruction
        for called in walk.called_computations(instruction):
            if called not in seen:
                seen.add(called)
                stack.append(iter(called))


def _fan_in(product: Instruction) -> int:
    left, right = (operand.array.dims for operand in product.operands[:2])
    if product.opcode == "convolution":
        dims: ConvDims = product.attributes["dim_labels"]
        return right[dims.kernel_input_feature] * prod(right[axis] for axis in dims.kernel_spatial)
    return prod(left[axis] for axis in DotDims.of(product.attributes).lhs_contracting)


def _positive(instruction: Instruction) -> Iterator[Instruction]:
    """Operands that must not be negative, lest the result be NaN, or 0, lest it be infinite.

    Bounds of loops are among them: a loop without an iteration tests nothing.
    """
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in _OF_POSITIVES:
        yield operands[_OF_POSITIVES[opcode]]
    elif opcode == "power" and not _is_whole(operands[1]):
        yield operands[0]
    elif opcode == "while":
        condition: Computation = instruction.attributes["condition"]
        for inner in condition:
            if inner.opcode == "compare" and inner.operands[0].array.dtype.is_integer:
                yield from inner.operands


def _is_whole(exponent: Instruction) -> bool:
    """Whether an exponent is a whole number, which a negative base may have."""
    while exponent.opcode in ("broadcast", "convert"):
        exponent = exponent.operands[0]
    if exponent.array.dtype.is_integer:
        return True
    splat = exponent.literal.splat if exponent.literal is not None else None
    return splat is not None and bool(splat == np.trunc(splat.astype(np.complex128).real))


def _keeps_sign(instruction: Instruction) -> Sequence[Instruction] | None:
    """The operands that must be positive so that the result is.

    Of ``1 - b ** t``, by which Adam corrects its moments, that is ``t``.
    """
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ASSOCIATIVE - BITWISE | {"divide"}:
        if operands[0] is operands[1] or (opcode == "maximum" and any(map(_is_fixed, operands))):
            return None
        return operands
    if opcode == "subtract" and _is_fixed(operands[0]):
        power = operands[1]
        while power.opcode in MOVES and power.operands:
            power = power.operands[0]
        return power.operands[1:] if power.opcode == "power" else None
    numbers = _KEEP_SIGN.get(opcode)
    return None if numbers is None else [operands[number] for number in numbers]


def _is_fixed(instruction: Instruction) -> bool:
    while instruction.opcode in ("broadcast", "convert", "reshape"):
        instruction = instruction.operands[0]
    return instruction.opcode == "constant"


def _definite(instruction: Instruction) -> Sequence[Instruction]:
    if instruction.opcode in ("cholesky", "triangular-solve"):
        return instruction.operands[:1]
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target
        if _FACTORED.fullmatch(target):
            return instruction.operands[:1]
    return ()


def _random_bits(instruction: Instruction) -> Sequence[Instruction]:
    """What a counter-based generator starts from; written out, it begins with exclusive ors."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "rng-bit-generator":
        return operands[:1]
    if opcode == "xor" and operands[0].array.dtype.kind == "unsigned":
        return operands
    if opcode == "custom-call":
        target = instruction.custom_call_target
        return operands if target.startswith("cu_threefry2x32") else ()
    return ()


_PRODUCTS = frozenset({"convolution", "dot", "ragged-dot"})
_OF_POSITIVES = op_table(
    {
        "batch-norm-grad": 3,
        "batch-norm-inference": 4,
        "log": 0,
        "log-plus-one": 0,
        "rsqrt": 0,
        "sqrt": 0,
    },
    otherwise="it is defined for all numbers",
)
_KEEP_SIGN = op_table(
    {
        **{opcode: numbers for opcode, numbers in MOVES.items() if opcode != "negate"},
        "cbrt": (0,),
        "clamp": (1,),
        "dynamic-update-slice": (0, 1),
        "power": (0,),
        "reduce": (0,),
        "rsqrt": (0,),
        "sqrt": (0,),
    },
    otherwise="its sign says nothing of its operands",
)
# (a + a^T) / 2 is how a matrix is made symmetric before it is factored.
_KEEP_DEFINITE = {**MOVES, "add": (0, 1), "divide": (0,), "multiply": (0, 1)}
_FACTORED = re.compile(r"lapack_[sdcz](getrf|potrf|trsm)_ffi")

"""Regions: computations of scalars that reduce, scatter, map and the like apply element by element.

``LIFTED`` evaluates the structural ops of a region on whole arrays at once.  ``combiner`` names
the regions that have a fast NumPy form, and ``is_associative`` says when a fold may be grouped
arbitrarily without changing any bit of its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, product

import numpy as np

from hloopt.interpret.context import (
    Context,
    Evaluator,
    Value,
    array_of,
    leaf_arrays,
    map_arrays,
)
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import ASSOCIATIVE, BITWISE, EXTREMA, PLUMBING, op_table
from hloopt.types import Array, ArrayShape, DType, leaves, parts_of

__all__ = ["LIFTED", "combiner", "is_associative", "liftable", "only_orders", "passed"]


def _identity(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return values[0]


def _bits(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    source = instruction.operands[0].array.dtype
    target = instruction.array.dtype
    raw = np.ascontiguousarray(context.narrow(array_of(values[0]), source))
    return context.round(raw.view(target.numpy).reshape(raw.shape), target)


def _zeros(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return np.zeros((), context.carrier(instruction.array.dtype))


def _map(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return context.apply(instruction.attributes["to_apply"], values)


def _call(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return context.apply(called_computations(instruction)[0], values)


def _conditional(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    branches = list(called_computations(instruction))
    chosen = array_of(values[0])
    if chosen.dtype == np.bool_:
        branch = np.where(chosen, 0, 1)
    else:
        inside = (chosen >= 0) & (chosen < len(branches))
        branch = np.where(inside, chosen, len(branches) - 1)
    dims = np.broadcast_shapes(*[leaf.shape for leaf in leaf_arrays(values)])
    branch = np.broadcast_to(branch, dims)
    result: Value | None = None
    for number, computation in enumerate(branches):
        mask = branch == number
        if number and not mask.any():
            continue
        argument = map_arrays(
            lambda leaf, mask=mask: np.broadcast_to(leaf, dims)[mask], values[number + 1]
        )
        part = context.apply(computation, [argument])
        if result is None:
            result = map_arrays(lambda leaf: np.empty(dims, leaf.dtype), part)
        map_arrays(lambda whole, leaf, mask=mask: _put(whole, mask, leaf), result, part)
    assert result is not None
    return result


def _put(whole: Array, mask: Array, part: Array) -> Array:
    whole[mask] = part
    return whole


def _while(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    condition = instruction.attributes["condition"]
    body = instruction.attributes["body"]
    dims = np.broadcast_shapes(*[leaf.shape for leaf in leaf_arrays(values)])
    state = map_arrays(lambda leaf: np.broadcast_to(leaf, dims).copy(), values[0])
    running = np.ones(dims, np.bool_)
    rounding = context.rounding
    settles = rounding is not None and rounding.active
    for iterations in count():
        if rounding is not None:
            rounding.iteration(iterations)
        active = map_arrays(lambda leaf: leaf[running], state)
        running[running] = array_of(context.apply(condition, [active]))
        if not running.any():
            break
        following = context.apply(body, [map_arrays(lambda leaf: leaf[running], state)])
        map_arrays(lambda whole, leaf: _put(whole, running, leaf), state, following)
    if rounding is not None:
        rounding.active = settles
    return state


LIFTED: Mapping[str, Evaluator] = op_table(
    {
        "bitcast": _bits,
        "bitcast-convert": _bits,
        "broadcast": _identity,
        "call": _call,
        "conditional": _conditional,
        "fusion": _call,
        "iota": _zeros,
        "map": _map,
        "opt-barrier": _identity,
        "reshape": _identity,
        "transpose": _identity,
        "while": _while,
    },
    otherwise="elementwise, or evaluated for one element after another",
)
"""Structural ops of regions, on arrays that stand for many scalars."""


def passed(computation: Computation, arrays: Sequence[Array], context: Context) -> Sequence[Array]:
    """Arrays of elements as a region takes them: its float types may differ from theirs."""
    pairs = zip(arrays, computation.parameters, strict=True)
    return [context.round(array, parameter.array.dtype) for array, parameter in pairs]


def liftable(computation: Computation) -> bool:
    """Whether a region can be evaluated on whole arrays: only scalars, and ops that allow it."""
    return all(_lifts(instruction) for instruction in computation)


def _lifts(instruction: Instruction) -> bool:
    if any(not isinstance(leaf, ArrayShape) or leaf.dims for leaf in leaves(instruction.shape)):
        return False
    opcode = instruction.opcode
    if opcode in PLUMBING or instruction.op.is_elementwise:
        return True
    return opcode in LIFTED and all(map(liftable, called_computations(instruction)))


def combiner(computation: Computation) -> str | None:
    """The name of a region of two scalars that has a fast form, or None.

    An opcode out of add, multiply, maximum, minimum, and, or, xor stands for that op on both
    parameters, where narrow floats may be converted to f32 before and back after it (that rounds as
    the narrow op does); ``first`` and ``second`` return a parameter as it is.  Parameters may be
    exchanged: only the payload of a NaN differs.  The result may be a tuple of one.
    """
    parameters, result = computation.parameters, computation.root
    if result.opcode == "tuple" and len(result.operands) == 1:
        (result,) = result.operands
    if len(parameters) != 2:
        return None
    if not isinstance(result.shape, ArrayShape):
        return None
    dtype = parameters[0].array.dtype
    root = _behind_convert(result, dtype, "f32")
    if root in parameters and root.array.dtype is result.array.dtype:
        return ("first", "second")[parameters.index(root)]
    if root.opcode not in ASSOCIATIVE:
        return None
    operands = [_behind_convert(operand, "f32", dtype) for operand in root.operands]
    if operands not in (parameters, parameters[::-1]):
        return None
    alike = parameters[1].array.dtype is dtype and result.array.dtype is dtype
    return root.opcode if alike else None


def _behind_convert(
    instruction: Instruction, target: DType | str, source: DType | str
) -> Instruction:
    """What a conversion between a narrow float and f32 converts; else the instruction itself."""
    instruction = _behind_copies(instruction)
    if instruction.opcode != "convert":
        return instruction
    inner = _behind_copies(instruction.operands[0])
    kinds = (instruction.array.dtype, inner.array.dtype)
    wanted = tuple(kind.name if isinstance(kind, DType) else kind for kind in (target, source))
    narrow = sum(kind.is_narrow_float for kind in kinds) == 1
    return inner if narrow and (kinds[0].name, kinds[1].name) == wanted else instruction


def _behind_copies(instruction: Instruction) -> Instruction:
    while (
        instruction.opcode == "copy"
        and instruction.operands[0].array.dtype is instruction.array.dtype
    ):
        instruction = instruction.operands[0]
    return instruction


_ORDER_OPS = PLUMBING - {"constant"} | BITWISE | EXTREMA | {"compare", "copy", "select"}
_MOST_TRIPLES = 1 << 21


def is_associative(computation: Computation, context: Context) -> bool:
    """Whether f(f(a, b), c) and f(a, f(b, c)) have the same bits for all a, b and c.

    Decided for regions that only compare and choose (maximum, arg-max pairs ...): what they do
    depends only on the order of their arguments, so trying all triples out of values that
    show every order, NaNs and both zeros among them, proves it.  Every other region is taken as
    not associative.
    """
    key = ("is_associative", computation)
    if key not in context.memory:
        context.memory[key] = only_orders(computation) and _is_associative(computation, context)
    answer: bool = context.memory[key]
    return answer


def only_orders(computation: Computation) -> bool:
    """Whether a region only compares and chooses, and takes its results and as many other values."""
    for instruction in computation:
        opcode = instruction.opcode
        if opcode not in _ORDER_OPS:
            return False
        if opcode in BITWISE and not instruction.array.dtype.is_pred:
            return False
    count = len(computation.parameters) // 2
    shapes = computation.parameter_shapes
    result = computation.root.shape
    results = parts_of(result)
    return len(shapes) == 2 * count and shapes[:count] == shapes[count:] == results


def _is_associative(computation: Computation, context: Context) -> bool:
    count = len(computation.parameters) // 2
    samples = [_orders(parameter.array.dtype) for parameter in computation.parameters[:count]]
    elements = int(np.prod([len(sample) for sample in samples]))
    if any(not len(sample) for sample in samples) or elements**3 > _MOST_TRIPLES:
        return False
    rows = np.array(list(product(*[range(len(sample)) for sample in samples])))
    a, b, c = (
        [context.round(sample, parameter.array.dtype)[rows[:, column]].reshape(place)
         for column, (sample, parameter) in enumerate(zip(samples, computation.parameters,
         strict=False))]
        for place in ((-1, 1, 1), (1, -1, 1), (1, 1, -1))
    )  # fmt: skip
    left = _combine(computation, _combine(computation, a, b, context), c, context)
    right = _combine(computation, a, _combine(computation, b, c, context), context)
    return all(map(_same_bits, left, right))


def _combine(
    computation: Computation, left: list[Array], right: list[Array], context: Context
) -> list[Array]:
    return list(leaf_arrays(context.apply(computation, [*left, *right])))


def _orders(dtype: DType) -> Array:
    """Values that take every order three values of a type can have; empty for unordered types."""
    if dtype.is_pred:
        return np.array([False, True])
    if dtype.is_integer:
        return np.array([0, 1, 2] if dtype.bits > 2 else []).astype(dtype.numpy)
    if dtype.is_float:
        values = np.array([np.nan, -np.nan, -1.0, -0.0, 0.0, 1.0], np.float32)
        return values.astype(dtype.numpy)
    return np.array([])


def _same_bits(left: Array, right: Array) -> bool:
    dims = np.broadcast_shapes(left.shape, right.shape)
    sides = (np.ascontiguousarray(np.broadcast_to(side, dims)) for side in (left, right))
    return len({side.tobytes() for side in sides}) == 1

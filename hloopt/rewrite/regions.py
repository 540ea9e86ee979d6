"""Regions applied element by element, and the same ops on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ops import OPS
from hloopt.ops.traits import EXACT, RANDOM
from hloopt.rewrite import Maker
from hloopt.types import Array, ArrayShape, DType, TupleShape, array

__all__ = [
    "combiner_computation",
    "identity",
    "is_exact",
    "is_identity",
    "is_liftable",
    "lane",
    "lifted",
    "named_combiner",
    "typed",
]

_MARKS = ("sharding", "frontend_attributes")


def named_combiner(computation: Computation) -> str:
    """The opcode that a region of two scalars is, or an empty string.

    Out of add, multiply, maximum, minimum, and, or, xor; narrow floats may be converted to f32 before and
    back after it, which rounds as the narrow op does.
    """
    if any(not isinstance(shape, ArrayShape) for shape in computation.parameter_shapes):
        return ""
    if not isinstance(computation.result_shape, ArrayShape):
        return ""
    name = combiner(computation)
    return "" if name in (None, "first", "second") else str(name)


def combiner_computation(module: Module, opcode: str, element: str) -> Computation:
    """A region that is ``opcode`` of two scalars; the module's own where an earlier call made one."""
    name = f"{opcode}_{element}"
    known = module.computations.get(name)
    shape = array(element)
    if known is not None and named_combiner(known) == opcode and known.result_shape == shape:
        return known
    region = Computation(name)
    operands = tuple(
        build.make(region, "parameter", (), {"parameter_number": at}, shape=shape, name=letter)
        for at, letter in enumerate("ab")
    )
    edit.set_root(region, build.make(region, opcode, operands, {}, shape=shape))
    return edit.add_computation(module, region)


def is_exact(opcode: str, shape: ArrayShape) -> bool:
    """Whether a fold with ``opcode`` over elements of the type has the same bits in any order."""
    kind = shape.dtype.kind
    if opcode in EXACT:
        return kind != "complex"
    return opcode in ("add", "multiply") and kind in ("signed", "unsigned", "pred")


def is_identity(opcode: str, init: Instruction) -> bool:
    """Whether an initial value is known to be the identity of add, multiply, or or xor."""
    literal = init.literal
    if literal is None or literal.array is None:
        return False
    return bool(np.asarray(literal.array == (1 if opcode == "multiply" else 0)))


def identity(opcode: str, dtype: DType) -> Array:
    """The neutral element of an op, as a scalar of the type."""
    value: Any = OPS[opcode].identity
    storage = dtype.numpy
    if value in ("lowest", "highest"):
        top = value == "highest"
        if dtype.is_pred:
            value = top
        elif dtype.is_integer:
            value = dtype.limits[top]
        else:
            value = np.inf if top else -np.inf
            if not np.isinf(np.array(value).astype(storage).astype(np.float64)):
                # Types without infinities make NaN of one.
                limits: Any = ml_dtypes.finfo(storage)  # type: ignore[no-untyped-call]
                value = float(limits.max if top else limits.min)
    elif value == -1:
        value = True if dtype.is_pred else -1 if dtype.kind == "signed" else (1 << dtype.bits) - 1
    return np.array(value).astype(storage)


def is_liftable(computation: Computation, operands: Sequence[Instruction]) -> bool:
    """Whether ``lifted`` can apply a region of scalars to arrays of the operands' element types.

    It can where every instruction is elementwise, a constant whose value is known, or a tuple at the
    root, and none has control edges, a sharding or attributes of a front end.
    """
    types = zip(computation.parameter_shapes, operands, strict=True)
    if any(
        not isinstance(shape, ArrayShape)
        or not isinstance(operand.shape, ArrayShape)
        or shape.dtype is not operand.shape.dtype
        for shape, operand in types
    ):
        return False
    return all(map(_lifts, computation))


def _lifts(instruction: Instruction) -> bool:
    if instruction.has_control_edges:
        return False
    if not instruction.is_understood or any(mark in instruction.attributes for mark in _MARKS):
        return False
    if isinstance(instruction.shape, TupleShape):
        return instruction.opcode == "tuple" and instruction.is_root
    if not isinstance(instruction.shape, ArrayShape) or instruction.shape.dims:
        return False
    if instruction.opcode == "constant":
        return instruction.literal is not None and instruction.literal.array is not None
    if instruction.opcode in RANDOM:
        return False
    return instruction.opcode == "parameter" or instruction.op.is_elementwise


def lifted(
    computation: Computation,
    operands: Sequence[Instruction],
    like: ArrayShape,
    maker: Maker,
) -> tuple[Instruction, ...]:
    """The results of a liftable region, applied at each index of ``operands``.

    The operands have the dimensions of ``like``; new arrays have these and its layout.
    """
    values: dict[Instruction, Instruction] = dict(
        zip(computation.parameters, operands, strict=True)
    )
    for instruction in computation:
        if instruction.opcode == "parameter" or instruction.is_tuple:
            continue
        shape = typed(like, instruction.array)
        if instruction.opcode == "constant":
            single = maker.make("constant", shape=instruction.array, **instruction.attributes)
            values[instruction] = maker.fill(shape, single)
            continue
        inputs = tuple(values[operand] for operand in instruction.operands)
        values[instruction] = maker.make(
            instruction.opcode, *inputs, shape=shape, **instruction.attributes
        )
    root = computation.root
    results = root.operands if root.is_tuple else (root,)
    return tuple(values[result] for result in results)


def typed(like: ArrayShape, element: ArrayShape) -> ArrayShape:
    """The dimensions and layout of one shape with the element type of another."""
    if like.dtype is element.dtype:
        return like
    layout = like.layout
    if layout is not None and layout.element_bits:
        layout = replace(layout, suffix="", element_bits=0)
    return replace(like, dtype=element.dtype, layout=layout)


def lane(computation: Computation, number: int) -> Computation | None:
    """The region that computes one result of a region of ``n`` accumulated and ``n`` new values.

    None where that result depends on other values than its own two.  The new region is in no module yet.
    """
    root = computation.root
    count = len(computation.parameters) // 2
    if root.opcode != "tuple" or len(root.operands) != count:
        return None
    own = (computation.parameters[number], computation.parameters[count + number])
    needed: dict[Instruction, None] = {}
    pending = [root.operands[number]]
    while pending:
        instruction = pending.pop()
        if instruction in needed:
            continue
        if instruction.opcode == "parameter" and instruction not in own:
            return None
        if instruction.has_control_edges:
            return None
        needed[instruction] = None
        pending.extend(instruction.operands)
    region = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for at, parameter in enumerate(own):
        copies[parameter] = build.clone(parameter, region, ())
        edit.set_attribute(copies[parameter], "parameter_number", at)
    for instruction in computation:
        if instruction in needed and instruction not in copies:
            operands = tuple(copies[operand] for operand in instruction.operands)
            copies[instruction] = build.clone(instruction, region, operands)
    edit.set_root(region, copies[root.operands[number]])
    return region

"""Instructions with bounded dynamic dimensions: how they are evaluated, and which are refused.

Most evaluators take sizes from their operands and need nothing but operands of one size (``sizes.ties``);
``bounded`` has the others.  An op to which XLA gives sizes that contradict its definition, or none at all, is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloopt.interpret.context import Check, Context, Evaluator, Value
from hloopt.interpret.control import branches
from hloopt.interpret.reshaping import ambiguous
from hloopt.interpret.sizes import aligned, checked, drops_marks, is_dynamic, marks, ties
from hloopt.ir import Instruction
from hloopt.ir.walk import called_computations
from hloopt.ops.custom import MARKERS
from hloopt.ops.traits import (
    ALL,
    COLLECTIVE,
    CONTRACTING,
    DEVICE_NUMBERS,
    FORWARDING,
    LIBRARY,
    op_table,
)
from hloopt.types import (
    UNBOUNDED,
    ArrayShape,
    ConvNumbers,
    ScatterDims,
    Shape,
    TupleShape,
    leaves,
)

__all__ = ["evaluator", "obstacle"]


def evaluator(instruction: Instruction, evaluate: Evaluator) -> Evaluator:
    """What evaluates an instruction: ``evaluate`` itself, unless a dimension is dynamic."""
    if not is_dynamic(instruction) or instruction.op.family == "async":
        return evaluate
    from hloopt.interpret import bounded

    run = bounded.EVALUATORS.get(instruction.opcode, evaluate)
    guard = bounded.GUARDS.get(instruction.opcode)
    tied = ties(instruction)

    def sized(_: Instruction, values: tuple[Value, ...], context: Context) -> Value:
        operands = tuple(aligned(instruction, tied, values)) if tied else values
        if guard is not None:
            operands = guard(instruction, operands)
        return checked(instruction, instruction.shape, run(instruction, operands, context))

    return sized


def obstacle(instruction: Instruction) -> str | None:
    """Why the dynamic dimensions of an instruction cannot be evaluated, or None."""
    if not is_dynamic(instruction):
        return None
    shapes = [instruction.shape, *(operand.shape for operand in instruction.operands)]
    for shape in shapes:
        if any(isinstance(leaf, ArrayShape) and UNBOUNDED in leaf.dims for leaf in leaves(shape)):
            return f"unbounded dimensions ({shape}) have no evaluation"
    opcode = instruction.opcode
    if opcode in _NOT_EVALUATED or opcode not in ALL:
        dynamic = next(shape for shape in shapes if shape.is_dynamic)
        return f"{opcode} of dynamic dimensions ({dynamic}) has no evaluation"
    for source, target in _passed(instruction):
        if drops_marks(source, target):
            return f"{source} is passed on as {target}, whose dimensions are not dynamic"
    check = _CHECKS.get(opcode)
    return check(instruction) if check is not None else None


# Evaluators of all others take sizes from the operands, or are in ``bounded``.
_NOT_EVALUATED = (
    COLLECTIVE - {"all-reduce", "all-reduce-done", "all-reduce-start"}
    | DEVICE_NUMBERS
    | CONTRACTING - {"convolution", "dot"}
    | LIBRARY - {"cholesky", "triangular-solve"}
    | {"bitcast", "rng-get-and-update-state", "scan"}
)


def _passed(instruction: Instruction) -> Iterator[tuple[Shape, Shape]]:
    """Shapes of values and those under which they are passed on as they are."""
    opcode, shape = instruction.opcode, instruction.shape
    given = [operand.shape for operand in instruction.operands]
    if opcode == "get-tuple-element":
        assert isinstance(given[0], TupleShape)
        yield given[0].elements[instruction.attributes["index"]], shape
    elif opcode == "tuple":
        assert isinstance(shape, TupleShape)
        yield from zip(given, shape.elements, strict=True)
    elif opcode in FORWARDING:
        yield given[0], shape
    elif opcode in ("call", "fusion"):
        (called,) = called_computations(instruction)
        yield from zip(given, called.parameter_shapes, strict=True)
        yield called.result_shape, shape
    elif opcode == "conditional":
        for argument, branch in zip(given[1:], branches(instruction), strict=True):
            yield argument, branch.parameter_shapes[0]
            yield branch.result_shape, shape
    elif opcode == "while":
        yield given[0], shape
        body = instruction.attributes["body"]
        yield body.result_shape, shape
        for called in (instruction.attributes["condition"], body):
            yield shape, called.parameter_shapes[0]


def _check_reduce_window(instruction: Instruction) -> str | None:
    shape = instruction.operands[0].array
    window = instruction.window.dims
    for dimension, (mark, entry) in enumerate(zip(marks(shape), window, strict=True)):
        if mark and (entry.pad_low or entry.pad_high or entry.base_dilation != 1):
            return (
                f"the dynamic dimension {dimension} of {shape} is padded or dilated, which XLA leaves "
                "out of the result's size"
            )
    return None


def _check_convolution(instruction: Instruction) -> str | None:
    lhs, rhs = (operand.array for operand in instruction.operands[:2])
    numbers = ConvNumbers.of(instruction.attributes)
    dims = numbers.labels
    if (numbers.feature_groups > 1 and marks(lhs)[dims.input_feature]) or (
        numbers.batch_groups > 1 and marks(lhs)[dims.input_batch]
    ):
        return f"a dynamic dimension of {lhs} is divided into groups"
    if any(mark and dim != dims.kernel_input_feature for dim, mark in enumerate(marks(rhs))):
        return f"the kernel {rhs} has other dynamic dimensions than the input features"
    return None


def _check_scatter(instruction: Instruction) -> str | None:
    target, updates = instruction.operands[0].array, instruction.operands[-1].array
    dims = ScatterDims.of(instruction.attributes)
    for dim, axis in dims.windows(target.rank).items():
        if marks(updates)[axis] and updates.dims[axis] != target.dims[dim]:
            return f"windows of a dynamic size that are a part of dimension {dim} of {target}"
    return None


def _check_custom_call(instruction: Instruction) -> str | None:
    from hloopt.interpret import plugins

    target = instruction.custom_call_target
    if target in MARKERS | {"PadToStatic", "SliceToDynamic"} or plugins.named(target) is not None:
        return None
    return f"custom call to {target} of dynamic dimensions has no evaluation"


_CHECKS: Mapping[str, Check] = op_table(
    {
        "convolution": _check_convolution,
        "custom-call": _check_custom_call,
        "reduce-window": _check_reduce_window,
        "reshape": ambiguous,
        "scatter": _check_scatter,
    },
    otherwise="dynamic operands are as good as others",
)

"""Custom calls by target: markers that pass a value on, ``TopK``, Threefry, routines of LAPACK, cuBLAS and
cuDNN.

What the user supplies (``plugins``) comes first.  Any other target is refused before anything runs; what it
computes is known to its library alone.
"""

from __future__ import annotations

from hloopt.interpret import attention, cublas, cudnn, gpu_random, lapack, plugins, solvers
from hloopt.interpret.bounded import (
    check_pad_to_static,
    check_slice_to_dynamic,
    pad_to_static,
    slice_to_dynamic,
)
from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.library_calls import guarded
from hloopt.interpret.shards import is_boundary, shards
from hloopt.interpret.sort import topk
from hloopt.ir import Instruction
from hloopt.ops.custom import MARKERS
from hloopt.types import ArrayShape, BufferShape, Shape, TupleShape, compatible, leaves

__all__ = ["CHECKS", "CUSTOM_CALLS", "CUSTOM_CHECKS", "EVALUATORS"]


def _identity(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return operands[0] if _is_passed_on(instruction) else operands


def _is_passed_on(instruction: Instruction) -> bool:
    """Whether the result is the one operand, a tuple perhaps, and not the tuple of the operands."""
    given = tuple(_contents(operand.shape) for operand in instruction.operands)
    return len(given) == 1 and compatible(given[0], _contents(instruction.shape))


def _check_identity(instruction: Instruction) -> str | None:
    given = tuple(_contents(operand.shape) for operand in instruction.operands)
    shape = instruction.shape
    result = _contents(shape)
    if _is_passed_on(instruction):
        return None
    if isinstance(result, TupleShape) and compatible(TupleShape(given), result):
        return None
    operands = ", ".join(str(operand.shape) for operand in instruction.operands)
    return (
        f"{instruction.custom_call_target} of ({operands}) to {shape}; only one participant is run"
    )


def _contents(shape: Shape) -> Shape:
    return shape.element if isinstance(shape, BufferShape) else shape


def _topk(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The largest elements: XLA's target does not use its comparator."""
    values, _ = leaves(instruction.shape)
    assert isinstance(values, ArrayShape)
    array = array_of(context.materialize(operands[0], instruction.operands[0].shape))
    return topk(array, values.dims[-1])


def _check_topk(instruction: Instruction) -> str | None:
    shape = instruction.shape
    parts = shape.elements if isinstance(shape, TupleShape) else ()
    dims = [_dims(operand.shape) for operand in instruction.operands]
    dims += [_dims(part) for part in parts]
    if len(instruction.operands) == 1 and len(parts) == 2 and dims[1] == dims[2]:
        operand, values = dims[0], dims[1]
        if operand and values and operand[:-1] == values[:-1] and operand[-1] >= values[-1]:
            return None
    result = f"the result {shape}"
    return f"{instruction.custom_call_target} with {result} is not (values, indices) of one operand"


def _dims(shape: Shape) -> tuple[int, ...]:
    return shape.dims if isinstance(shape, ArrayShape) else ()


def _nothing(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return ()


def _check_nothing(instruction: Instruction) -> str | None:
    if compatible(instruction.shape, TupleShape(())):
        return None
    return f"{instruction.custom_call_target} with the result {instruction.shape}, which is not ()"


CUSTOM_CALLS: dict[str, Evaluator] = {
    **dict.fromkeys(MARKERS, _identity),
    "PadToStatic": pad_to_static,
    "SliceToDynamic": slice_to_dynamic,
    "TopK": _topk,
    "__gpu$TopK": _topk,
    "xla.sdy.ShardingGroup": _nothing,
    **{
        target: guarded(evaluate)
        for library in (attention, cublas, cudnn, gpu_random, lapack, solvers)
        for target, evaluate in library.EVALUATORS.items()
    },
}
"""What each target computes."""

CUSTOM_CHECKS: dict[str, Check] = {
    **dict.fromkeys(MARKERS, _check_identity),
    "PadToStatic": check_pad_to_static,
    "SliceToDynamic": check_slice_to_dynamic,
    "TopK": _check_topk,
    "__gpu$TopK": _check_topk,
    "xla.sdy.ShardingGroup": _check_nothing,
    **attention.CHECKS,
    **cublas.CHECKS,
    **cudnn.CHECKS,
    **gpu_random.CHECKS,
    **lapack.CHECKS,
    **solvers.CHECKS,
}
"""Why a call of a known target cannot be evaluated, as in ``CHECKS``."""

_LIBRARIES = {
    "__cublas": "cuBLAS",
    "__cudnn": "cuDNN",
    "__cusolver": "cuSOLVER",
    "__cusparse": "cuSPARSE",
}


def _custom_call(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    function = plugins.named(instruction.custom_call_target)
    if function is not None:
        return plugins.evaluate(function, instruction, operands, context)
    if context.participant.count > 1 and is_boundary(instruction):
        return shards(instruction, operands, context)
    evaluate = CUSTOM_CALLS.get(instruction.custom_call_target)
    if evaluate is None:
        raise context.unsupported(instruction, _unknown(instruction.custom_call_target))
    return evaluate(instruction, operands, context)


def _check_custom_call(instruction: Instruction) -> str | None:
    if plugins.named(instruction.custom_call_target) is not None:
        return None
    check = CUSTOM_CHECKS.get(instruction.custom_call_target)
    return _unknown(instruction.custom_call_target) if check is None else check(instruction)


def _unknown(target: str) -> str:
    library = next((name for key, name in _LIBRARIES.items() if target.startswith(key)), None)
    if "python" in target and target.endswith("_callback"):
        return f"{target} calls Python, and its results are used; it can be run only where they are not"
    what = target if library is None else f"{target}, a routine of {library},"
    return f"custom call to {what} has no evaluation; --custom-call {target}=module:function gives it one"


EVALUATORS: dict[str, Evaluator] = {"custom-call": _custom_call}

CHECKS: dict[str, Check] = {"custom-call": _check_custom_call}

"""Asynchronous ops: async-start/-update/-done and copy-start/-done.

The state between start and done is a tuple: operands, result, and what the device adds.
"""

from __future__ import annotations

from hloopt.ops.attributes import EXECUTION_THREAD, OUTPUT_ALIASING
from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import (
    U32,
    declared,
    error,
    like,
    scalar_of,
    signature,
    tuple_of,
    tuple_operand,
)
from hloopt.types import Shape, TupleShape, compatible

__all__ = ["ROWS"]


def _state(args: InferArgs, shape: Shape) -> tuple[TupleShape, Shape]:
    """Operands and result inside an asynchronous state."""
    if isinstance(shape, TupleShape) and len(shape.elements) >= 2:
        operands, result = shape.elements[:2]
        if isinstance(operands, TupleShape):
            return operands, result
    raise error(args, f"{shape} is not a state ((operands), result, ...)")


def _async_start(args: InferArgs) -> Shape:
    """The declared state, which holds the operands' shapes and the computation's result shape.

    The computation's last parameters may be left for an ``async-update`` to bind.
    """
    shape = declared(args)
    called = signature(args, "calls")
    operands, result = _state(args, shape)
    if not compatible(operands, TupleShape(args.operands)):
        raise error(args, f"the state's operands are {operands}, given {TupleShape(args.operands)}")
    taken = called.parameters[: len(args.operands)]
    if not compatible(TupleShape(taken), TupleShape(args.operands)):
        raise error(
            args,
            f"calls= takes {TupleShape(called.parameters)}, {TupleShape(args.operands)} is passed",
        )
    if not compatible(result, called.result):
        raise error(args, f"the state's result is {result}, calls= returns {called.result}")
    return shape


def _async_update(args: InferArgs) -> Shape:
    """The state; further operands are bound to the parameters that were left open."""
    state = tuple_operand(args, 0)
    bound, _ = _state(args, state)
    operands = TupleShape((*bound.elements, *args.operands[1:]))
    return like(args, TupleShape((operands, *state.elements[1:])))


def _async_done(args: InferArgs) -> Shape:
    """The result inside the state."""
    return like(args, _state(args, args.operands[0])[1])


def _copy_start(args: InferArgs) -> Shape:
    """The copy, the operand and a context."""
    operand = args.operands[0]
    return tuple_of(args, (operand, operand, scalar_of(U32)))


def _copy_done(args: InferArgs) -> Shape:
    """The copy."""
    state = tuple_operand(args, 0)
    if len(state.elements) != 3:
        raise error(args, f"operand 0 has shape {state}, not (copy, operand, context)")
    made, source = state.elements[:2]
    if not compatible(made, source):
        raise error(args, f"operand 0 has shape {state}: a copy of {source} is not {made}")
    return like(args, state.elements[0])


_row = family("async")
_CALLS = Kind.COMPUTATION("calls")

ROWS = (
    _row(
        "async-done",
        1,
        _async_done,
        _CALLS,
        EXECUTION_THREAD,
        phase="done",
        doc="wait for an asynchronous computation; its result",
    ),
    _row(
        "async-start",
        (0, MANY),
        _async_start,
        EXECUTION_THREAD,
        OUTPUT_ALIASING,
        Kind.COMPUTATION("calls", required=True),
        inferable=False,
        calls="async",
        phase="start",
        doc="start a computation and go on",
    ),
    _row(
        "async-update",
        (1, MANY),
        _async_update,
        _CALLS,
        EXECUTION_THREAD,
        phase="update",
        doc="a step of an asynchronous computation",
    ),
    _row("copy-done", 1, _copy_done, phase="done", cheap="always", doc="wait for a copy; the copy"),
    _row(
        "copy-start",
        1,
        _copy_start,
        Kind.INT("cross_program_prefetch_index"),
        phase="start",
        cheap="always",
        doc="start a copy and go on",
    ),
)

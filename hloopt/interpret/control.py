"""Control flow: call, fusion, while, conditional, and asynchronous calls.

The value of an ``async-start`` is what its shape says: (operands, result, context words ...); the
computation runs as soon as it has all its operands, which no program can distinguish from any other moment.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloopt.errors import EvaluationError
from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.failures import failure
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import SEQUENTIAL, WRAPPING, op_table
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = [
    "CHECKS",
    "EVALUATORS",
    "branch_number",
    "branches",
    "check_progress",
    "endless",
    "zeros",
]


def branches(instruction: Instruction) -> tuple[Computation, ...]:
    """The computations of a conditional by number; of a predicated one, the true branch is 0."""
    attributes = instruction.attributes
    if "branch_computations" in attributes:
        computations: tuple[Computation, ...] = attributes["branch_computations"]
        return computations
    return attributes["true_computation"], attributes["false_computation"]


def branch_number(selector: Value, count: int) -> int:
    """Which branch runs: true is 0, false is 1, and an index out of range means the last."""
    chosen = array_of(selector)
    if chosen.dtype == np.bool_:
        return 0 if chosen else 1
    index = int(chosen)
    return index if 0 <= index < count else count - 1


def zeros(shape: Shape, context: Context) -> Value:
    """A value of ``shape`` that is zero everywhere: context words, which are not read."""
    if isinstance(shape, TupleShape):
        return tuple(zeros(element, context) for element in shape.elements)
    if not isinstance(shape, ArrayShape):
        shape = shape.element
    return np.zeros(shape.dims, context.carrier(shape.dtype))


def _call(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return context.call(instruction.attributes["to_apply"], operands)


def _fusion(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return context.call(instruction.attributes["calls"], operands)


def _while(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    condition, body = instruction.attributes["condition"], instruction.attributes["body"]
    state = context.materialize(operands[0], instruction.shape)
    iterations = 0
    rounding = context.rounding
    settles = rounding is not None and rounding.active
    progress = context.progress
    outer = progress is not None and not progress.in_loop
    count = progress.count_of(instruction) if progress is not None and outer else None
    while True:
        again = array_of(context.call(condition, [state]))
        if context.bounds is not None:
            context.bounds.decide(again)
        if not again:
            break
        before = state
        state = context.materialize(context.call(body, [state]), instruction.shape)
        iterations += 1
        if iterations & (iterations - 1) == 0 and _same_bits(before, state):
            check_progress(instruction, iterations, alone=context.participant.count == 1)
        if rounding is not None:
            rounding.iteration(iterations)
        if progress is not None:
            progress.iteration(iterations, count) if outer else progress.check()
    if rounding is not None:
        rounding.active = settles
    if progress is not None and outer:
        progress.leave()
    return state


def check_progress(instruction: Instruction, iterations: int, *, alone: bool) -> None:
    """Raise ``EvaluationError`` where after an iteration that has changed nothing no other will end the loop.

    Executors compare a loop's state at iterations that are powers of two, where it costs next to nothing.
    ``alone`` says that there are no other participants.
    """
    if error := endless(instruction, str(iterations), alone=alone):
        raise error


def endless(instruction: Instruction, iterations: str, *, alone: bool) -> EvaluationError | None:
    """What ``check_progress`` raises of a loop after so many iterations; None where it never does."""
    if _has_input(instruction, alone):
        return None
    text = f"the loop does not end: iteration {iterations} has not changed its state"
    return failure(instruction, text)


def _has_input(instruction: Instruction, alone: bool) -> bool:
    """Whether an iteration may receive other values than its state: from the host, chance, or participants.

    What a loop only sends to the host (``outfeed``, ``send``) does not come back to it.
    """
    pending, seen = [instruction], set[Computation]()
    while pending:
        one = pending.pop()
        if one.opcode not in _SENT and (
            one.op.side_effect
            or (one.op.family == "collective" and not alone)
            or one.attributes.get("custom_call_has_side_effect")
        ):
            return True
        for computation in called_computations(one):
            if computation not in seen:
                seen.add(computation)
                pending.extend(computation)
    return False


_SENT = frozenset({"outfeed", "send", "send-done"})


def _same_bits(left: Value, right: Value) -> bool:
    if left is right:
        return True
    if isinstance(left, tuple) or isinstance(right, tuple):
        return all(map(_same_bits, left, right))
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def _conditional(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    computations = branches(instruction)
    number = branch_number(operands[0], len(computations))
    argument = instruction.operands[number + 1]
    value = context.materialize(operands[number + 1], argument.shape)
    return context.materialize(context.call(computations[number], [value]), instruction.shape)


def _async_start(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    words = [zeros(word, context) for word in shape.elements[2:]]
    return _bound(instruction, operands, (zeros(shape.elements[1], context), *words), context)


def _async_update(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    state, *more = operands
    assert isinstance(state, tuple)
    before, *rest = state
    assert isinstance(before, tuple)
    if not more:
        return state
    return _bound(_async_chain(instruction)[0], (*before, *more), tuple(rest), context)


def _bound(
    start: Instruction, operands: tuple[Value, ...], rest: tuple[Value, ...], context: Context
) -> Value:
    """The state with these operands; the computation runs when it has all of them."""
    computation: Computation = start.attributes["calls"]
    if len(operands) == len(computation.parameters):
        rest = (context.call(computation, operands), *rest[1:])
    return (operands, *rest)


def _async_chain(instruction: Instruction) -> list[Instruction]:
    """What leads to an asynchronous instruction, from its async-start."""
    chain = [instruction]
    while chain[-1].opcode in ("async-done", "async-update"):
        chain.append(chain[-1].operands[0])
    return chain[::-1]


def _check_async_start(instruction: Instruction) -> str | None:
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
        return f"the shape {shape} is not (operands, result, context)"
    return None


def _check_async_done(instruction: Instruction) -> str | None:
    start, *updates = _async_chain(instruction)[:-1]
    if start.opcode != "async-start":
        return f"ends {start.name}, which is {start.opcode}, not async-start"
    given = len(start.operands) + sum(len(update.operands) - 1 for update in updates)
    expected = len(start.attributes["calls"].parameters)
    if given != expected:
        return f"{given} operands for a computation of {expected} parameters"
    return None


def _async_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    started = operands[0]
    assert isinstance(started, tuple)
    return started[1]


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "async-done": _async_done,
        "async-start": _async_start,
        "async-update": _async_update,
        "call": _call,
        "conditional": _conditional,
        "fusion": _fusion,
        "while": _while,
    },
    SEQUENTIAL | WRAPPING,
)

CHECKS: dict[str, Check] = {"async-done": _check_async_done, "async-start": _check_async_start}

"""How much code a thread's trip comes to, and how many elements are written out one by one so that it fits."""

from __future__ import annotations

from typing import Any, Final

from hloopt.analysis.code_size import MOST_CODE, executed_instructions
from hloopt.analysis.parallel_loop.edges import leaf_count
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.analysis.parallel_loop.thread_plan import IN_LOOPS, MOVING, UNROLLED, ThreadPlan
from hloopt.ir import Computation, Instruction

__all__ = ["code_problem", "thread_plan", "too_long"]

_LINE_BYTES: Final = 66
"""Of a line, and its share of the lines around it."""

_LOOP_LINES: Final = 5
_WINDOW_LINES: Final = 30
"""Of a loop over a window, with tests for its edges, and what is computed again in it where nothing is kept."""

_FREE: Final = MOVING | {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "copy",
    "opt-barrier",
}


def thread_plan(parallel: ParallelLoop) -> ThreadPlan:
    """What a thread keeps; of code that would be too long, fewer elements are variables, more are in arrays."""
    unrolled = UNROLLED
    while True:
        plan = ThreadPlan(parallel, unrolled)
        if unrolled == 1 or not code_problem(plan):
            return plan
        unrolled //= 2


def code_problem(plan: ThreadPlan) -> dict[str, Any]:
    """What a way lacks whose code would be too long, as fields of ``Way``; nothing where it is not."""
    return too_long(plan.parallel.loop, _code_bytes(plan))


def too_long(loop: Instruction, size: int) -> dict[str, Any]:
    """As ``code_problem``, for code of so many bytes."""
    most = MOST_CODE.of(executed_instructions(loop))
    if size <= most:
        return {}
    words = f"its code would have {size} bytes, {most} at most for a body of this length"
    return {"problem": words, "code": "code-size", "limit": most, "actual": size}


def _code_bytes(plan: ThreadPlan) -> int:
    """Bytes of a trip, about: each element that is written out, each product or element it takes in."""
    lines = 0
    body: Computation = plan.parallel.loop.attributes["body"]
    for instruction in body:
        if instruction.opcode in _FREE:
            continue
        count = max(plan.local((instruction, leaf)) for leaf in range(leaf_count(instruction)))
        taken = plan.folded(instruction)
        if instruction.opcode in IN_LOOPS:
            each = _WINDOW_LINES if count <= plan.unrolled else 2 * _LOOP_LINES
        elif taken > plan.unrolled:
            each = _LOOP_LINES
        else:
            each = 1 if taken == 1 else 1 + 2 * taken
        lines += each * count if count <= plan.unrolled else each + 2
    return lines * _LINE_BYTES + sum(map(_code_bytes, plan.inner))

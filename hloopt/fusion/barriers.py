"""What no kernel spans: custom calls, and the iterations of a loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import FusionPlan, Refusal
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction
from hloopt.types import TupleShape

__all__ = ["FusionBarrier", "decide_call", "find_barriers", "note_barriers"]


@dataclass(frozen=True, slots=True)
class FusionBarrier:
    """Instructions at which kernels end for one reason: custom calls of a target, or loops.

    ``code`` and ``reason`` are those of the refusals, ``names`` those of the instructions.
    """

    code: str
    reason: str
    names: tuple[str, ...]


def note_barriers(recorder: FusionRecorder, computations: Iterable[Computation]) -> None:
    """Record loops, each once, and custom calls that no refused pair names yet.

    What a body computes for the next iteration goes through memory: no strategy has a kernel for more than
    one iteration.  The refusal's producer is the root of the body, its consumer the while.
    """
    named = {_call_of(refusal) for refusal in recorder.refusals()}
    for computation in computations:
        for instruction in computation:
            opcode = instruction.opcode
            if opcode == "while":
                _note_loop(recorder, instruction)
            elif opcode == "custom-call" and (computation.name, instruction.name) not in named:
                recorder.refused(instruction, None, decide_call(instruction))


def decide_call(call: Instruction) -> Decision:
    """Why a custom call is part of no kernel but its own."""
    return forbid("custom-call", words=call.custom_call_target)


def find_barriers(
    plans: Iterable[FusionPlan], alive: Collection[tuple[str, str]]
) -> list[FusionBarrier]:
    """The barriers recorded in plans, custom calls first.

    ``alive`` has computation and name of what is still there.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    names = {name for _, name in alive}
    for plan in plans:
        for refusal in plan.refusals:
            code, reason = refusal.decision.code, refusal.decision.reason
            if code == "loop-carried" and refusal.consumer in names:
                found.setdefault((code, reason), {})[refusal.consumer] = None
            elif code == "custom-call" and _call_of(refusal) in alive:
                found.setdefault((code, reason), {})[_call_of(refusal)[1]] = None
    rows = [FusionBarrier(code, reason, tuple(calls)) for (code, reason), calls in found.items()]
    return sorted(rows, key=lambda row: row.code)


def _call_of(refusal: Refusal) -> tuple[str, str]:
    """The custom call that a refusal is about, where it is about one: the producer before the consumer."""
    if refusal.decision.code != "custom-call":
        return "", ""
    is_producer = refusal.producer_opcode == "custom-call"
    return refusal.computation, refusal.producer if is_producer else refusal.consumer


def _note_loop(recorder: FusionRecorder, loop: Instruction) -> None:
    body = loop.body
    shape = body.root.shape
    words = f"a tuple of {len(shape.elements)}" if isinstance(shape, TupleShape) else "one array"
    recorder.refused(body.root, loop, forbid("loop-carried", words=words))

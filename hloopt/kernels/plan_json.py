"""Plans as JSON: complete, to be drawn, counted and compared.

Nothing reads one back: a lock file says which kernels are to run, and a plan follows from them and the module.

Instructions are named ``computation/instruction``; a buffer is ``[allocation, offset, bytes, shape]`` with the
number of the allocation in the list, a place of a spec ``["operand", 0]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import (
    Allocation,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanBuffer,
    PlanStep,
)
from hloopt.kernels.spec import Copy, KernelPart, KernelSpec, Launch, LeafPlace

__all__ = ["VERSION", "dump_plan"]

VERSION: Final = 1
"""Raised when a field changes its meaning or goes away."""

FORMAT: Final = "hloopt plan"


def dump_plan(plan: Plan, module: Module) -> str:
    """A plan of a module as JSON text, one step a line."""
    writer = _Writer(plan)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "module": module.name,
        "peak": plan.peak,
        "live_bound": plan.live_bound,
        "allocations": [_allocation(entry) for entry in plan.allocations],
        "parameters": [None if one is None else writer.buffer(one) for one in plan.parameters],
        "results": writer.buffers(plan.results),
    }
    lines = [f'"{name}": {_line(value)}' for name, value in head.items()]
    steps = ",\n".join(_line(writer.step(step)) for step in plan.steps)
    return "{" + ",\n".join([*lines, f'"steps": [\n{steps}\n]']) + "}\n"


def _line(value: object) -> str:
    return json.dumps(value, separators=(", ", ": "), ensure_ascii=True)


def _name(instruction: Instruction) -> str:
    assert instruction.computation is not None
    return f"{instruction.computation.name}/{instruction.name}"


def _allocation(allocation: Allocation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": allocation.kind,
        "number": allocation.number,
        "bytes": allocation.byte_size,
    }
    if allocation.instruction is not None:
        found["constant"] = _name(allocation.instruction)
        found["index"] = list(allocation.index)
    return found


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.numbers = {entry: number for number, entry in enumerate(plan.allocations)}

    def buffer(self, buffer: PlanBuffer) -> list[Any]:
        number = self.numbers[buffer.allocation]
        return [number, buffer.offset, buffer.byte_size, str(buffer.shape)]

    def buffers(self, buffers: Iterable[PlanBuffer]) -> list[Any]:
        return list(map(self.buffer, buffers))

    def step(self, step: PlanStep) -> dict[str, Any]:
        found: dict[str, Any] = {"instruction": _name(step.instruction)}
        if isinstance(step, KernelStep):
            return {"step": "kernel", **found, **self.kernel(step)}
        if isinstance(step, HostStep):
            return {
                "step": "host",
                **found,
                "operands": self.buffers(step.operands),
                "results": self.buffers(step.results),
            }
        if isinstance(step, ConditionalStep):
            return {
                "step": "conditional",
                **found,
                "selector": self.buffer(step.selector),
                "branches": [list(map(self.step, branch)) for branch in step.branches],
            }
        predicate = None if step.predicate is None else self.buffer(step.predicate)
        return {
            "step": "while",
            **found,
            "trips": step.iterations,
            "state": self.buffers(step.state),
            "condition": list(map(self.step, step.condition)),
            "predicate": predicate,
            "body": list(map(self.step, step.body)),
        }

    def kernel(self, step: KernelStep) -> dict[str, Any]:
        return {
            "function": step.function,
            "spec": _spec(step.spec),
            "operands": self.buffers(step.operands),
            "results": self.buffers(step.results),
            "scratch": self.buffers(step.scratch),
            "inlined": list(step.inlined),
            "before": list(map(self.move, step.before)),
            "after": list(map(self.move, step.after)),
        }

    def move(self, move: Move) -> list[Any]:
        return [self.buffer(move.source), self.buffer(move.target)]


def _spec(spec: KernelSpec) -> dict[str, Any]:
    return {
        "kernel": spec.kernel,
        "tile": dict(spec.tile),
        "steps": list(map(_spec_step, spec.steps)),
        "scratch": [[entry.dtype, entry.elements] for entry in spec.scratch],
        "in_place": [list(pair) for pair in spec.in_place],
        "overwrites": [list(pair) for pair in spec.overwrites],
        "is_atomic": spec.is_atomic,
        "library": spec.library,
    }


def _spec_step(step: KernelPart) -> dict[str, Any]:
    if isinstance(step, Launch):
        given = {"shared": step.shared} if step.shared else {}
        return {
            "launch": step.function,
            "grid": list(step.grid),
            "block": list(step.block),
            "arguments": [
                [*_place(argument.place), argument.role, argument.partial]
                for argument in step.arguments
            ],
            "scalars": list(step.scalars),
            **given,
        }
    if isinstance(step, Copy):
        return {"copy": [_place(step.source), _place(step.target)]}
    return {"fill": _place(step.target), "value": step.value}


def _place(place: LeafPlace) -> list[Any]:
    return [place.kind, place.number]

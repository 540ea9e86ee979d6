"""Plans as JSON: complete, so that a plan can be walked again without being made again.

Instructions are named ``computation/instruction``; a buffer is ``[allocation, offset, bytes, shape]`` with the
number of the allocation in the list.  ``load_plan`` takes a text for the module it was made of, and checks
all that the module can tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import (
    Allocation,
    Buffer,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanStep,
)
from hloopt.kernels.plan_reader import FORMAT, VERSION, PlanReader
from hloopt.kernels.spec_json import spec_content

__all__ = ["VERSION", "dump_plan", "load_plan"]


# ---- writing ------------------------------------------------------------------------------------


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

    def buffer(self, buffer: Buffer) -> list[Any]:
        number = self.numbers[buffer.allocation]
        return [number, buffer.offset, buffer.byte_size, str(buffer.shape)]

    def buffers(self, buffers: Iterable[Buffer]) -> list[Any]:
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
            "trips": step.trips,
            "state": self.buffers(step.state),
            "condition": list(map(self.step, step.condition)),
            "predicate": predicate,
            "body": list(map(self.step, step.body)),
        }

    def kernel(self, step: KernelStep) -> dict[str, Any]:
        return {
            "function": step.function,
            "spec": spec_content(step.spec),
            "operands": self.buffers(step.operands),
            "results": self.buffers(step.results),
            "scratch": self.buffers(step.scratch),
            "inlined": list(step.inlined),
            "before": list(map(self.move, step.before)),
            "after": list(map(self.move, step.after)),
        }

    def move(self, move: Move) -> list[Any]:
        return [self.buffer(move.source), self.buffer(move.target)]


# ---- reading ------------------------------------------------------------------------------------


def load_plan(text: str, module: Module) -> Plan:
    """The plan of a text, for the module that ``dump_plan`` was given or one like it.

    Raises ``UsageError`` that says where in the text something is not of this form, or does not fit the
    module: instructions that are not there, other shapes, buffers outside of their memory.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"plan: {error}") from error
    return PlanReader(module).plan(content)

"""Plans as JSON: every field of every record is there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.plan import (
    Allocation,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanBuffer,
    WhileStep,
    walk_steps,
)
from hloopt.kernels.plan_json import dump_plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Argument, Copy, Fill, KernelSpec, Launch, LeafPlace, ScratchBuffer
from tests.helpers.fake_device import choose

TEXT = """HloModule m
less { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  h = f32[1] slice(x), slice={[0:1]}
  e = f32[] reshape(h)
  n = s32[] convert(e)
  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  j = s32[] add(i, i)
  y = f32[8] reverse(x), dimensions={0}
  ROOT t = (s32[], f32[8]) tuple(j, y) }
on { x = f32[8] parameter(0)
  ROOT y = f32[8] cosine(x) }
off { x = f32[8] parameter(0)
  ROOT y = f32[8] sine(x) }
ENTRY main {
  p = f32[8] parameter(0)
  b = pred[] parameter(1)
  k = token[] after-all()
  f = (f32[8], token[]) infeed(k)
  g = f32[8] get-tuple-element(f), index=0
  c = f32[8] constant({1, 2, 3, 4, 5, 6, 7, 8})
  a = f32[8] add(g, c)
  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, a)
  w = (s32[], f32[8]) while(t), condition=less, body=step
  v = f32[8] get-tuple-element(w), index=1
  d = f32[8] conditional(b, v, p), true_computation=on, false_computation=off
  ROOT r = (f32[8], token[]) tuple(d, k)
}
"""


def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    """Specs with everything in them that there is."""
    kernel, spec = choose(instruction)
    if instruction.opcode != "add":
        return kernel, dataclasses.replace(spec, overwrites=())
    steps = (
        Fill(LeafPlace("scratch", 0), 7),
        *spec.steps,
        Copy(LeafPlace("result", 0), LeafPlace("scratch", 1)),
    )
    scratch = (
        ScratchBuffer("u8", 3),
        ScratchBuffer(instruction.array.dtype.name, instruction.array.elements),
    )
    return kernel, dataclasses.replace(
        spec,
        tile={"threads": 128, "unroll": 4},
        steps=steps,
        scratch=scratch,
        is_atomic=True,
        overwrites=(),
    )


@pytest.fixture(scope="module")
def ready() -> Module:
    return hloopt.optimize(hloopt.parse(TEXT), "device")


@pytest.fixture(scope="module")
def plan(ready: Module) -> Plan:
    return plan_program(ready, chosen, allow_host=True)


def test_everything_is_written(ready: Module, plan: Plan) -> None:
    """All kinds of steps; names that the module has, allocations that the list has, shapes of their buffers."""
    content = json.loads(dump_plan(plan, ready))
    assert content["format"] == "hloopt plan"
    assert (content["peak"], len(content["steps"])) == (plan.peak, len(plan.steps))
    assert [entry["bytes"] for entry in content["allocations"]] == [
        entry.byte_size for entry in plan.allocations
    ]
    steps = list(walked(content["steps"]))
    assert {step["step"] for step in steps} == {"kernel", "host", "while", "conditional"}
    written = list(walk_steps(plan.steps))
    assert sorted(step["instruction"].split("/")[1] for step in steps) == sorted(
        step.instruction.name for step in written
    )
    for step in steps:
        home, name = step["instruction"].split("/")
        assert name in ready.computations[home].by_name
        for buffer in (*step.get("operands", ()), *step.get("results", ()), *step.get("state", ())):
            number, offset, size, shape = buffer
            assert 0 <= offset <= content["allocations"][number]["bytes"] - size
            assert shape.startswith(("f32[", "s32[", "pred[", "token["))
    launch = next(step for step in steps if step["instruction"] == "main/a")["spec"]
    assert launch["tile"] == {"threads": 128, "unroll": 4}
    assert launch["steps"][0] == {"fill": ["scratch", 0], "value": 7}
    assert launch["steps"][-1] == {"copy": [["result", 0], ["scratch", 1]]}
    assert launch["scratch"] == [["u8", 3], ["f32", 8]]
    assert launch["is_atomic"] is True
    assert any(step["after"] for step in steps if step["step"] == "kernel")


def walked(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        inside = [step.get("condition", []), step.get("body", []), *step.get("branches", [])]
        for part in inside:
            yield from walked(part)


RECORDS = {
    Allocation: 5, Argument: 3, PlanBuffer: 4, ConditionalStep: 3, Copy: 2, Fill: 2, HostStep: 3, KernelSpec: 8,
    KernelStep: 9, Launch: 7, Move: 2, LeafPlace: 2, Plan: 6, ScratchBuffer: 2, WhileStep: 6,
}  # fmt: skip


@pytest.mark.parametrize("record", RECORDS)
def test_a_new_field_has_to_be_written_too(record: type[Any]) -> None:
    """A field that is added to a plan is added to the text, to ``VERSION`` if need be, and here.

    The part of a launch is not in the text: its function's name ends in it.
    """
    assert len(dataclasses.fields(record)) == RECORDS[record]

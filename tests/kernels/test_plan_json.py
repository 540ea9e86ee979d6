"""Plans as JSON: everything comes back, and what does not fit the module is told with its place."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_device import choose

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.lowering import make_ready
from hloopt.kernels.plan import (
    Allocation,
    Buffer,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    WhileStep,
    walk_steps,
)
from hloopt.kernels.plan_json import dump_plan, load_plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Argument, Copy, Fill, KernelSpec, Launch, Place, Scratch
from random_modules import module_text

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
        Fill(Place("scratch", 0), 7),
        *spec.steps,
        Copy(Place("result", 0), Place("scratch", 1)),
    )
    scratch = (Scratch("u8", 3), Scratch(instruction.array.dtype.name, instruction.array.elements))
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
    return make_ready(hloopt.parse(TEXT))


@pytest.fixture(scope="module")
def plan(ready: Module) -> Plan:
    return plan_program(ready, chosen, allow_host=True)


def test_everything_comes_back(ready: Module, plan: Plan) -> None:
    """All kinds of steps, and every field of each record, are in the text and read from it."""
    text = dump_plan(plan, ready)
    assert load_plan(text, ready) == plan
    assert {type(step) for step in walk_steps(plan.steps)} == {
        KernelStep,
        HostStep,
        WhileStep,
        ConditionalStep,
    }
    assert any(step.after for step in walk_steps(plan.steps) if isinstance(step, KernelStep))
    again = hloopt.parse(ready.to_text())
    other = load_plan(text, again)
    assert load_plan(dump_plan(other, again), again) == other
    assert (other.peak, len(other.steps)) == (plan.peak, len(plan.steps))


RECORDS = {
    Allocation: 5, Argument: 3, Buffer: 4, ConditionalStep: 3, Copy: 2, Fill: 2, HostStep: 3, KernelSpec: 8,
    KernelStep: 9, Launch: 6, Move: 2, Place: 2, Plan: 6, Scratch: 2, WhileStep: 6,
}  # fmt: skip


@pytest.mark.parametrize("record", RECORDS)
def test_a_new_field_has_to_be_written_too(record: type[Any]) -> None:
    """Whoever adds a field to a plan adds it to the text, to ``VERSION`` if need be, and here."""
    assert len(dataclasses.fields(record)) == RECORDS[record]


def test_random_plans_come_back() -> None:
    """Plans of random modules are what they were."""
    for seed in range(25):
        module = make_ready(hloopt.parse(module_text(random.Random(seed))))
        made = plan_program(module, choose)
        assert load_plan(dump_plan(made, module), module) == made


def changed(text: str, change: Callable[[Any], None]) -> str:
    content = json.loads(text)
    change(content)
    return json.dumps(content)


def put(*path: Any) -> Callable[[Any], None]:
    """Put the last of a path where the others lead."""

    def change(content: Any) -> None:
        *way, last, value = path
        for part in way:
            content = content[part]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format", "other"), "plan: 'format' is not 'hloopt plan'"),
        (put("version", 99), "plan: version 99; this hloopt reads 1"),
        (put("peak", "much"), "plan.peak: expected a number"),
        (put("peak", True), "plan.peak: expected a number"),
        (put("steps", {}), "plan.steps: expected a list"),
        (put("steps", 0, "step", "jump"), "plan.steps[0]: 'step' is 'jump', not one of kernel, host"),
        (put("steps", 0, "instruction", "main/nobody"), "plan.steps[0]: the module has no instruction main/nobody"),
        (put("steps", 1, "results", []), "plan.steps[1].results: 0 buffers, the module has 1 leaves"),
        (put("steps", 1, "results", 0, 3, "f32[9]{0}"), "plan.steps[1].results[0]: f32[9]{0} has 36 bytes, not 32"),
        (put("steps", 1, "results", 0, [0, 0, 32, "s32[8]{0}"]), "plan.steps[1].results[0]: a buffer of s32[8]{0}, the module has f32[8]"),
        (put("steps", 1, "results", 0, 3, "f32[8"), "plan.steps[1].results[0]: 'f32[8' is no shape"),
        (put("steps", 1, "results", 0, 0, 77), "plan.steps[1].results[0]: there is no allocation 77"),
        (put("steps", 1, "results", 0, 1, 1 << 40), "are no buffer in"),
        (put("steps", 1, "results", 0, 1, 4), "do not begin at a multiple of 256"),
        (put("steps", 1, "results", 0, [0, 0]), "expected [allocation, offset, bytes, shape]"),
        (put("steps", 1, "scratch", []), "there is no scratch 0"),
        (put("steps", 1, "spec", "tile", {"threads": "x"}), "plan.steps[1].spec: 'tile' has a parameter that is no number"),
        (put("steps", 1, "spec", "steps", 1, "grid", [1, 1]), "plan.steps[1].spec.steps[1]: 'grid' is not 3 numbers"),
        (put("steps", 1, "spec", "steps", 1, "arguments", 0, 0, "sky"), "expected a place: one of operand"),
        (put("steps", 1, "spec", "steps", 1, "arguments", 0, 2, "inout"), "expected [place, number, role, partial]"),
        (put("allocations", 0, "kind", "heap"), "plan.allocations[0]: 'kind' is 'heap'"),
        (put("parameters", []), "plan.parameters: 0 buffers, the module has 2 leaves"),
        (put("parameters", 0, None), "plan.parameters: leaf 0 is f32[8], for which there is a buffer or null"),
        (put("results", []), "plan.results: 0 buffers, the module has 1 leaves"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_place(
    ready: Module, plan: Plan, change: Callable[[Any], None], message: str
) -> None:
    """The error begins with the way to what is wrong."""
    with pytest.raises(UsageError) as found:
        load_plan(changed(dump_plan(plan, ready), change), ready)
    assert message in str(found.value)
    assert str(found.value).startswith("plan")


def test_loops_and_constants_are_checked(ready: Module, plan: Plan) -> None:
    """A step of another kind of instruction, branches that are missing, and constants that are none."""
    text = dump_plan(plan, ready)
    content = json.loads(text)
    at = {step["step"]: number for number, step in enumerate(content["steps"])}
    number = next(
        number for number, one in enumerate(content["allocations"]) if one["kind"] == "constant"
    )
    for change, message in (
        (put("steps", at["while"], "instruction", "main/p"), "p is parameter, not while"),
        (put("steps", at["while"], "trips", 3), "a loop has either a predicate or known trips"),
        (put("steps", at["conditional"], "branches", []), "0 branches, d has 2"),
        (put("steps", at["conditional"], "selector", None), ".selector[0]: expected [allocation"),
        (put("allocations", number, "constant", "main/p"), "p is no constant of an array"),
        (put("allocations", number, "index", [1]), "c has no element [1]"),
    ):
        with pytest.raises(UsageError) as found:
            load_plan(changed(text, change), ready)
        assert message in str(found.value)


def test_a_plan_for_another_module_is_refused(plan: Plan, ready: Module) -> None:
    """Names and shapes of the module have to be those of the plan."""
    other = make_ready(hloopt.parse(TEXT.replace("f32[8]", "f32[9]").replace("7, 8}", "7, 8, 9}")))
    with pytest.raises(UsageError, match=r"plan\.(parameters|allocations)"):
        load_plan(dump_plan(plan, ready), other)
    with pytest.raises(UsageError, match="plan: Expecting value: line 1 column 1"):
        load_plan("", ready)
    with pytest.raises(UsageError, match="plan: expected an object"):
        load_plan("[]", ready)

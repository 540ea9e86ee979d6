"""Plans of texts for tests, each held against its graph: ``planned`` raises where a read is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.plan import (
    KernelStep,
    Plan,
    WhileStep,
    walk_steps,
)
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, ScratchBuffer
from tests.helpers.fake_device import choose
from tests.helpers.symbolic_plan import check_plan

Choose = Callable[[Instruction], tuple[Kernel, KernelSpec]]


def apart(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    """As ``choose``, but results may lie in operands only where they are updated in place."""
    kernel, spec = choose(instruction)
    return kernel, dataclasses.replace(spec, overwrites=())


def fresh(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    """As ``choose``, but every result is written anew, into memory of its own."""
    kernel, spec = apart(instruction)
    if not spec.in_place:
        return kernel, spec
    (launch,) = spec.steps
    assert isinstance(launch, Launch)
    arguments = [
        *(Argument(LeafPlace("operand", operand), "in") for operand, _ in spec.in_place),
        *(
            dataclasses.replace(entry, role="out") if entry.role == "update" else entry
            for entry in launch.arguments
        ),
    ]
    return kernel, KernelSpec(
        "whole", steps=(dataclasses.replace(launch, arguments=tuple(arguments)),)
    )


def with_scratch(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    """As ``choose``, with memory of its own for each kernel."""
    kernel, spec = choose(instruction)
    return kernel, dataclasses.replace(
        spec, scratch=(ScratchBuffer("f32", 70), ScratchBuffer("s4", 3))
    )


CHOICES: dict[str, Choose] = {
    "in place": choose,
    "apart": apart,
    "fresh": fresh,
    "scratch": with_scratch,
}


def planned(
    text: str, chooser: Choose = choose, *, allow_host: bool = False
) -> tuple[Module, Plan]:
    ready = hloopt.optimize(hloopt.parse(text, "text"), "device")
    plan = plan_program(ready, chooser, allow_host=allow_host)
    for seed in range(3):
        check_plan(ready, plan, seed)
    return ready, plan


def kernels(plan: Plan) -> list[KernelStep]:
    return [step for step in walk_steps(plan.steps) if isinstance(step, KernelStep)]


def moves(plan: Plan) -> int:
    return sum(len(step.before) + len(step.after) for step in kernels(plan))


def entry(body: str, *, header: str = "", before: str = "") -> str:
    return f"HloModule m{header}\n{before}\nENTRY main {{\n{body}\n}}\n"


LOOP = """
less {{ s = (s32[], f32[32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[32] get-tuple-element(s), index=1
  h = f32[1] slice(x), slice={{[0:1]}}
  e = f32[] reshape(h)
  n = s32[] {limit}
  ROOT c = pred[] compare(i, n), direction=LT }}
step {{ s = (s32[], f32[32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[32] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[32] {body}
  ROOT t = (s32[], f32[32]) tuple(j, y) }}
ENTRY main {{
  p = f32[32] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[32]) tuple(zero, p)
  w = (s32[], f32[32]) while(t), condition=less, body=step
  ROOT r = f32[32] get-tuple-element(w), index=1
}}
"""


def loop(limit: str = "constant(7)", body: str = "cosine(x)") -> str:
    return "HloModule m\n" + LOOP.format(limit=limit, body=body)


def the_loop(plan: Plan) -> WhileStep:
    (found,) = [step for step in plan.steps if isinstance(step, WhileStep)]
    return found

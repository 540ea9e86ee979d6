"""Plans as people read them: loops and branches indented, kernels with launch and memory, the peak."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

import hloopt
from hloopt.backends.nvrtc.resources import Resources
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.plan import KernelStep, Plan, walk_steps
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Fill, KernelSpec, LeafPlace, ScratchBuffer
from hloopt.report.kernels import parts_text
from hloopt.report.plan import memory_line, plan_rows, plan_text, show_plan
from tests.helpers.fake_device import choose

TEXT = """HloModule m
less { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64] cosine(x)
  ROOT t = (s32[], f32[64]) tuple(j, y) }
until { s = f32[64] parameter(0)
  z = f32[] constant(0)
  h = f32[1] slice(s), slice={[0:1]}
  e = f32[] reshape(h)
  ROOT d = pred[] compare(e, z), direction=LT }
half { s = f32[64] parameter(0)
  ROOT v = f32[64] reverse(s), dimensions={0} }
on { x = f32[64] parameter(0)
  ROOT k = f32[64] sine(x) }
off { x = f32[64] parameter(0)
  ROOT k2 = f32[64] copy(x) }
ENTRY main {
  p = f32[64] parameter(0)
  b = pred[] parameter(1)
  c = f32[2] constant({1, 2})
  zero = s32[] constant(0)
  u = f32[64] dynamic-update-slice(p, c, zero)
  t = (s32[], f32[64]) tuple(zero, u)
  w = (s32[], f32[64]) while(t), condition=less, body=step
  v = f32[64] get-tuple-element(w), index=1
  o = f32[64] while(v), condition=until, body=half
  ROOT r = f32[64] conditional(b, o, p), true_computation=on, false_computation=off
}
"""


def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    kernel, spec = choose(instruction)
    if instruction.opcode == "sine":
        steps = (Fill(LeafPlace("scratch", 0), 0), *spec.steps)
        return kernel, dataclasses.replace(
            spec, tile={"threads": 32}, steps=steps, scratch=(ScratchBuffer("f32", 5),)
        )
    return kernel, spec


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_program(hloopt.optimize(hloopt.parse(TEXT), "device"), chosen)


def test_the_text_of_a_plan(plan: Plan) -> None:
    """Steps in order, what is inside a loop below it, and where everything lies."""
    assert plan_text(plan) == WANTED


WANTED = """\
copy             copy               copy           +0 = p0
u                whole              1 x 32         +0 = +0 c0 -
copy.1           copy               copy           +256 = c1
w: 3 iterations
  j              whole              1 x 32         +256 = +256 -
  y              whole              1 x 32         +0 = +0
o: while +512
  condition
    h            whole              1 x 32         +256 = +0
    d            whole              1 x 32         +512 = +256 -
  body
    v            whole              1 x 32         +256 = +0
    copy         copy               copy           +0 = +256
r: by p1
  true
    k            whole{threads=32}  fill + 1 x 32  +256 = +0
  false
    k2           copy               copy           +256 = p0
results: +256
peak 1.01 KiB: parameters 257 B, constants 12 B, arena 768 B for temporaries (768 B alive at once)
"""


def test_flops_of_a_plan_are_those_of_the_table_of_kernels(plan: Plan) -> None:
    """Transcendental functions are counted apart in both."""
    flops = {row.what: row.flops for row in plan_rows(plan)}
    assert (flops["y"], flops["k"], flops["j"]) == (0, 0, 1)


def test_a_plan_of_nothing_is_its_results() -> None:
    """No steps, no memory."""
    empty = plan_program(
        hloopt.optimize(hloopt.parse("HloModule m\nENTRY e { ROOT t = () tuple() }"), "device"),
        choose,
    )
    assert plan_text(empty).splitlines() == [
        "results: nothing",
        "peak 0 B: parameters 0 B, constants 0 B, arena 0 B",
    ]


def test_the_peak_and_its_bound(plan: Plan) -> None:
    """All memory by kind, and the arena beside what lives at once."""
    line = memory_line(plan)
    assert line.startswith("peak ")
    assert line.endswith("arena 768 B for temporaries (768 B alive at once)")


def shown(plan: Plan, width: int, resources: dict[str, Resources] | None = None) -> str:
    stream = io.StringIO()
    show_plan(plan, Console(file=stream, width=width, highlight=False), resources)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_table_fits_the_terminal(plan: Plan, width: int) -> None:
    """No line is longer than the terminal is wide, but the sentence of the memory."""
    lines = shown(plan, width).splitlines()
    assert all(len(line) <= width for line in lines[:-1])
    assert "blocks x threads" in " ".join(" ".join(line.split()) for line in lines) or width < 100


def test_shared_memory_is_shown_where_it_is_known(plan: Plan) -> None:
    """The compiler says how much a block of a function takes."""
    name = next(
        step.function
        for step in walk_steps(plan.steps)
        if isinstance(step, KernelStep) and step.instruction.opcode == "sine"
    )
    assert "shared" not in shown(plan, 160)
    found = shown(plan, 160, {name: Resources(shared=4096)})
    assert "shared" in found
    assert "4 KiB" in found
    rows = {row.what: row for row in plan_rows(plan, {name: Resources(shared=4096)})}
    assert (rows["k"].shared, rows["k"].scratch, rows["k"].kernel) == (
        4096,
        20,
        "whole{threads=32}",
    )
    assert (rows["u"].shared, rows["j"].flops, rows["j"].moved) == (None, 1, 12)


def test_a_kernel_of_many_launches_is_one_line() -> None:
    """A sort of a million has 46; four are named, of more the first three."""
    assert parts_text([]) == "nothing"
    assert parts_text(["a", "b", "c", "d"]) == "a + b + c + d"
    assert parts_text(["a", "b", "c", "d", "e"]) == "a + b + c + 2 more"

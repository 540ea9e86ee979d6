"""Plans: which steps there are, and what loops and calls become."""

from __future__ import annotations

import dataclasses
import random

import hloopt
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.plan import (
    KernelStep,
    WhileStep,
    function_name,
)
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import KernelSpec, Launch
from tests.helpers.fake_device import choose
from tests.helpers.plans import (
    apart,
    entry,
    kernels,
    loop,
    moves,
    planned,
    the_loop,
)
from tests.properties.random_modules import module_text


def test_views_and_tuples_take_no_step() -> None:
    """Reshapes, tuples and their elements, barriers and transposes that rename are other names of a buffer."""
    _, plan = planned(
        entry(
            """p = f32[2,3] parameter(0)
            a = f32[2,3] negate(p)
            b = f32[6] reshape(a)
            t = (f32[6], f32[2,3]) tuple(b, a)
            o = (f32[6], f32[2,3]) opt-barrier(t)
            c = f32[6] get-tuple-element(o), index=0
            d = f32[1,6] transpose(f32[6,1] reshape(c)), dimensions={1,0}
            ROOT r = f32[1,6] cosine(d)"""
        )
    )
    assert [step.instruction.name for step in kernels(plan)] == ["a", "r"]
    first, second = kernels(plan)
    assert second.operands[0].offset == first.results[0].offset


def test_what_nobody_needs_and_what_has_no_elements_takes_no_step() -> None:
    """Dead instructions and arrays without elements launch nothing and take no bytes."""
    _, plan = planned(
        entry(
            """p = f32[0,3] parameter(0)
            q = f32[4] parameter(1)
            dead = f32[4] cosine(q)
            a = f32[0,3] negate(p)
            ROOT r = (f32[0,3], f32[4]) tuple(a, f32[4] negate(q))"""
        )
    )
    (step,) = kernels(plan)
    assert step.instruction.opcode == "negate"
    assert [buffer.byte_size for buffer in plan.results] == [0, 16]
    assert plan.parameters[0] is not None
    assert plan.parameters[0].byte_size == 0
    assert plan.peak == plan.live_bound == 16 + 256


def test_a_plan_of_nothing() -> None:
    """A program that hands on its parameter copies it; one of constants has no other memory than theirs."""
    _, plan = planned(entry("ROOT p = f32[8] parameter(0)"))
    (step,) = kernels(plan)
    assert step.spec.kernel == "copy"
    _, plan = planned(entry("ROOT t = () tuple()"))
    assert (plan.steps, plan.results, plan.peak) == ((), (), 0)


def test_constants_that_no_kernel_reads_have_no_memory() -> None:
    """A number is written into the code; an array of constants is memory, once for equal bits."""
    _, plan = planned(
        entry(
            """p = f32[2] parameter(0)
            one = f32[] constant(1)
            ones = f32[2] broadcast(one), dimensions={}
            c = f32[2] constant({3, 4})
            d = f32[2] constant({3, 4})
            e = f32[2] constant({4, 3})
            a = f32[2] add(p, ones)
            b = f32[2] multiply(a, c)
            f = f32[2] divide(b, d)
            ROOT g = f32[2] add(f, e)"""
        )
    )
    constants = [one for one in plan.allocations if one.kind == "constant"]
    assert [(one.number, one.byte_size) for one in constants] == [(0, 8), (1, 8)]
    by_name = {step.instruction.name: step for step in kernels(plan)}
    assert by_name["ones"].inlined == (0,)
    assert by_name["ones"].operands[0].byte_size == 0
    assert by_name["b"].operands[1] == by_name["f"].operands[1]


def test_a_tuple_of_constants_is_memory_leaf_by_leaf() -> None:
    """Each leaf of a constant that is a tuple is an allocation of its own."""
    _, plan = planned(
        entry(
            """c = (f32[2], s32[3]) constant(({1, 2}, {3, 4, 5}))
            a = f32[2] get-tuple-element(c), index=0
            b = s32[3] get-tuple-element(c), index=1
            ROOT r = (f32[2], s32[3]) tuple(f32[2] negate(a), s32[3] negate(b))"""
        )
    )
    constants = [one for one in plan.allocations if one.kind == "constant"]
    assert sorted((one.index, one.byte_size) for one in constants) == [((0,), 8), ((1,), 12)]


def test_functions_have_names_of_their_own() -> None:
    """Names are C's, not those of its keywords or functions, and none is the beginning of another's launch."""
    names = ("add", "add.1", "add_1", "log", "while.5", "a-b", "x" * 300)
    lines = ["p = f32[2] parameter(0)"]
    for before, name in zip(("p", *names), names, strict=False):
        root = "ROOT " if name == names[-1] else ""
        lines.append(f"{root}%{name} = f32[2] negate({before})")
    text = entry("\n".join(lines))

    def several(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        kernel, spec = apart(instruction)
        launches = tuple(
            dataclasses.replace(step, function=suffix)
            for suffix in ("", "_1")
            for step in spec.steps
            if isinstance(step, Launch)
        )
        return kernel, dataclasses.replace(spec, steps=launches or spec.steps)

    ready = hloopt.optimize(hloopt.parse(text), "device")
    found = [
        function_name(step, part)
        for step in kernels(plan_program(ready, several))
        for part in step.spec.steps
        if isinstance(part, Launch)
    ]
    assert len(found) == len(set(found)) == 2 * len(names)
    assert all(name.isidentifier() and name.isascii() and len(name) < 100 for name in found)
    assert all(name.startswith("hlo_") for name in found)


def test_a_plan_is_the_same_each_time() -> None:
    """Two plans of one module are equal."""
    ready = hloopt.optimize(hloopt.parse(module_text(random.Random(4))), "device")
    assert plan_program(ready, choose) == plan_program(ready, choose)


# ---- loops and calls ----------------------------------------------------------------------------


def test_a_loop_whose_count_is_known_has_no_condition() -> None:
    """Its body runs that often; one that is not known runs its condition and leaves a pred."""
    _, plan = planned(loop())
    step = the_loop(plan)
    assert (step.iterations, step.condition, step.predicate) == (7, (), None)
    _, plan = planned(loop("convert(e)"))
    step = the_loop(plan)
    assert step.iterations is None
    assert step.predicate is not None
    assert [inner.instruction.opcode for inner in step.condition] == ["slice", "convert", "compare"]


def test_a_loop_that_never_runs_is_no_step() -> None:
    """Of a loop of no trips nothing is left but what it was given."""
    _, plan = planned(loop("constant(0)"))
    assert not [step for step in plan.steps if isinstance(step, WhileStep)]


def test_a_loop_carries_its_state_in_place() -> None:
    """What a trip changes lies where the next one looks for it; elementwise kernels write over what they read."""
    _, plan = planned(loop())
    step = the_loop(plan)
    assert moves(plan) == 0
    add, cosine = step.body
    assert isinstance(add, KernelStep)
    assert isinstance(cosine, KernelStep)
    assert cosine.operands[0] == cosine.results[0] == step.state[1]
    assert add.results[0] == step.state[0]


def test_a_kernel_that_may_not_share_writes_beside_and_copies() -> None:
    """Where a trip's result must lie in what the kernel reads, it is made elsewhere and moved after."""
    _, plan = planned(loop(body="reverse(x), dimensions={0}"))
    reverse = next(step for step in kernels(plan) if step.instruction.opcode in ("reverse", "copy"))
    assert reverse.operands[0] != reverse.results[0]
    _, plan = planned(loop(), apart)
    cosine = next(step for step in kernels(plan) if step.instruction.opcode == "cosine")
    assert cosine.operands[0].offset != cosine.results[0].offset
    assert cosine.after[0].target == cosine.operands[0]


def test_asynchronous_calls_run_where_they_start() -> None:
    """What a start wraps is a step, its end is none; a copy of its own kind is a copy."""
    _, plan = planned(
        entry(
            """p = f32[64] parameter(0)
            s = ((f32[64]), f32[64], s32[]) async-start(p), calls=work
            d = f32[64] async-done(s)
            c = (f32[64], f32[64], u32[]) copy-start(d)
            e = f32[64] copy-done(c)
            ROOT r = f32[64] negate(e)""",
            before="work { x = f32[64] parameter(0)\n ROOT y = f32[64] cosine(x) }",
        )
    )
    assert [step.instruction.opcode for step in kernels(plan)] == ["cosine", "copy-start", "negate"]


def test_a_call_that_stays_runs_in_place() -> None:
    """A call that may not be inlined has the steps of its computation, in buffers of the caller."""
    _, plan = planned(
        entry(
            """p = f32[64] parameter(0)
            a = f32[64] negate(p)
            b = f32[64] call(a), to_apply=work, frontend_attributes={inlineable="false"}
            ROOT r = f32[64] sine(b)""",
            before="work { x = f32[64] parameter(0)\n ROOT y = f32[64] cosine(x) }",
        )
    )
    first, second, third = kernels(plan)
    assert second.operands[0] == first.results[0]
    assert third.operands[0] == second.results[0]


def test_long_running_sums_are_made_of_short_ones() -> None:
    """A kernel of n * n steps is left only where it takes less time than several launches."""
    text = """HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{ x = f32[{n}] parameter(0) z = f32[] constant(0)
  ROOT r = f32[{n}] reduce-window(x, z), window={{size={n} pad={reach}_0}}, to_apply=sum }}
"""
    for size, longest in ((256, 256), (5000, 16)):
        ready = hloopt.optimize(hloopt.parse(text.format(n=size, reach=size - 1)), "device")
        windows = [one for one in ready.entry if one.opcode == "reduce-window"]
        assert max(w.attributes["window"].dims[-1].size for w in windows) <= longest

"""Plans: which steps there are, in which memory, and that each reads what the graph says."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_device import choose
from symbolic_plan import WrongReadError, check_plan

import hloopt
from hloopt.analysis.region import region_of
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels import planning
from hloopt.kernels.buffers.packing import Packing, pack
from hloopt.kernels.drafting import _Drafter
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.lowering import DEVICE, make_ready
from hloopt.kernels.overwrites import overwritable
from hloopt.kernels.plan import (
    ConditionalStep,
    HostStep,
    KernelStep,
    Plan,
    WhileStep,
    function_name,
    walk_steps,
)
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.selection import choose as select_kernel
from hloopt.kernels.spec import Argument, KernelSpec, Launch, Place, Scratch
from hloopt.rewrite import Pipeline
from hloopt.targets import find_target
from random_modules import module_text
from support import count_calls

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
        *(Argument(Place("operand", operand), "in") for operand, _ in spec.in_place),
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
    return kernel, dataclasses.replace(spec, scratch=(Scratch("f32", 70), Scratch("s4", 3)))


CHOICES: dict[str, Choose] = {
    "in place": choose,
    "apart": apart,
    "fresh": fresh,
    "scratch": with_scratch,
}


def planned(
    text: str, chooser: Choose = choose, *, allow_host: bool = False
) -> tuple[Module, Plan]:
    ready = make_ready(hloopt.parse(text, "text"))
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


# ---- each read sees the value the graph says ----------------------------------------------------


@pytest.mark.parametrize("name", CHOICES)
def test_random_programs_read_what_was_written(name: str) -> None:
    """Whatever kernels do in place, plans of random modules read the values of the graph, near the bound."""
    for seed in range(40):
        _, plan = planned(module_text(random.Random(seed)), CHOICES[name])
        assert plan.live_bound <= plan.peak <= 1.2 * plan.live_bound


def broken(change: Callable[[pytest.MonkeyPatch], None], chooser: Choose = choose) -> int:
    """How many of some random modules are planned wrong, after a change for the worse."""
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        for seed in range(40):
            try:
                planned(module_text(random.Random(seed)), chooser)
            except (WrongReadError, UsageError):
                found += 1
    return found


def too_short(patch: pytest.MonkeyPatch) -> None:
    def packed(sizes: list[int], starts: list[int], ends: list[int]) -> Packing:
        return pack(sizes, starts, [max(s, e - 1) for s, e in zip(starts, ends, strict=True)])

    patch.setattr(planning, "pack", packed)


def never_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Drafter, "apart", lambda _self, _spec, _operands, results, _read: results)


def nothing_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hloopt.kernels.drafting._read", lambda _spec, _count: frozenset())


def not_copied(patch: pytest.MonkeyPatch) -> None:
    passes = [one for one in DEVICE.passes() if one.name != "copy-insertion"]
    patch.setattr("hloopt.kernels.lowering.DEVICE", Pipeline(tuple(passes)))


def test_what_plans_must_not_do_is_seen() -> None:
    """The check is worth something: lives cut short, shared bytes, unseen reads, missing copies are found."""
    assert broken(lambda _: None) == 0
    assert broken(too_short) > 5
    assert broken(never_apart, apart) > 5
    assert broken(nothing_read) > 20
    assert broken(not_copied) > 10


# ---- which steps --------------------------------------------------------------------------------


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

    ready = make_ready(hloopt.parse(text))
    found = [
        function_name(step, part)
        for step in kernels(plan_program(ready, several))
        for part in step.spec.steps
        if isinstance(part, Launch)
    ]
    assert len(found) == len(set(found)) == 2 * len(names)
    assert all(name.isidentifier() and name.isascii() and len(name) < 100 for name in found)
    assert all(name.startswith("hlo_") for name in found)


# ---- memory -------------------------------------------------------------------------------------


def test_an_update_in_place_shares_its_operands_buffer() -> None:
    """dynamic-update-slice writes into the buffer it updates; where it does not, that is another one."""
    text = entry(
        """p = f32[64] parameter(0)
        u = f32[2] parameter(1)
        i = s32[] parameter(2)
        a = f32[64] negate(p)
        b = f32[64] dynamic-update-slice(a, u, i)
        ROOT c = f32[64] cosine(b)"""
    )
    _, plan = planned(text, apart)
    _, update, _ = kernels(plan)
    assert update.operands[0] == update.results[0]
    _, plan = planned(text, fresh)
    _, update, _ = kernels(plan)
    assert update.operands[0].offset != update.results[0].offset


def test_in_place_beyond_what_the_analysis_knows() -> None:
    """A kernel that wants an operand and a result together gets a copy of the operand to work on."""

    def greedy(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        kernel, spec = choose(instruction)
        if instruction.opcode != "sort":
            return kernel, dataclasses.replace(spec, overwrites=())
        launch = Launch("", (1, 1, 1), (32, 1, 1), (Argument(Place("result", 0), "update"),))
        return kernel, KernelSpec("sort", steps=(launch,), in_place=((0, 0),))

    _, plan = planned(
        entry(
            """p = f32[64] parameter(0)
            ROOT r = f32[64] sort(p), dimensions={0}, to_apply=less""",
            before="less { x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
            "ROOT c = pred[] compare(x, y), direction=LT }",
        ),
        greedy,
    )
    (sort,) = kernels(plan)
    ((before),) = sort.before
    assert before.source.allocation.kind == "parameter"
    assert before.target == sort.results[0] == sort.operands[0]


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


def test_a_loop_whose_count_is_known_has_no_condition() -> None:
    """Its body runs that often; one that is not known runs its condition and leaves a pred."""
    _, plan = planned(loop())
    step = the_loop(plan)
    assert (step.trips, step.condition, step.predicate) == (7, (), None)
    _, plan = planned(loop("convert(e)"))
    step = the_loop(plan)
    assert step.trips is None
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


def test_donated_parameters_hold_the_results() -> None:
    """A result that a parameter is donated to lies in it; others have memory of their own."""
    body = """p = f32[32] parameter(0)
    q = f32[32] parameter(1)
    a = f32[32] add(p, q)
    ROOT r = (f32[32], f32[32]) tuple(a, f32[32] cosine(q))"""
    _, plan = planned(entry(body, header=", input_output_alias={ {0}: (0, {}, may-alias) }"))
    assert plan.results[0] == plan.parameters[0]
    assert plan.results[1].allocation.kind == "arena"
    assert moves(plan) == 0
    _, plan = planned(entry(body))
    assert {buffer.allocation.kind for buffer in plan.results} == {"arena"}


def test_branches_use_the_same_memory() -> None:
    """What one branch needs and what another needs may lie in the same bytes; the results do in all."""
    branch = "{{ x = f32[4096] parameter(0)\n a = f32[4096] reverse(x), dimensions={{0}}\n ROOT b = f32[4096] {op}(a) }}"
    text = entry(
        """p = f32[4096] parameter(0)
        c = pred[] parameter(1)
        a = f32[4096] negate(p)
        b = f32[4096] conditional(c, a, a), true_computation=on, false_computation=off
        ROOT r = f32[4096] add(a, b)""",
        before=f"on {branch.format(op='cosine')}\noff {branch.format(op='sine')}",
    )
    _, plan = planned(text)
    (step,) = [one for one in plan.steps if isinstance(one, ConditionalStep)]
    first, second = (branch[-1] for branch in step.branches)
    assert isinstance(first, KernelStep)
    assert isinstance(second, KernelStep)
    assert first.results[0].offset == second.results[0].offset
    (arena,) = [one for one in plan.allocations if one.kind == "arena"]
    assert arena.byte_size == 3 * 4096 * 4


def test_scratch_is_apart_from_what_its_kernel_touches() -> None:
    """Memory of a kernel's own overlaps neither operands nor results, and is used again afterwards."""
    _, plan = planned(
        entry(
            """p = f32[64] parameter(0)
            a = f32[64] negate(p)
            b = f32[64] cosine(a)
            ROOT c = f32[64] sine(b)"""
        ),
        with_scratch,
    )
    for step in kernels(plan):
        places = [*step.operands, *step.results, *step.scratch]
        places = list({(b.allocation, b.offset, b.byte_size) for b in places})
        for one in places:
            for other in places:
                if one is not other and one[0] == other[0]:
                    assert one[1] + one[2] <= other[1] or other[1] + other[2] <= one[1]
    assert plan.peak <= 256 + 3 * 512 + 256


# ---- what cannot be planned ---------------------------------------------------------------------


def no_custom_calls(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    if instruction.opcode != "custom-call":
        return choose(instruction)
    computation = instruction.computation
    assert computation is not None
    module = computation.module
    assert module is not None
    assert module.source is not None
    raise module.source.error(
        UnsupportedError, instruction.offset, f"{instruction.name}: custom-call has no kernel"
    )


def refused(text: str) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as found:
        planned(text, no_custom_calls)
    return found.value


def test_a_bounded_dynamic_dimension_is_refused_by_name() -> None:
    """Before anything else, with its place."""
    error = refused(entry("p = f32[<=4] parameter(0)\nROOT r = f32[<=4] negate(p)"))
    assert "bounded dynamic dimension" in error.message
    assert error.message.startswith("p: ")
    assert (error.line, error.column) == (4, 1)


def test_all_that_cannot_be_run_is_told_at_once() -> None:
    """The error is the first in the text, its notes count and name the others."""
    error = refused(
        entry(
            """p = f32[4] parameter(0)
a = f32[4] custom-call(p), custom_call_target="one"
b = f32[4] custom-call(a), custom_call_target="two"
ROOT c = f32[4] custom-call(b), custom_call_target="three\""""
        ),
    )
    assert error.message.startswith("a: ")
    assert error.notes[0] == "2 more instructions cannot be run"
    assert [note.split(": ")[1] for note in error.notes[1:]] == ["b", "c"]


def test_collectives_among_several_are_refused() -> None:
    """A device runs one participant; a program of one hands on what its collectives are given."""
    body = """p = f32[4] parameter(0)
    ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add"""
    add = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }"
    error = refused(entry(body, header=", replica_count=2", before=add))
    assert error.message.startswith("r: all-reduce brings several participants together")
    _, plan = planned(entry(body, before=add))
    assert [step.spec.kernel for step in kernels(plan)] == ["copy"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("g = f32[2,3]{1,0} get-tuple-element(t), index=0\n ROOT r = f32[2,3] negate(g)", "g"),
        ("u = (f32[2,3]{1,0}) tuple(p)\n ROOT g = f32[2,3] get-tuple-element(u), index=0", "u"),
        ("ROOT b = (f32[2,3]{1,0}) opt-barrier(t)", "b"),
        ("ROOT f = f32[2,3]{1,0} fusion(p), kind=kLoop, calls=body", "f"),
    ],
)
def test_layouts_that_disagree_are_refused(body: str, name: str) -> None:
    """Where data would be read in another order than they lie in, and nobody moves them."""
    before = "body { x = f32[2,3]{1,0} parameter(0)\n ROOT y = f32[2,3]{1,0} negate(x) }"
    module = hloopt.parse(
        entry(
            f"p = f32[2,3]{{0,1}} parameter(0)\nt = (f32[2,3]{{0,1}}) tuple(p)\n{body}",
            before=before,
        )
    )
    with pytest.raises(UnsupportedError, match=f"{name}: .*the layout of what it takes over"):
        plan_program(module, choose)


INFEED = entry(
    """k = token[] after-all()
    i = ((f32[4]), token[]) infeed(k)
    g = (f32[4]) get-tuple-element(i), index=0
    x = f32[4] get-tuple-element(g), index=0
    ROOT n = f32[4] negate(x)"""
)


def test_the_host_takes_over_where_it_may() -> None:
    """What has no kernel is evaluated by the interpreter if the user allows it, else refused."""
    assert refused(INFEED).message.startswith("i: ")
    _, plan = planned(INFEED, allow_host=True)
    first, second = plan.steps
    assert isinstance(first, HostStep)
    assert isinstance(second, KernelStep)
    assert [buffer.byte_size for buffer in first.results] == [16, 0]


def test_a_module_that_was_not_made_ready_is_told_so() -> None:
    """Computations with several callers, and writes over parameters, name the pass that is missing."""
    double = "double { x = f32[4] parameter(0)\n ROOT y = f32[4] add(x, x) }"
    twice = entry(
        """p = f32[4] parameter(0)
        a = f32[4] call(p), to_apply=double
        ROOT b = f32[4] call(a), to_apply=double""",
        before=double,
    )
    with pytest.raises(UsageError, match="double is called from several places"):
        plan_program(hloopt.parse(twice), choose)
    update = entry(
        """p = f32[4] parameter(0)
        u = f32[1] parameter(1)
        i = s32[] parameter(2)
        ROOT r = f32[4] dynamic-update-slice(p, u, i)"""
    )
    with pytest.raises(UsageError, match="r would write over p; run copy-insertion first"):
        plan_program(hloopt.parse(update), choose)


def test_a_plan_is_the_same_each_time() -> None:
    """Two plans of one module are equal."""
    ready = make_ready(hloopt.parse(module_text(random.Random(4))))
    assert plan_program(ready, choose) == plan_program(ready, choose)


# ---- calls that run beside others ---------------------------------------------------------------


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


# ---- results in the bytes of operands -----------------------------------------------------------


def pairs(text: str) -> tuple[tuple[int, int], ...]:
    return overwritable(region_of(hloopt.parse(text).entry.root))


def test_which_operands_a_result_may_overwrite() -> None:
    """Those read at the same place only, of a kernel with one result."""
    one = "p = f32[4,2] parameter(0)\n q = f32[4,2] parameter(1)\n s = f32[] parameter(2)"
    assert pairs(entry(f"{one}\n ROOT r = f32[4,2] add(p, q)")) == ((0, 0), (1, 0))
    assert pairs(entry(f"{one}\n ROOT r = f32[4,2] clamp(s, q, s)")) == ((1, 0),)
    assert pairs(entry(f"{one}\n ROOT r = f32[4,2] reverse(p), dimensions={{0}}")) == ()
    assert pairs(entry(f"{one}\n ROOT r = s8[4,2] convert(p)")) == ()
    body = "body { x = f32[4,2] parameter(0)\n y = f32[4,2] parameter(1)\n"
    fused = f"{one}\n ROOT f = f32[4,2] fusion(p, q), kind=kLoop, calls=body"
    turned = "z = f32[4,2] reverse(y), dimensions={1}\n ROOT w = f32[4,2] add(x, z) }"
    assert pairs(entry(fused, before=body + turned)) == ((0, 0),)
    several = "ROOT t = (f32[4,2], f32[4,2]) tuple(f32[4,2] negate(x), f32[4,2] add(x, y)) }"
    both = fused.replace("ROOT f = f32[4,2]", "ROOT f = (f32[4,2], f32[4,2])")
    assert pairs(entry(both, before=body + several)) == ()


# ---- many buffers -------------------------------------------------------------------------------


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the instructions take about four times the calls."""

    def chain(length: int) -> Module:
        lines = ["p = f32[256] parameter(0)", "v0 = f32[256] negate(p)"]
        for number in range(1, length):
            other = f"v{max(0, number - 7)}"
            lines.append(f"v{number} = f32[256] add(v{number - 1}, {other})")
        lines.append(f"ROOT r = f32[256] cosine(v{length - 1})")
        return make_ready(hloopt.parse(entry("\n".join(lines))))

    few, many = chain(300), chain(1200)
    plan_program(few, choose)
    assert count_calls(lambda: plan_program(many, choose)) < 5 * count_calls(
        lambda: plan_program(few, choose)
    )


# ---- programs out of JAX ------------------------------------------------------------------------


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", ["while_tuple_heavy", "adam_100_arrays", "transformer_lm_train_step"]
)
def test_real_programs_with_the_kernels_they_get(name: str) -> None:
    """With chosen kernels each read is right, and memory is within 1.2 of what lives at once."""
    path = Path(os.environ["HLOOPT_CORPUS"]) / "jax" / f"{name}.before.hlo"
    selection = KernelSelection()
    target, limits = find_target(selection.target), selection.limits()
    for pipeline in ("O0", "O2"):
        ready = make_ready(hloopt.optimize(hloopt.parse(path.read_text()), pipeline))
        Pipeline((selection,)).run(ready)
        plan = plan_program(ready, lambda one: select_kernel(one, target, limits))
        check_plan(ready, plan)
        assert plan.peak <= 1.2 * plan.live_bound

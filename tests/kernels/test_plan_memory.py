"""Plans: what lies where, and what shares bytes with what."""

from __future__ import annotations

import dataclasses

import hloopt
from hloopt.analysis.region import region_of
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel, overwritable
from hloopt.kernels.plan import (
    ConditionalStep,
    KernelStep,
)
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace
from tests.helpers.fake_device import choose
from tests.helpers.plans import (
    apart,
    entry,
    fresh,
    kernels,
    moves,
    planned,
    with_scratch,
)


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
        launch = Launch("", (1, 1, 1), (32, 1, 1), (Argument(LeafPlace("result", 0), "update"),))
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

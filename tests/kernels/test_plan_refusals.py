"""Plans that cannot be made: all that is wrong is told by name, before anything runs."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.plan import (
    HostStep,
    KernelStep,
)
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import KernelSpec
from tests.helpers.fake_device import choose
from tests.helpers.plans import (
    entry,
    kernels,
    planned,
)


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
    hint = "hloopt run --allow-host lets the interpreter evaluate what has no kernel"
    assert error.notes[:2] == (hint, "2 more instructions cannot be run")
    assert [note.split(": ")[1] for note in error.notes[2:4]] == ["b", "c"]


def test_collectives_among_several_are_refused() -> None:
    """A device runs one participant; a program of one hands on what its collectives are given."""
    body = """p = f32[4] parameter(0)
    ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add"""
    add = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }"
    error = refused(entry(body, header=", replica_count=2", before=add))
    assert error.message.startswith("r: all-reduce brings several participants together")
    _, plan = planned(entry(body, before=add))
    assert [step.spec.kernel for step in kernels(plan)] == ["copy"]


COPIED = """s = (f32[2,3]{%s:S(1)}, f32[2,3]{0,1}, u32[]) copy-start(p)
    ROOT d = f32[2,3]{1,0:S(1)} copy-done(s)"""


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("g = f32[2,3]{1,0} get-tuple-element(t), index=0\n ROOT r = f32[2,3] negate(g)", "g"),
        ("u = (f32[2,3]{1,0}) tuple(p)\n ROOT g = f32[2,3] get-tuple-element(u), index=0", "u"),
        ("ROOT b = (f32[2,3]{1,0}) opt-barrier(t)", "b"),
        ("ROOT f = f32[2,3]{1,0} fusion(p), kind=kLoop, calls=body", "f"),
        (COPIED % "1,0", "s"),
        (COPIED % "0,1", "d"),
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


def test_a_bitcast_of_a_tiled_layout_is_refused() -> None:
    """Tiles are not kept in memory; whatever else has them only says where its elements were."""
    tiled = "f32[4,4]{1,0:T(2,2)}"
    error = refused(entry(f"p = {tiled} parameter(0)\nROOT r = f32[16]{{0}} bitcast(p)"))
    assert error.message == f"r: it looks at the bytes of a tiled layout, {tiled}"
    planned(entry(f"p = {tiled} parameter(0)\nROOT r = {tiled} negate(p)"))


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

"""Layouts before XLA chose any: they mean nothing, and results stay."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.passes.layout_assignment import LayoutAssignment
from hloopt.rewrite import PassLog
from proof import check

HEADER = "HloModule m, entry_computation_layout={(f32[4,3]{1,0})->f32[3,4]{1,0}}\n"
BODY = "ENTRY e {{ x = f32[4,3]{{1,0}} parameter(0)\n t = f32[3,4]{{0,1}} transpose(x), dimensions={{1,0}}\n {} }}\n"  # fmt: skip


def test_all_become_row_major() -> None:
    """The root as well, where the header says what the result's layout is."""
    text = HEADER + BODY.format("ROOT n = f32[3,4]{0,1} negate(t)")
    module, log = check(text, LayoutAssignment())
    assert "{0,1}" not in module.to_text()
    assert log.hits["row-major layout"] == 2


def test_a_loop_s_state_goes_along() -> None:
    """Tuples and the computations that hand them over."""
    state = "(s32[], f32[2,3]{0,1})"
    text = (
        f"HloModule m\nbody {{ p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
        "o = s32[] constant(1)\n j = s32[] add(i, o)\n a = f32[2,3]{0,1} get-tuple-element(p), index=1\n"
        f"n = f32[2,3]{{0,1}} negate(a)\n ROOT r = {state} tuple(j, n) }}\n"
        f"cond {{ p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
        "c = s32[] constant(3)\n ROOT l = pred[] compare(i, c), direction=LT }\n"
        "ENTRY e { x = f32[2,3]{1,0} parameter(0)\n z = s32[] constant(0)\n"
        f"t = {state} tuple(z, x)\n w = {state} while(t), condition=cond, body=body\n"
        "ROOT g = f32[2,3]{1,0} get-tuple-element(w), index=1 }\n"
    )
    module, _ = check(text, LayoutAssignment())
    assert "{0,1}" not in module.to_text()


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\n" + BODY.format("ROOT b = f32[12]{0} bitcast(t)"),
        HEADER.replace("m,", "m, is_scheduled=true,")
        + BODY.format("ROOT n = f32[3,4]{1,0} negate(t)"),
    ],
)
def test_layouts_that_were_assigned_stay(text: str) -> None:
    """A bitcast or a schedule says that they were."""
    module = hloopt.parse(text, "m")
    assert not LayoutAssignment().run(module, PassLog())


def test_without_a_header_the_root_says_the_layout_of_the_result() -> None:
    """It is part of what the module is asked for."""
    module = hloopt.parse("HloModule m\n" + BODY.format("ROOT n = f32[3,4]{0,1} negate(t)"), "m")
    assert LayoutAssignment().run(module, PassLog())
    assert str(module.entry.root.shape) == "f32[3,4]{0,1}"

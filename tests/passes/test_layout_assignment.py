"""Layouts before XLA chose any: they mean nothing, and results stay."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.passes.layout_assignment import LayoutAssignment
from hloopt.rewrite import PassLog
from hloopt.types import descending
from tests.passes.proof import check

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


GATHER = (
    "x = f32[5,64,7] parameter(0)\n i = s32[64,1] parameter(1)\n"
    "g = f32[64,5,1,7] gather(x, i), offset_dims={1,2,3}, collapsed_slice_dims={}, "
    "start_index_map={1}, index_vector_dim=1, slice_sizes={5,1,7}\n"
)
MOVED = "q = f32[64,5,7] reshape(g)\n t = f32[5,64,7] transpose(q), dimensions={1,0,2}\n"
REDUCED = (
    "a { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\nENTRY e { "
)


def layout_of_the_gather(entry: str) -> str:
    module = hloopt.parse(f"HloModule m\n{entry}", "m")
    before = hloopt.parse(f"HloModule m\n{entry}", "m")
    LayoutAssignment().run(module, PassLog())
    hloopt.verify(module)
    arrays = [np.arange(5 * 64 * 7, dtype=np.float32).reshape(5, 64, 7)]
    arrays.append(np.arange(64, dtype=np.int32)[::-1].reshape(64, 1))
    for kept in (module, hloopt.optimize(module, "layout-normalization{gathers=false},cse,dce")):
        for left, right in zip(
            hloopt.evaluate(before, arrays), hloopt.evaluate(kept, arrays), strict=True
        ):
            assert np.allclose(left, right, rtol=1e-6)
    assert any("gather" in str(one.opcode) for one in module.entry)
    (gather,) = (one for one in module.entry if one.opcode == "gather")
    return str(gather.array.layout or descending(4))


def test_a_gather_is_laid_out_for_the_transpose_behind_it() -> None:
    """Also through reshapes, dimensions of size 1 and elementwise ops of gathers alone."""
    assert layout_of_the_gather("ENTRY e { " + GATHER + MOVED + "ROOT n = f32[5,64,7] negate(t) }") == "{3,2,0,1}"  # fmt: skip
    chain = "h = f32[64,5,1,7] tanh(g)\n" + MOVED.replace("(g)", "(h)")
    assert layout_of_the_gather("ENTRY e { " + GATHER + chain + "ROOT n = f32[5,64,7] copy(t) }") == "{3,2,0,1}"  # fmt: skip


def test_a_gather_whose_readers_differ_is_row_major() -> None:
    """So is one that is computed with what has its layout already."""
    both = "ROOT r = (f32[5,64,7], f32[64,5,1,7]) tuple(t, g) }"
    assert layout_of_the_gather("ENTRY e { " + GATHER + MOVED + both) == "{3,2,1,0}"
    other = "y = f32[64,5,1,7] parameter(2)\n".replace(
        "parameter(2)", "broadcast(k), dimensions={3}"
    )
    fixed = "k = f32[7] slice(z), slice={[0:7]}\n"
    source = "z = f32[2240] reshape(x)\n"
    mixed = source + fixed + other + "w = f32[64,5,1,7] reverse(y), dimensions={0}\n"
    mixed += "h = f32[64,5,1,7] add(g, w)\n" + MOVED.replace("(g)", "(h)")
    assert layout_of_the_gather("ENTRY e { " + GATHER + mixed + "ROOT n = f32[5,64,7] copy(t) }") == "{3,2,1,0}"  # fmt: skip


@pytest.mark.parametrize(("dims", "layout"), [("0", "{0,3,2,1}"), ("1", "{3,2,1,0}")])
def test_a_reduce_wants_long_rows(dims: str, layout: str) -> None:
    """Of 64 elements, or of a power of two below 32; 5 are too few and fill no warp."""
    result = {"0": "f32[5,1,7]", "1": "f32[64,1,7]"}[dims]
    tail = f"z = f32[] constant(0)\n ROOT r = {result} reduce(g, z), dimensions={{{dims}}}, to_apply=a }}"
    assert layout_of_the_gather(REDUCED + GATHER + tail) == layout


def test_what_parameters_decide_stays_for_a_reduce() -> None:
    """Only a gather's layout is free: a product of broadcast parameters is row-major, and is summed so."""
    text = (
        "HloModule m\na { u = f32[] parameter(0)\n v = f32[] parameter(1)\n ROOT s = f32[] add(u, v) }\n"
        "ENTRY e { x = f32[6,4]{1,0} parameter(0)\n y = f32[4,8]{1,0} parameter(1)\n"
        "p = f32[6,4,8]{2,1,0} broadcast(x), dimensions={0,1}\n"
        "q = f32[6,4,8]{2,1,0} broadcast(y), dimensions={1,2}\n"
        "t = f32[6,4,8]{2,1,0} multiply(p, q)\n z = f32[] constant(0)\n"
        "ROOT r = f32[6,8]{1,0} reduce(t, z), dimensions={1}, to_apply=a }\n"
    )
    module = hloopt.parse(text, "m")
    LayoutAssignment().run(module, PassLog())
    assert str(module.entry.by_name["t"].array.layout) == "{2,1,0}"

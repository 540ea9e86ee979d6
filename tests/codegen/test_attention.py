"""Attention on the emulator: forward and gradients, on matrix units and without, of any sizes and any numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hloopt
from hloopt.analysis.attention import Attention, attention_form
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.region import region_of
from hloopt.backends.nvrtc import compile_cuda, nvrtc_for
from hloopt.codegen.program import KernelProgram
from hloopt.errors import DeviceError, UsageError
from hloopt.ir import Instruction
from hloopt.kernels.attention_recognition import AttentionRecognition
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.runtime.inputs import generate
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, compile_everywhere, planned
from tests.helpers.attention_text import AttentionText
from tests.helpers.rarely import one_in

PLAIN = AttentionText()


@cache
def fused(form: AttentionText, *, gradient: bool = False, precision: str = "") -> str:
    """A program whose attention is kernels."""
    module = hloopt.parse(form.text(gradient=gradient))
    if precision:
        module = hloopt.optimize(module, f"dot-precision{{precision={precision}}}")
    plan = AttentionRecognition(always=True).fuse(module)
    assert plan.steps, plan.refusals
    return hloopt.optimize(module, "dce").to_text()


def check(form: AttentionText, **options: object) -> KernelProgram:
    """Run it by the kernel, against the interpreter; matrix units take it where its operands are narrow."""
    program = check_kernel(fused(form), "attention", everywhere=False, **options)  # type: ignore[arg-type]
    has_units = "multiply_m16n8k16" in program.text
    assert has_units == (form.kind != "f32" and options.get("tile", {}) != {"units": 0})
    return program


FORMS = {
    "causal": PLAIN,
    "plain f16": replace(PLAIN, mask="none", kind="f16"),
    "f32": replace(PLAIN, kind="f32"),
    "narrow softmax": replace(PLAIN, softmax="bf16", mask="bias"),
    "masked by an operand": replace(PLAIN, mask="given", low="-inf"),
    "divided late, turned": replace(PLAIN, late=True, turned=True),
    "queries that share keys": replace(PLAIN, outer=3, turned=True, rows=20),
    "one query": replace(PLAIN, rows=1, mask="none", columns=100),
    "ragged": replace(PLAIN, rows=33, columns=65, depth=17, wide=9, batch=1),
    "long": replace(PLAIN, rows=129, columns=150, depth=24, wide=40, batch=1, turned=True),
    "ragged f32": replace(PLAIN, rows=17, columns=1000, depth=5, wide=3, kind="f32", mask="none"),
}


@pytest.mark.parametrize("form", one_in(3, FORMS.items(), named=True))
def test_forms(form: AttentionText) -> None:
    """Masks, biases, types, layouts and sizes."""
    check(form)


TF32 = {
    "causal": replace(PLAIN, kind="f32"),
    "ragged": replace(PLAIN, rows=33, columns=65, depth=17, wide=9, batch=1, kind="f32"),
    "turned": replace(PLAIN, columns=129, wide=36, batch=1, kind="f32", late=True, turned=True),
    "one query": replace(PLAIN, rows=1, mask="none", columns=100, kind="f32"),
    "tiny": AttentionText(1, 1, 8, 1, 2, kind="f32", mask="none"),
    "long": replace(PLAIN, rows=17, columns=1000, batch=1, kind="f32", mask="given", low="-inf"),
}

ORDINARY = (("causal", 0), ("ragged", 1), ("turned", 1))
"""Forms, and whether tiles are read ahead, of each run of the tests; all others are slow ones."""


@pytest.mark.parametrize(
    ("form", "prefetch"),
    [
        # Copies ahead matter to edges of tiles, and to lines of other widths; the rest by make slow.
        pytest.param(form, prefetch, id=f"{name}-{prefetch}", marks=[pytest.mark.slow] * rare)
        for name, form in TF32.items()
        for prefetch in (0, 1)
        for rare in [(name, prefetch) not in ORDINARY]
    ],
)
def test_f32_rounded_to_tf32(form: AttentionText, prefetch: int) -> None:
    """Matrix units take f32 where its products may be rounded; operands are copied or computed."""
    text = fused(form, precision="tf32")
    program = check_kernel(
        text, "attention", {"columns": 32, "prefetch": prefetch}, everywhere=False
    )
    assert "multiply_m16n8k8_tf32" in program.text


def test_tf32_of_special_numbers() -> None:
    """Infinities, NaN and numbers that would round to infinity."""
    form = replace(PLAIN, mask="given", low="-inf", kind="f32")
    module = hloopt.parse(fused(form, precision="tf32"))
    q, k, v, keep = (np.array(one) for one in generate(module, 1))
    q[0, 3, 2], k[0, 5, 1], k[1, 9, 0], v[0, 7, 4] = np.inf, -np.inf, np.nan, np.inf
    v[0, 9, 2] = np.finfo(np.float32).max
    keep[0, 8:] = True
    keep[1] = False
    check_kernel(module.to_text(), "attention", inputs=[q, k, v, keep], everywhere=False)


def test_which_units_take_f32() -> None:
    """TF32 where every product has leave and the device has it; bf16 in three terms has none of its own."""
    kernel = find_kernel("attention")
    form = replace(PLAIN, kind="f32", rows=128, columns=128, depth=64, wide=64)
    for precision, target, units in (
        ("tf32", "h200", 3),
        ("tf32", "a100_sxm_80", 3),
        ("tf32", "t4", 0),
        ("bf16x3", "h200", 0),
        ("", "h200", 0),
    ):
        text = fused(form, precision=precision)
        site = Site(region_of(only(text)), find_target(target), Limits())
        tile = kernel.tile(site)
        assert tile["units"] == units
        if units == 0:
            with pytest.raises(UsageError, match="do not take these products"):
                kernel.spec(site, {**tile, "units": 3})


@pytest.mark.every_value
@pytest.mark.parametrize("units", [0, 1])
@pytest.mark.parametrize(
    "tile",
    [
        {"rows": 16, "columns": 16},
        {"rows": 32, "columns": 48},
        {"rows": 16, "columns": 32, "prefetch": 0},
    ],
)
def test_tiles(tile: dict[str, int], units: int) -> None:
    """Other tiles than the default ones, and lanes that multiply by themselves."""
    form = replace(PLAIN, rows=40, columns=50)
    check_kernel(fused(form), "attention", {**tile, "units": units}, everywhere=False)


def test_units_of_half_the_depth() -> None:
    """Before sm_80 a step of f16 is two; bf16 is multiplied by lanes there."""
    form = replace(PLAIN, kind="f16", rows=40, columns=50, depth=24)
    program = check_kernel(fused(form), "attention", {"units": 2, "prefetch": 0}, everywhere=False)
    assert "multiply_m16n8k8_f16" in program.text
    assert "mma.sync.aligned.m16n8k16" not in program.text
    compile_everywhere(program.text, ("sm_75", "sm_90"))
    old = find_target("t4")
    for kind, units in (("f16", 2), ("bf16", 0)):
        site = Site(region_of(only(fused(replace(form, kind=kind)))), old, Limits())
        assert find_kernel("attention").tile(site)["units"] == units


def test_what_is_copied() -> None:
    """Keys and values come by asynchronous copies where 16 bytes of them lie together, else by elements."""
    for form, count in ((PLAIN, 2), (replace(PLAIN, depth=17), 1), (replace(PLAIN, wide=9), 1)):
        _, _, program = planned(fused(form), "attention", {"rows": 16, "columns": 16})
        assert program.text.count("commit_async();") == count
    target = replace(PLAIN, mask="none", rows=128, columns=128)
    site = Site(region_of(only(fused(target))), find_target("h200"), Limits())
    kernel = find_kernel("attention")
    assert kernel.tile(site)["prefetch"] == 1
    assert kernel.tile(replace(site, target=find_target("t4")))["prefetch"] == 0


def only(text: str) -> Instruction:
    """The one kernel of a program."""
    (found,) = (one for one in hloopt.parse(text).entry if custom_name(one) == "attention")
    return found


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("low", ["-inf", "-1e30"])
def test_special_numbers(kind: str, low: str) -> None:
    """Infinities and NaN go where the text has them go; rows without a column are NaN or the mean."""
    form = replace(PLAIN, mask="given", low=low, kind=kind)
    module = hloopt.parse(fused(form))
    q, k, v, keep = (np.array(one) for one in generate(module, 1))
    q[0, 3, 2], k[0, 5, 1], k[1, 9, 0], v[0, 7, 4] = np.inf, -np.inf, np.nan, np.inf
    keep[0, 8:] = True
    keep[1] = False
    check_kernel(module.to_text(), "attention", inputs=[q, k, v, keep], everywhere=False)


def test_greater_scores_later() -> None:
    """Each tile has greater scores than the ones before: all that was summed is scaled every time."""
    form = replace(PLAIN, mask="none", columns=200, batch=1)
    module = hloopt.parse(fused(form))
    q, k, v = (np.array(one) for one in generate(module, 1))
    q[:] = 1
    k[:] = np.arange(200)[None, :, None] * 0.25
    check_kernel(module.to_text(), "attention", inputs=[q, k, v], everywhere=False)


GRADIENTS = {
    "causal": PLAIN,
    "masked by an operand": replace(PLAIN, rows=40, columns=24, mask="given", low="-inf"),
    "ragged": replace(PLAIN, rows=21, columns=37, depth=8, wide=24, mask="none"),
    "f32": replace(PLAIN, kind="f32", rows=16, columns=24),
}


@pytest.mark.parametrize("form", one_in(2, GRADIENTS.items(), named=True))
def test_gradients(form: AttentionText) -> None:
    """Three kernels; an f32 product with what was bf16 is three steps of a matrix unit."""
    text = fused(form, gradient=True)
    assert text.count('"name":"attention"') == 3
    program = check_kernel(text, "attention", everywhere=False)
    assert ("const float rest" in program.text) == (form.kind == "bf16")


def test_gradients_in_tf32() -> None:
    """All products of f32 by TF32; what was bf16 is multiplied with two terms of f32, not three."""
    _, _, exact = planned(fused(PLAIN, gradient=True), "attention")
    narrow = fused(PLAIN, gradient=True, precision="tf32")
    program = check_kernel(narrow, "attention", everywhere=False)
    assert 0 < 2 * program.text.count("float rest") == exact.text.count("float rest")
    assert "multiply_m16n8k8_tf32" not in program.text
    wide = fused(GRADIENTS["f32"], gradient=True, precision="tf32")
    program = check_kernel(wide, "attention", everywhere=False)
    assert "multiply_m16n8k8_tf32" in program.text


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        ({"rows": 24}, "rows=24 must be a multiple of 16"),
        ({"columns": 8}, "columns=8 must be a multiple of 16"),
        ({"units": 2}, "units=2"),
        ({"rows": 128, "columns": 128, "units": 0}, "bytes of shared memory"),
    ],
)
def test_tiles_that_cannot_be(tile: dict[str, int], words: str) -> None:
    """What a user may ask for, and why not."""
    form = replace(PLAIN, rows=256, columns=256, depth=128, wide=128)
    with pytest.raises(UsageError, match=words):
        planned(fused(form), "attention", tile)


@pytest.mark.parametrize(
    ("gradient", "kind"),
    one_in(4, [(True, "bf16"), (False, "bf16"), (False, "f32"), (True, "f32")]),
)
@pytest.mark.parametrize("depth", [128, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("device", ["sm_90", pytest.param("sm_80", marks=pytest.mark.slow)])
def test_nothing_spills(device: str, depth: int, gradient: bool, kind: str) -> None:
    """The default tiles of usual sizes leave registers for all sums; no array is in memory."""
    try:
        nvrtc_for(device)
    except DeviceError:
        pytest.skip("NVRTC is not installed")
    form = AttentionText(64, 512, 512, depth, depth, kind=kind)
    text = fused(form, gradient=gradient, precision="tf32" if kind == "f32" else "")
    _, _, program = planned(text, "attention")
    compile_everywhere(program.text, (device,))
    found = compile_cuda(program.text, device).resources
    assert all(one.stack == 0 for one in found.values())


def test_wide_gradients() -> None:
    """Keys and values 256 wide: their gradients are two kernels, since no thread holds all sums."""
    form = replace(PLAIN, rows=16, columns=16, depth=256, wide=256, batch=1)
    text = fused(form, gradient=True)
    assert text.count('"name":"attention"') == 4
    check_kernel(text, "attention", everywhere=False)


@pytest.mark.parametrize("init", ["3", "1000", "-1e30"])
def test_inits_of_the_greatest(init: str) -> None:
    """The sum lies below a greatest score that is no score but the init value."""
    text = replace(PLAIN, mask="given", low="-inf", kind="f32", columns=40).text()
    text = text.replace("constant(-inf)\n  m", f"constant({init})\n  m").replace(
        "\n}\n", "\n  ROOT both = (f32[2,32,16], f32[2,32]) tuple(o, l)\n}\n"
    )
    assert f"least = f32[] constant({init})" in text
    module = hloopt.parse(text)
    assert AttentionRecognition(always=True).fuse(module).steps
    q, k, v, keep = (np.array(one) for one in generate(module, 1))
    keep[0] = False
    fused_text = hloopt.optimize(module, "dce").to_text()
    check_kernel(fused_text, "attention", inputs=[q, k, v, keep], everywhere=False)


def test_late_divisions_of_several_sweeps() -> None:
    """A context is divided by what an earlier sweep found: no score is."""
    text = replace(PLAIN, late=True, mask="none", kind="f32").text()
    text = text.replace(
        "weights = f32[2,32,32] convert(e)",
        "shares = f32[2,32,32] broadcast(l), dimensions={0,1}\n"
        "  weights = f32[2,32,32] add(e, shares)",
    )
    module = hloopt.parse(text)
    assert AttentionRecognition(always=True).fuse(module).steps
    check_kernel(hloopt.optimize(module, "dce").to_text(), "attention", everywhere=False)


def test_weights_times_the_greatest() -> None:
    """What the exponentials are computed from cannot be left out of the weights until the end."""
    text = replace(PLAIN, late=True, mask="none", kind="f32").text()
    text = text.replace(
        "weights = f32[2,32,32] convert(e)", "weights = f32[2,32,32] multiply(e, mb)"
    )
    module = hloopt.parse(text)
    assert AttentionRecognition(always=True).fuse(module).steps
    check_kernel(hloopt.optimize(module, "dce").to_text(), "attention", everywhere=False)


@pytest.mark.parametrize("scale", ["100000", "1e-3"])
def test_scaled_weights_in_f16(scale: str) -> None:
    """Weights that f16 holds only once they are divided by their sum are so before they are rounded."""
    text = replace(PLAIN, kind="f16", mask="none", columns=40).text()
    text = text.replace(
        "p = f32[2,32,40] divide(wide_e, lb)",
        f"scale = f32[] constant({scale})\n  scales = f32[2,32,40] broadcast(scale), dimensions={{}}\n"
        "  large = f32[2,32,40] multiply(wide_e, scales)\n  p = f32[2,32,40] divide(large, lb)",
    )
    module = hloopt.parse(text)
    assert AttentionRecognition(always=True).fuse(module).steps
    check_kernel(hloopt.optimize(module, "dce").to_text(), "attention", everywhere=False)


def test_small_divisors() -> None:
    """Scores are divided by what a row has as the text says, where its inverse would overflow."""
    text = """HloModule small
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
body {
  q = f32[16,8] parameter(0)
  k = f32[32,8] parameter(1)
  v = f32[32,8] parameter(2)
  l = f32[16] parameter(3)
  s = f32[16,32] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  lb = f32[16,32] broadcast(l), dimensions={0}
  p = f32[16,32] divide(s, lb)
  zero = f32[] constant(0)
  t = f32[16] reduce(p, zero), dimensions={1}, to_apply=sum
  tb = f32[16,32] broadcast(t), dimensions={0}
  w = f32[16,32] add(p, tb)
  ROOT o = f32[16,8] dot(w, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY main {
  q = f32[16,8] parameter(0)
  k = f32[32,8] parameter(1)
  v = f32[32,8] parameter(2)
  l = f32[16] parameter(3)
  ROOT f = f32[16,8] fusion(q, k, v, l), kind=kCustom, calls=body
}
"""
    q, k, v, _ = (np.array(one) for one in generate(hloopt.parse(text), 1))
    low = np.array(
        [1, -3, 1e-30, 1e-40, -1e-42, 1e30, 3e38, np.inf, 0, np.nan] + [2] * 6, np.float32
    )
    q[2:5] *= np.array([[1e-25], [1e-38], [1e-38]], np.float32)
    check_kernel(text, "attention", inputs=[q, k, v, low], everywhere=False)


def test_devices_without_matrix_units() -> None:
    """sm_75 has no such product of bf16: its lanes multiply."""
    from hloopt.analysis.region import region_of
    from hloopt.kernels.kernel import Site
    from hloopt.kernels.limits import Limits
    from hloopt.kernels.registry import find_kernel
    from hloopt.targets import find_target

    module = hloopt.parse(fused(PLAIN))
    site = Site(region_of(module.entry.root), find_target("t4"), Limits())
    kernel = find_kernel("attention")
    assert kernel.tile(site)["units"] == 0
    with pytest.raises(UsageError, match="do not take these products"):
        kernel.spec(site, {**kernel.tile(site), "units": 1})


@pytest.mark.parametrize("low", ["-inf", "-1e30"])
def test_sums_that_wait_for_sums(low: str) -> None:
    """Greatest score, sum and the sum of the gradient in one sweep: the factor of the latter comes at its end."""
    form = replace(PLAIN, mask="given", low=low, rows=40, columns=50)
    text = form.text(gradient=True)
    text = text.replace("ROOT all = (bf16[2,40,16], ", "ROOT all = (").replace(
        "tuple(o, ", "tuple("
    )
    module = hloopt.optimize(hloopt.parse(text), "dce")
    assert AttentionRecognition(always=True).fuse(module).steps
    module = hloopt.optimize(module, "dce")
    found = [attention_form(region_of(one)) for one in module.entry if custom_name(one)]
    forms = [one for one in found if isinstance(one, Attention)]
    assert sorted(len(one.sweeps) for one in forms) == [1, 2]
    first = next(one for one in forms if len(one.sweeps) == 2)
    kept = first.sweeps[0].rescaling.kept if first.sweeps[0].rescaling else {}
    assert sorted(late is not None for late in kept.values()) == [False, True]
    given = [np.array(one) for one in generate(module, 1)]
    given[3][0, 8:] = True
    given[3][1] = False
    check_kernel(module.to_text(), "attention", inputs=given, everywhere=False)

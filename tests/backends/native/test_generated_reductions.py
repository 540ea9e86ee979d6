"""Native reductions: rows, columns, whole rows, parts; of every size around lanes, blocks and tasks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.kernels.reduction import BLOCK, steps_of
from hloopt.kernels.families.reductions import reductions_of
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets.target import HOST
from tests.backends.native.natively import check_native_kernels
from tests.codegen.reducing import Case, fusions, reduces
from tests.helpers.kernel_code import KernelCode

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SIZES = [
    Case("f32", (2, 8), (1,), init="2"),
    Case("f32", (5, 31), (1,), init="2"),
    Case("f32", (5, 32), (1,), init="2"),
    Case("f32", (3, 33), (1,), init="2"),
    Case("f32", (300, 100), (1,), init="2"),
    Case("f32", (2, 9001), (1,), init="3"),
    Case("f32", (3, 5, 40), (0, 2), init="1"),
    Case("f32", (7, 3, 2, 33), (0, 3), init="1"),
    Case("f32", (9, 64), (0, 1), init="1"),
    Case("f32", (8, 40), (0,), init="2"),
    Case("f32", (33, 31), (0,), init="2"),
    Case("f32", (129, 2), (0,), init="2"),
    Case("f32", (40, 129), (0,), init="2"),
    Case("f32", (33, 12), (0,), init="2"),
    Case("f32", (3, 21, 9), (1,), init="1"),
    Case("f32", (700, 1031), (0,), init="2"),
    Case("f32", (3, 40, 36), (1,), init="1"),
    Case("f32", (2, 20, 3, 5), (1, 2), init="1"),
    Case("f64", (9, 70), (1,), init="1"),
    Case("c64", (30, 20), (0,), init="(1, 2)"),
    Case("f16", (20, 100), (1,), init="1"),
    Case("bf16", (300, 40), (0,), init="3"),
    Case("bf16", (20, 77), (1,), "maximum", "-1"),
    Case("s32", (50, 40), (0,), "maximum", "-5"),
    Case("u32", (70, 50), (1,), "xor", "9"),
    Case("s8", (30, 40), (1,), "minimum", "5"),
    Case("pred", (30, 40), (1,), "and", "true"),
    Case("pred", (30, 40), (0,), "or", "false"),
    Case("f32", (30, 40), (1,), "multiply", "0.5"),
    Case("f32", (30, 40), (1,), "argmax"),
    Case("f32", (70, 40), (0,), "argmax"),
    Case("f32", (19, 10), (0,), "argmax"),
    Case("f16", (40, 50), (1,), "wide-add"),
    Case("f32", (20, 90), (1,), "moments"),
]

PARTS = [
    Case("f32", (400000,), (0,), init="3"),
    Case("f32", (50000, 7), (0,), init="3"),
    Case("f32", (40000, 33), (0,), init="3"),
    Case("s32", (140000,), (0,), "maximum", "-5"),
    Case("f32", (140000,), (0,), "argmax"),
    Case("bf16", (131072,), (0,), init="1"),
]

SOFTMAX = """
    x: f32[{rows},{minor}]
    low = f32[] constant(-inf)
    zero = f32[] constant(0)
    most = f32[{rows}] reduce(x, low), dimensions={{1}}, to_apply=maximum_f32
    across = f32[{rows},{minor}] broadcast(most), dimensions={{0}}
    less = f32[{rows},{minor}] subtract(x, across)
    power = f32[{rows},{minor}] exponential(less)
    sum = f32[{rows}] reduce(power, zero), dimensions={{1}}, to_apply=add_f32
    wide = f32[{rows},{minor}] broadcast(sum), dimensions={{0}}
    share = f32[{rows},{minor}] divide(power, wide)
    ROOT root = (f32[{rows},{minor}], f32[{rows}]) tuple(share, sum)
"""

BESIDE = """
    x: f32[{rows},{minor}]
    y: f32[{kept}]
    zero = f32[] constant(0)
    twice = f32[{rows},{minor}] add(x, x)
    sum = f32[{kept}] reduce(twice, zero), dimensions={{{at}}}, to_apply=add_f32
    less = bf16[{rows},{minor}] convert(twice)
    scaled = f32[{kept}] multiply(sum, y)
    ROOT root = (f32[{kept}], bf16[{rows},{minor}]) tuple(scaled, less)
"""


ALONE = """
    i = f32[{dims}] iota(), iota_dimension=0
    zero = f32[] constant(0)
    squares = f32[{dims}] multiply(i, i)
    sum = f32[{kept}] reduce(squares, zero), dimensions={{{at}}}, to_apply=add_f32
    ROOT root = (f32[{kept}], f32[{dims}]) tuple(sum, i)
"""


def _ends(code: KernelCode) -> Counter[str]:
    """How many functions are called after what part of a reduction they are."""
    return Counter(one.name.rpartition("_")[2] for one in code.functions if "_" in one.name)


def test_sizes_types_and_reducers() -> None:
    """Around lanes, with whole and broken last steps, init values once, for every kind of reducer."""
    check_native_kernels(reduces(SIZES), "native-reduction")


def test_parts() -> None:
    """Few long ones are taken in by parts, which a second launch adds up: the same for any threads."""
    assert _ends(check_native_kernels(reduces(PARTS), "native-reduction")) == {
        "parts": len(PARTS),
        "sum": len(PARTS),
    }


def test_whole_rows() -> None:
    """Rows are reduced, and gone over again with what was found; what is kept of a row, and is not."""
    bodies = [
        SOFTMAX.format(rows=rows, minor=minor) for rows, minor in ((70, 10), (300, 129), (3, 9000))
    ]
    code = check_native_kernels(fusions(bodies), "native-rows")
    kept = {one.name: KernelCode((one,)).named("power_kept") for one in code.functions}
    assert kept["hlo_fusion0"]
    assert kept["hlo_fusion1"]
    assert not kept["hlo_fusion2"], "9000 elements do not stay in the cache"


def test_short_rows_lie_side_by_side() -> None:
    """Rows that fill no vector are computed many at once, their elements one after the other."""
    bodies = [SOFTMAX.format(rows=70, minor=minor) for minor in (2, 3, 8)]
    code = check_native_kernels(fusions(bodies), "native-rows")
    assert not code.named("lanes")
    rows = [one for one in code.loops() if one.var.name.startswith("row")]
    assert [one.is_simd for one in rows] == [True] * len(bodies)


def test_beside_and_behind() -> None:
    """Results as large as what is reduced are stored on the way; what follows is computed once a result."""
    bodies = [
        BESIDE.format(rows=rows, minor=minor, kept=minor, at=0)
        for rows, minor in ((33, 70), (90, 8))
    ]
    check_native_kernels(fusions(bodies), "native-reduction")
    check_native_kernels(fusions([BESIDE.format(rows=33, minor=70, kept=33, at=1)]), "native-rows")


def test_rows_that_fill_a_vector_are_loops() -> None:
    """What a row shares is loaded once for all of its columns; shorter rows lie side by side in a vector."""
    body = """
    x: f32[37,{minor}]
    y: f32[37]
    low = f32[] constant(-inf)
    across = f32[37,{minor}] broadcast(y), dimensions={{0}}
    scores = f32[37,{minor}] add(x, across)
    ROOT most = f32[{minor}] reduce(scores, low), dimensions={{0}}, to_apply=maximum_f32
"""
    bodies = [body.format(minor=minor) for minor in (8, 12, 16, 3)]
    code = check_native_kernels(fusions(bodies), "native-reduction")
    rows = [one.var.name for one in code.loops() if one.var.name.startswith("row")]
    assert len(rows) == 3, "of 8, 12 and 16 columns"


def test_what_shares_nothing_is_launched_alone() -> None:
    """A result as large as what is reduced, computed from nothing, has a launch without a reduction."""
    bodies = [
        ALONE.format(dims=dims, kept=kept, at=at)
        for dims, kept, at in (("300000", "", 0), ("60,40", "40", 0), ("20,2000,3", "20,3", 1))
    ]
    ends = _ends(check_native_kernels(fusions(bodies), "native-reduction"))
    assert ends["parts"] == 2 * ends["sum"] > 0


def test_infinities_and_zeros() -> None:
    """NaN, infinities and zeros of both signs go through lanes as the interpreter has them."""
    rows = np.array([[np.nan, 1], [np.inf, -np.inf], [-0.0, -0.0], [np.inf, 3], [-0.0, 0.0]])
    x = np.repeat(rows.astype(np.float32), 20, axis=1)
    cases = [Case("f32", (5, 40), (1,), name, "-0.0") for name in ("add", "maximum", "minimum")]
    check_native_kernels(reduces(cases), "native-reduction", inputs=[x, x, x], exact=True)


def _site(case: Case) -> Site:
    module = hloopt.parse(reduces([case]))
    (reduce,) = [one for one in module.entry if one.opcode == "reduce"]
    return Site(region_of(reduce), HOST, Limits())


def test_what_is_left_to_loops() -> None:
    """Short rows and columns are folded element by element, and what depends on the order always is."""
    kernel = find_kernel("native-reduction", "native")
    assert kernel.wanted(_site(Case("f32", (100, 7), (1,)))).reason == (
        "rows of 7 elements are as well folded one by one"
    )
    assert not kernel.wanted(_site(Case("f32", (5, 700), (0,))))
    assert kernel.wanted(_site(Case("f32", (100, 8), (1,))))
    pieces = _site(Case("f32", (3, 5, 40), (0, 2), "argmax"))
    assert "a row has several pieces" in kernel.fits(pieces).reason


def test_sums_are_blocked() -> None:
    """A million ones and a tenth: no more than some units in the last place are lost."""
    x = np.full(1 << 20, 1.1, np.float32)
    module = hloopt.parse(reduces([Case("f32", x.shape, (0,))]))
    (found,) = compile_native(module).run([x])
    exact = float(np.sum(x.astype(np.float64)))
    assert abs(float(found) - exact) <= 4 * np.spacing(np.float32(exact))


def test_parts_are_whole_blocks() -> None:
    """No part is empty, whatever the number of steps."""
    for elements in (131072 + 5, 140000, 300001, 4_000_001):
        site = _site(Case("f32", (elements,), (0,)))
        steps = steps_of(site, reductions_of(site.region).groups[0])
        assert steps.parts > 1
        assert (steps.parts - 1) * steps.part_steps < steps.steps <= steps.parts * steps.part_steps
        assert steps.part_steps % BLOCK == 0

"""``topk`` by the kernel of whole rows: every type that has an order, ties, special values, what goes around it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.codegen.families.picking import network
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.row_fusion import RowFusion
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned, ran
from tests.helpers.rarely import one_in
from tests.helpers.support import invoke

ALONE = """HloModule m
ENTRY e {{
  x = {kind}[{rows},{minor}] parameter(0)
  ROOT t = ({kind}[{rows},{count}], s32[{rows},{count}]) topk(x), k={count}, largest={largest}
}}
"""

ROUTER = """HloModule m
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }}
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = {kind}[{rows},{minor}] parameter(0)
  wide = f32[{rows},{minor}] convert(x)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{rows}] reduce(wide, low), dimensions={{1}}, to_apply=max
  mb = f32[{rows},{minor}] broadcast(m), dimensions={{0}}
  d = f32[{rows},{minor}] subtract(wide, mb)
  e = f32[{rows},{minor}] exponential(d)
  s = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  sb = f32[{rows},{minor}] broadcast(s), dimensions={{0}}
  p = f32[{rows},{minor}] divide(e, sb)
  t = (f32[{rows},{count}], s32[{rows},{count}]) topk(p), k={count}, largest=true
  v = f32[{rows},{count}] get-tuple-element(t), index=0
  i = s32[{rows},{count}] get-tuple-element(t), index=1
  vs = f32[{rows}] reduce(v, zero), dimensions={{1}}, to_apply=sum
  vb = f32[{rows},{count}] broadcast(vs), dimensions={{0}}
  w = f32[{rows},{count}] divide(v, vb)
  ROOT o = (f32[{rows},{count}], s32[{rows},{count}], f32[{rows}]) tuple(w, i, vs)
}}
"""


@pytest.mark.parametrize("count", range(1, 13))
def test_a_network_sorts_every_sequence_of_zeros_and_ones(count: int) -> None:
    """What sorts these sorts everything (Knuth, volume 3, 5.3.4, theorem Z)."""
    pairs = list(network(count))
    for given in product((0, 1), repeat=count):
        values = list(given)
        for front, behind in pairs:
            if values[front] < values[behind]:
                values[front], values[behind] = values[behind], values[front]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "rows", "minor", "count"),
    one_in(
        3,
        [
            ("bf16", 17, 129, 5),
            ("f32", 1, 17, 1),
            ("f16", 3, 64, 63),
            ("s32", 2, 1000, 100),
            ("u32", 3, 65, 7),
            ("s8", 5, 129, 9),
            ("u16", 1, 33, 32),
        ],
    ),
)
def test_the_first_elements_and_their_places(
    kind: str, rows: int, minor: int, count: int, largest: str
) -> None:
    """Bit for bit, with ragged rows, ties (of s8 there are many), and all elements but one."""
    text = ALONE.format(kind=kind, rows=rows, minor=minor, count=count, largest=largest)
    check_kernel(text, "whole-row", exact=True, everywhere=minor == 129)


@pytest.mark.every_value
@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_signs_of_zeros_infinities_and_the_bits_of_nans(kind: str, largest: str) -> None:
    """Floats are in their total order; which NaN it is stays."""
    dtype = np.dtype({"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind])
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 65)).astype(dtype)
    x[0, 5], x[0, 9] = np.nan, -np.float32(np.nan)
    x[1], x[1, ::2] = 0, -0.0
    x[2] = -np.inf
    x[3, 3:9], x[3, 1] = np.inf, -np.inf
    bits = np.dtype(f"u{dtype.itemsize}")
    x[4].view(bits)[:] = rng.integers(0, 1 << 8 * dtype.itemsize, 65).astype(bits)
    x[5].view(bits)[:] = (1 << 8 * dtype.itemsize) - 1
    module, plan, kernels = planned(
        ALONE.format(kind=kind, rows=6, minor=65, count=64, largest=largest), "whole-row"
    )
    values, places = ran(module, plan, kernels, [x])
    wanted, at = (np.asarray(one) for one in hloopt.evaluate(module, [x]))
    np.testing.assert_array_equal(places, at)
    assert values.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("kind", "rows", "minor", "count"),
    [("f32", 17, 129, 5), ("bf16", 129, 64, 8), ("f32", 1, 1000, 31), ("bf16", 3, 17, 1)],
)
def test_a_router_is_one_kernel(kind: str, rows: int, minor: int, count: int) -> None:
    """The softmax in front, the choice, and the sum of what was chosen."""
    module = hloopt.parse(ROUTER.format(kind=kind, rows=rows, minor=minor, count=count))
    RowFusion(always=True).fuse(module)
    module = hloopt.optimize(module, "dce")
    assert [one.opcode for one in module.entry if one.opcode == "fusion"] == ["fusion"]
    assert not any(one.opcode in ("topk", "reduce", "divide") for one in module.entry)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, minor)).astype(np.float32)
    x[rows // 2] = 1  # all equal: the first ones
    given = x.astype(ml_dtypes.bfloat16) if kind == "bf16" else x
    check_kernel(module.to_text(), "whole-row", inputs=[given], everywhere=minor == 129)


def test_a_lock_file_leaves_a_router_to_the_pass(tmp_path: Path) -> None:
    """No pair of instructions makes such a fusion; the kernel that it has is the same again."""
    given, lock = tmp_path / "router.hlo", tmp_path / "kernels.lock"
    given.write_text(ROUTER.format(kind="f32", rows=256, minor=64, count=4))
    words = ("kernels", str(given), "-O3", "--target", "h200")
    invoke("optimize", *words[1:], "--write-lock", str(lock))
    assert "[[kernel]]" in lock.read_text()
    free, locked = invoke(*words), invoke(*words, "--lock", str(lock), "--frozen")
    assert locked.exit_code == 0, locked.stderr
    assert locked.stdout == free.stdout


@pytest.mark.parametrize(
    ("kind", "minor", "count", "why"),
    [
        ("f64", 64, 4, "cannot pick"),
        ("f32", 64, 64, "cannot pick"),
        ("f32", 64, 0, "cannot pick"),
        ("f32", 50304, 8, "registers of a thread"),
        ("f32", 8192, 7000, "bytes of shared memory"),
    ],
)
def test_others_are_sorted(kind: str, minor: int, count: int, why: str) -> None:
    """Types that no integer of 32 bits orders, whole rows, long ones."""
    text = ALONE.format(kind=kind, rows=4, minor=minor, count=count, largest="true")
    site = Site(region_of(hloopt.parse(text).entry.root), find_target("h200"), Limits())
    found = find_kernel("whole-row").fits(site)
    assert not found
    assert why in found.reason


@pytest.mark.parametrize("target", ["mi300x", "tpu-v4", "t4"])
def test_other_devices(target: str) -> None:
    """Where no instructions are known the model's own time counts; where there are no threads, nothing."""
    module = hloopt.parse(ROUTER.format(kind="f32", rows=256, minor=64, count=4))
    plan = RowFusion(target=target).fuse(module)
    hloopt.verify(module)
    assert bool(plan.steps) is (target != "tpu-v4")


def test_no_rows_are_no_kernel() -> None:
    """Arrays without elements stay as they are."""
    module = hloopt.parse(ALONE.format(kind="f32", rows=0, minor=64, count=4, largest="true"))
    assert not RowFusion(always=True).fuse(module).steps


def test_what_takes_longer_than_a_sort_is_sorted() -> None:
    """Each element that is wanted is an exchange of all threads."""
    for count, kept in ((8, False), (900, True)):
        text = ALONE.format(kind="f32", rows=4096, minor=1024, count=count, largest="true")
        module = hloopt.parse(text)
        RowFusion().fuse(module)
        assert any(one.opcode == "topk" for one in module.entry) is kept

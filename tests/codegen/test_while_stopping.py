"""Work items that stop each by itself, in both kernels: where the condition is more than an ``or`` of one pred."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.analysis.parallel_loop.block_mapping import block_mapping
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.targets import find_target
from tests.analysis.parallel_loop.loop_module import loop_module
from tests.codegen.harness import check_kernel

ASKING = {
    "any, and a cap": """  ask = pred[] reduce(more, no), dimensions={0}, to_apply=any
  most = s32[] constant(4)
  early = pred[] compare(i, most), direction=LT
  ROOT r = pred[] and(early, ask)""",
    "not all": """  done = pred[40] not(more)
  all = pred[] reduce(done, yes), dimensions={0}, to_apply=every
  ROOT r = pred[] not(all)""",
    "how many": """  ones = s32[40] convert(more)
  left = s32[] reduce(ones, zero), dimensions={0}, to_apply=count
  ROOT r = pred[] compare(left, zero), direction=GT""",
    "the greatest": """  least = s32[] constant(-2147483648)
  top = s32[] reduce(x1, least), dimensions={0}, to_apply=most_s
  ROOT r = pred[] compare(top, zero), direction=GT""",
}

MORE = """  limit = s32[40] broadcast(zero), dimensions={}
  more = pred[40] compare(x1, limit), direction=GT
"""

BODY = (
    MORE
    + """  ones = s32[40] broadcast(one), dimensions={}
  less = s32[40] subtract(x1, ones)
  y = s32[40] select(more, less, x1)
  product = s32[40] multiply(x2, x1)
  z = s32[40] select(more, product, x2)"""
)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("any, and a cap", "while-per-thread"),
        ("how many", "while-per-thread"),
        ("the greatest", "while-per-thread"),
        ("not all", "while-per-block"),
    ],
)
def test_each_unit_runs_as_long_as_its_own_part_holds(name: str, kernel: str) -> None:
    """Of elements that end at different trips, each has what the whole loop leaves it with."""
    text = loop_module(["s32[40]"] * 2, BODY, ["y", "z"], condition=MORE + ASKING[name])
    module = hloopt.parse(text)
    loop = next(one for one in module.entry if one.opcode == "while")
    find = thread_mapping if kernel == "while-per-thread" else block_mapping
    mapping = find(loop, find_target("h200"))
    assert (mapping.problem, mapping.parallel.iterations.kind) == ("", "element")
    wrap_loop(mapping.parallel, "loop", 64)
    numbers = np.random.default_rng(0)
    inputs = [numbers.integers(low, 9, 40).astype(np.int32) for low in (-3, 1)]
    check_kernel(module.to_text(), kernel, inputs=inputs, exact=True, everywhere=False)

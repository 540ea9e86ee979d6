"""Sorting networks in shared memory and in global memory, of one array and of several."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.codegen.harness import check_kernel
from tests.helpers.kernel_code import KernelCode


def _text(length: int) -> str:
    """Rows of keys, which have equal ones among them, with values that move along."""
    return f"""HloModule m

before {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  x = f32[] parameter(2)
  y = f32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
  k = s32[3,{length}] parameter(0)
  n = s32[] constant(17)
  s = s32[3,{length}] broadcast(n), dimensions={{}}
  r = s32[3,{length}] remainder(k, s)
  v = f32[3,{length}] parameter(1)
  ROOT t = (s32[3,{length}], f32[3,{length}]) sort(r, v), dimensions={{1}}, is_stable=true, to_apply=before
}}
"""


@pytest.mark.parametrize("length", [1, 2, 64, 100])
def test_a_row_in_shared_memory(length: int) -> None:
    check_kernel(_text(length), "block-sort")


@pytest.mark.parametrize(
    ("length", "tile"), [(64, {"tile": 64}), (300, {}), (300, {"tile": 64}), (512, {"tile": 128})]
)
def test_rows_in_global_memory(length: int, tile: Mapping[str, int]) -> None:
    """Rows that fill tiles and rows that do not, of one tile and of several."""
    names = [
        one.name
        for one in KernelCode.of(check_kernel(_text(length), "bitonic-sort", tile)).functions
    ]
    assert any(name.endswith("_step") for name in names) == (length > tile.get("tile", 512))


LONE = """HloModule m

before {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GT
}

ENTRY main {
  k = s32[3,100] parameter(0)
  ROOT t = s32[3,100] sort(k), dimensions={1}, to_apply=before
}
"""


def test_positions_are_carried_where_equal_elements_can_be_told_apart() -> None:
    """Nothing tells equal integers apart that come alone."""
    for text, arrays in ((_text(100), 3), (LONE, 1)):
        assert len(KernelCode.of(check_kernel(text, "block-sort")).arrays("shared")) == arrays

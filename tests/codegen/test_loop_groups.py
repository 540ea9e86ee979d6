"""Results of different sizes in one launch of the loop kernel: each has blocks of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.kernels.kernel import Site
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.spec import Launch
from tests.codegen.harness import LIMITS, TARGET, check_kernel
from tests.helpers.rarely import one_in


def _text(sizes: list[int], kind: str = "f32") -> str:
    """A fusion that adds and multiplies the halves of one array."""
    body, shapes = [f"x = {kind}[{sum(sizes)}] parameter(0)"], []
    for at, size in enumerate(sizes):
        begin = sum(sizes[:at])
        body += [f"h{at} = {kind}[{size}] slice(x), slice={{[{begin}:{begin + size}]}}"]
        body += [f"y{at} = {kind}[{size}] {('multiply', 'add')[at % 2]}(h{at}, h{at})"]
        shapes.append(f"{kind}[{size}]")
    whole = f"({', '.join(shapes)})"
    body.append(f"ROOT r = {whole} tuple({', '.join(f'y{at}' for at in range(len(sizes)))})")
    lines = "\n  ".join(body)
    return (
        f"HloModule m\nfused {{\n  {lines}\n}}\nENTRY e {{\n  p = {kind}[{sum(sizes)}] parameter(0)\n"
        f"  ROOT f = {whole} fusion(p), kind=kLoop, calls=fused\n}}\n"
    )


def _launches(text: str, grid: int = TARGET.grid_limit[0]) -> list[Launch]:
    fusion = hloopt.parse(text).entry.root
    target = replace(TARGET, grid_limit=(grid, *TARGET.grid_limit[1:]))
    site = Site(region_of(fusion), target, LIMITS)
    kernel = find_kernel("loop")
    return [one for one in kernel.spec(site, kernel.tile(site)).steps if isinstance(one, Launch)]


@pytest.mark.parametrize("unroll", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "kind"),
    one_in(
        3, [([5, 7], "f32"), ([128, 129, 1], "f32"), ([300, 5, 300, 5], "s32"), ([3, 1000], "pred")]
    ),
)
def test_each_size_has_its_blocks(sizes: list[int], kind: str, unroll: int) -> None:
    text = _text(sizes, kind) if kind != "pred" else _text(sizes, "u8")
    (launch,) = _launches(text)
    assert launch.grid[0] == sum(-(-size // launch.block[0]) for size in set(sizes))
    check_kernel(text, "loop", {"unroll": unroll, "vector": unroll})


def test_equal_sizes_share_their_threads() -> None:
    (launch,) = _launches(_text([300, 300, 300]))
    assert launch.grid[0] * launch.block[0] < 600


def test_a_grid_without_room_for_all_is_a_launch_for_each_size() -> None:
    text = _text([300, 500])
    assert len(_launches(text, grid=7)) == 1
    assert [one.grid[0] for one in _launches(text, grid=6)] == [3, 4]


def test_an_empty_result_has_no_blocks() -> None:
    (launch,) = _launches(_text([0, 40]))
    assert launch.grid[0] == 1
    check_kernel(_text([0, 40]), "loop")

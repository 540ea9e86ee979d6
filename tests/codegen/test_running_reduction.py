"""Running reductions along rows on the emulator."""

from __future__ import annotations

import pytest

from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.reducing import Case, fusions

SUMS = """
    x: {k}[{r},{n}]
    y: {k}[{r},{n}]
    p = {k}[{r},{n}] multiply(x, y)
    start: {k}[]
    s = {k}[{r},{n}] reduce-window(p, start), window={{size=1x{n} pad=0_0x{pad}}}, to_apply={op}_{k}
    t = {k}[{r},{n}] subtract(s, y)
    ROOT o = ({k}[{r},{n}], {k}[{r},{n}]) tuple(t, s)
"""
"""Of what is computed on the way, followed by elementwise ops, with an init value from memory."""


def _filled(
    rows: int, minor: int, kind: str = "f32", op: str = "add", *, back: bool = False
) -> str:
    pad = f"0_{minor - 1}" if back else f"{minor - 1}_0"
    return SUMS.format(r=rows, n=minor, k=kind, op=op, pad=pad)


@pytest.mark.parametrize("back", [False, True])
def test_rows_of_every_size(back: bool) -> None:
    """Parts of warps, whole ones, several steps of a block; from the first element on and from the last."""
    sizes = [(3, 65), (5, 96), (2, 128), (3, 1000), (1, 4099), (2, 20000)]
    check_kernel(fusions([_filled(*size, back=back) for size in sizes]), "running-reduction")


def test_types_and_reducers() -> None:
    """Integers wrap, narrow floats are rounded once, extrema and products have their identities."""
    bodies = [_filled(3, 200, "s32"), _filled(2, 130, "f32", "maximum"), _filled(2, 300, "f64")]
    reducers = [Case("s32", (), ()), Case("f64", (), ()), Case("bf16", (), ())]
    bodies.append(_filled(3, 400, "bf16"))
    check_kernel(fusions(bodies, reducers), "running-reduction")


def test_tiles() -> None:
    """Threads and neighbours of the user's own."""
    text = fusions([_filled(3, 960)])
    for threads, vector in [(32, 1), (64, 8), (1024, 1)]:
        tile = {"threads": threads, "vector": vector}
        check_kernel(text, "running-reduction", tile, everywhere=False, twice=False)


def _site(body: str) -> Site:
    module, _, _ = planned(fusions([body]))
    found = [inner for inner in module.entry if inner.opcode == "fusion"]
    return Site(region_of(found[0]), find_target("h200"), Limits())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_filled(4, 64), "rows of 64 elements: at most 64 are folded from the first one on"),
        (_filled(4, 100).replace("size=1x100 pad=0_0x99_0", "size=4x1 pad=3_0x0_0"), "s does not run along rows"),
        (
            _filled(4, 100).replace("t = f32[4,100] subtract(s, y)", "t = f32[4,100] reverse(s), dimensions={1}"),
            "t needs more of s than its own place",
        ),
    ],
)  # fmt: skip
def test_refusals(body: str, reason: str) -> None:
    """What runs along no rows, and what mixes places, is refused."""
    verdict = find_kernel("running-reduction").fits(_site(body))
    assert (verdict.ok, verdict.reason) == (False, reason)


def test_tiles_that_cannot_be() -> None:
    """A tile is refused with the rule it breaks."""
    site, kernel = _site(_filled(3, 100)), find_kernel("running-reduction")
    with pytest.raises(UsageError, match="threads=48 must be whole warps"):
        kernel.spec(site, {"threads": 48, "vector": 1})
    with pytest.raises(UsageError, match="vector=8 must be a power of two that divides 100"):
        kernel.spec(site, {"threads": 32, "vector": 8})

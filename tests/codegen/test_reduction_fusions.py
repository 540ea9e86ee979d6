"""Fusions around reductions: what is fused in front, behind and beside."""

from __future__ import annotations

import pytest

from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.reducing import Case, fusions, reduces
from tests.helpers.kernel_code import KernelCode

MEAN = """
    x: {x}
    y: {y}
    start: f32[]
    power = {x} multiply(x, x)
    sum = {y} reduce(power, start), dimensions={{{at}}}, to_apply=add_f32
    most = {y} reduce(x, start), dimensions={{{at}}}, to_apply=maximum_f32
    scaled = {y} multiply(sum, y)
    moved = {y} subtract(scaled, most)
    ROOT root = {y} sqrt(moved)
"""
"""Two reductions in one result, an operand in front and one behind, an init value from memory."""

SIDES = """
    x: {x}
    z: {x}
    zero = f32[] constant(0)
    twice = {x} add(x, x)
    sum = {y} reduce(twice, zero), dimensions={{{at}}}, to_apply=add_f32
    less = bf16[{dims}] convert(twice)
    other = {y} reduce(z, zero), dimensions={{{at}}}, to_apply=maximum_f32
    flat = f32[{flat}] reshape(twice)
    ROOT root = ({y}, bf16[{dims}], {y}, f32[{flat}]) tuple(sum, less, other, flat)
"""
"""Two launches: a reduction with its input beside it in two shapes, and one of something else."""

RESHAPED = """
    x: f32[6,40,5]
    y: f32[5,40,6]
    t = f32[6,40,5] transpose(y), dimensions={2,1,0}
    both = f32[6,40,5] add(x, t)
    zero = f32[] constant(1)
    sum = f32[6] reduce(both, zero), dimensions={1,2}, to_apply=add_f32
    wide = f32[2,1,3] reshape(sum)
    ROOT root = f32[2,1,3] negate(wide)
"""

SHAPES = [
    ((33, 70), 1),
    ((70, 34), 0),
    ((4, 2050), 1),
    ((2, 40, 6), 1),
    ((2, 3, 64), 2),
    ((90, 8), 0),
]


def _bodies(template: str, *chosen: int) -> list[str]:
    bodies = []
    for dims, at in (SHAPES[number] for number in chosen):
        kept = ",".join(str(size) for number, size in enumerate(dims) if number != at)
        text = ",".join(map(str, dims))
        elements = 1
        for size in dims:
            elements *= size
        bodies.append(
            template.format(x=f"f32[{text}]", y=f"f32[{kept}]", dims=text, flat=elements, at=at)
        )
    return bodies


def _site(text: str) -> Site:
    module, _, _ = planned(text)
    found = [inner for inner in module.entry if inner.opcode in ("fusion", "reduce")]
    return Site(region_of(found[0]), find_target("h200"), Limits())


def _verdict(kernel: str, text: str) -> str:
    verdict = find_kernel(kernel).fits(_site(text))
    assert not verdict
    return verdict.reason


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        ("row-reduction", (0, 2, 4)),
        ("multi-row-reduction", (4,)),
        ("column-reduction", (1, 3)),
        ("small-column-reduction", (5,)),
        ("split-reduction", (2, 1)),
    ],
)
def test_around_reductions(kernel: str, shapes: tuple[int, ...]) -> None:
    """What comes before, behind and beside reductions is computed with them, each element once."""
    bodies = [*_bodies(MEAN, *shapes), *_bodies(SIDES, *shapes)]
    if kernel == "row-reduction":
        bodies.append(RESHAPED)
    program = check_kernel(fusions(bodies), kernel, everywhere=kernel == "column-reduction")
    if kernel == "row-reduction":
        first = next(one for one in KernelCode.of(program).functions if one.name == "hlo_fusion0")
        assert KernelCode((first,)).reads("p0") == 1


def test_one_launch_for_what_shares_its_input() -> None:
    """Results that read the same are computed by one launch, others by one of their own."""
    _, plan, _ = planned(fusions(_bodies(SIDES, 0)), "row-reduction")
    (step,) = [step for step in plan.steps if getattr(step, "spec", None) is not None]
    assert [launch.function for launch in step.spec.steps] == ["_0", "_1"]
    assert [
        [argument.place.number for argument in launch.arguments if argument.place.kind == "result"]
        for launch in step.spec.steps
    ] == [[0, 1, 3], [2]]


def test_order_matters() -> None:
    """A reducer that depends on the order of elements stays with the kernel that keeps it."""
    first = "first { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] copy(a) }"
    text = reduces([Case("f32", (40, 64), (1,))])
    text = text.replace("ENTRY", f"{first}\nENTRY").replace("to_apply=add_f32", "to_apply=first")
    assert _verdict("row-reduction", text) == (
        "the reducer of reduce0 depends on the order: of (-2.0) and (-1.0) it makes -2.0, swapped -1.0"
    )
    assert _verdict("whole-row", text) == _verdict("split-reduction", text)


@pytest.mark.parametrize(
    ("kernel", "body", "reason"),
    [
        ("row-reduction", "x: f32[4]\nROOT y = f32[4] negate(x)", "nothing is reduced"),
        (
            "row-reduction",
            """x: f32[64,64]
            zero = f32[] constant(0)
            ROOT s = f32[64] reduce(x, zero), dimensions={0}, to_apply=add_f32""",
            "it reduces columns, not rows",
        ),
        (
            "column-reduction",
            """x: f32[64,64]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={0}, to_apply=add_f32
            ROOT t = s4[64] convert(s)""",
            "result 0 is s4: its elements share bytes",
        ),
        (
            "row-reduction",
            """x: f32[64,64]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32
            t = f32[64] reduce(x, zero), dimensions={0}, to_apply=add_f32
            ROOT r = (f32[64], f32[64]) tuple(s, t)""",
            "t does not reduce rows of 1x64x64 as the others do",
        ),
        (
            "row-reduction",
            """x: f32[64,64]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32
            b = f32[64,64] broadcast(s), dimensions={0}
            ROOT r = (f32[64], f32[64,64]) tuple(s, b)""",
            "result 1 is as large as what is reduced, and needs s",
        ),
        (
            "small-column-reduction",
            """x: f32[64,5]
            zero = f32[] constant(0)
            ROOT s = f32[5] reduce(x, zero), dimensions={0}, to_apply=add_f32""",
            "5 columns do not divide a warp of 32",
        ),
        (
            "atomic-reduction",
            """x: bf16[640,640]
            zero = bf16[] constant(0)
            ROOT s = bf16[640] reduce(x, zero), dimensions={0}, to_apply=add_bf16""",
            "s would be rounded to bf16 by each block",
        ),
        (
            "atomic-reduction",
            """x: f32[640,640]
            zero = f32[] constant(0)
            s = f32[640] reduce(x, zero), dimensions={0}, to_apply=add_f32
            ROOT r = f32[640] negate(s)""",
            "r is computed after its reduction, which no block finishes",
        ),
    ],
)  # fmt: skip
def test_refusals(kernel: str, body: str, reason: str) -> None:
    """A kernel that cannot run a region says what of it does not fit."""
    assert _verdict(kernel, fusions([body], [Case("bf16", (), ())])) == reason


def test_rules() -> None:
    """Which kernel is wanted follows XLA's limits, which are options."""
    site = _site(reduces([Case("f32", (8, 20000), (1,))]))
    wanted = [name for name in _NAMES if find_kernel(name).fits(site) and _wants(name, site)]
    assert wanted == ["split-reduction"]
    verdict = find_kernel("row-reduction").wanted(site)
    assert (
        verdict.reason
        == "rows of 1x8x20000: a block finishes at most rows of 16384 in batches of 8"
    )
    assert verdict.option == "reduction_row_elements"
    raised = Site(site.region, site.target, Limits(reduction_row_elements=20000))
    assert find_kernel("row-reduction").wanted(raised)
    short = _site(reduces([Case("f32", (5000, 16), (1,))]))
    assert [name for name in _NAMES if find_kernel(name).fits(short) and _wants(name, short)] == [
        "multi-row-reduction",
        "row-reduction",
    ]
    few = _site(reduces([Case("f32", (5000, 9), (1,))]))
    assert not any(_wants(name, few) for name in _NAMES if find_kernel(name).fits(few))


_NAMES = (
    "whole-row",
    "multi-row-reduction",
    "row-reduction",
    "small-column-reduction",
    "column-reduction",
    "split-reduction",
    "atomic-reduction",
)


def _wants(name: str, site: Site) -> bool:
    return bool(find_kernel(name).wanted(site))


@pytest.mark.parametrize(
    ("kernel", "tile", "message"),
    [
        (
            "row-reduction",
            {"vector": 3},
            "row-reduction: vector=3 must be one of (1, 2, 4, 8, 16) and divide 96 elements",
        ),
        (
            "row-reduction",
            {"rows": 3, "threads": 16},
            "row-reduction: a block of 48 threads; it has whole warps, 1024 threads at most",
        ),
        (
            "row-reduction",
            {"rows": 1, "threads": 48},
            "row-reduction: a block of 48 threads; it has whole warps, 1024 threads at most",
        ),
        (
            "row-reduction",
            {"rows": 2, "threads": 48},
            "row-reduction: threads=48 must be a power of two below 32, or whole warps",
        ),
        (
            "split-reduction",
            {"parts": 0},
            "split-reduction: parts=0 must be at least 1 and at most 1 steps",
        ),
    ],
)
def test_tiles_that_cannot_be(kernel: str, tile: dict[str, int], message: str) -> None:
    """A tile that no block can have is refused with what would do."""
    site = _site(reduces([Case("f32", (8, 96), (1,))]))
    found: Kernel = find_kernel(kernel)
    with pytest.raises(UsageError) as caught:
        found.spec(site, {**found.tile(site), **tile})
    assert caught.value.message == message


def test_small_reductions_beside() -> None:
    """A reduction that one thread had best do alone is computed where its element is, beside the others."""
    body = """
        x: f32[8,8]
        y: f32[8]
        zero = f32[] constant(0)
        column = f32[8] reduce(x, zero), dimensions={0}, to_apply=add_f32
        sum = f32[8] add(column, y)
        total = f32[] reduce(y, zero), dimensions={0}, to_apply=add_f32
        ROOT root = (f32[8], f32[]) tuple(sum, total)
    """
    program = check_kernel(fusions([body]), "multi-row-reduction", everywhere=False, twice=False)
    assert len(KernelCode.of(program).functions) == 1


@pytest.mark.parametrize(
    ("dims", "at", "kernel"),
    [((4096, 128), 0, "column-reduction"), ((64, 4096, 16), 1, "small-column-reduction"), ((8, 40, 16384), 0, "")],
)  # fmt: skip
def test_few_blocks(dims: tuple[int, ...], at: int, kernel: str) -> None:
    """Where a few blocks would read long while most cores have nothing, blocks share each result."""
    reduced = (at,) if kernel else (0, 2)
    site = _site(reduces([Case("f32", dims, reduced)]))
    wanted = [name for name in _NAMES if find_kernel(name).fits(site) and _wants(name, site)]
    assert wanted == ["split-reduction"]
    alone = Site(site.region, site.target, Limits(reduction_split_steps=1 << 30))
    assert _wants(kernel or "row-reduction", alone)
    assert not _wants("split-reduction", alone)


def _many(kind: str, count: int) -> str:
    """Reductions of columns that all share operands with their neighbours."""
    lines = [f"x{at}: {kind}[70,66]" for at in range(count)]
    lines.append(f"one = {kind}[] constant(1)")
    for at in range(count):
        lines.append(f"y{at} = {kind}[70,66] add(x{at}, x{(at + 1) % count})")
        lines.append(
            f"r{at} = {kind}[66] reduce(y{at}, one), dimensions={{0}}, to_apply=add_{kind}"
        )
    shapes = ", ".join([f"{kind}[66]"] * count)
    names = ", ".join(f"r{at}" for at in range(count))
    return "\n".join([*lines, f"ROOT all = ({shapes}) tuple({names})"])


def test_many_results() -> None:
    """So many results that tiles fill shared memory: fewer warps, narrower vectors, no spills."""
    text = fusions([_many("f64", 8), _many("f32", 24)], [Case("f64", (), ())])
    program = check_kernel(text, "column-reduction", twice=False)
    assert len(KernelCode.of(program).functions) == 2

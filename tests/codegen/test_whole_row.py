"""Whole rows on the emulator: softmax, norms, their gradients, whatever follows a reduction of the same row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, compile_everywhere, planned
from tests.codegen.reducing import Case, fusions
from tests.helpers.kernel_code import KernelCode
from tests.helpers.rarely import one_in

SOFTMAX = """
    x: {k}[{r},{n}]
    c = f32[{r},{n}] convert(x)
    least = f32[] constant(-inf)
    zero = f32[] constant(0)
    m = f32[{r}] reduce(c, least), dimensions={{1}}, to_apply=maximum_f32
    mb = f32[{r},{n}] broadcast(m), dimensions={{0}}
    d = f32[{r},{n}] subtract(c, mb)
    e = f32[{r},{n}] exponential(d)
    s = f32[{r}] reduce(e, zero), dimensions={{1}}, to_apply=add_f32
    sb = f32[{r},{n}] broadcast(s), dimensions={{0}}
    q = f32[{r},{n}] divide(e, sb)
    ROOT y = {k}[{r},{n}] convert(q)
"""

LOG_SOFTMAX = """
    x: f32[{r},{n}]
    b: f32[{n}]
    bb = f32[{r},{n}] broadcast(b), dimensions={{1}}
    c = f32[{r},{n}] add(x, bb)
    least = f32[] constant(-inf)
    zero = f32[] constant(0)
    m = f32[{r}] reduce(c, least), dimensions={{1}}, to_apply=maximum_f32
    mb = f32[{r},{n}] broadcast(m), dimensions={{0}}
    d = f32[{r},{n}] subtract(c, mb)
    e = f32[{r},{n}] exponential(d)
    s = f32[{r}] reduce(e, zero), dimensions={{1}}, to_apply=add_f32
    l = f32[{r}] log(s)
    lb = f32[{r},{n}] broadcast(l), dimensions={{0}}
    q = f32[{r},{n}] subtract(d, lb)
    ROOT y = (f32[{r},{n}], f32[{r}]) tuple(q, l)
"""

LAYER_NORM = """
    x: {k}[{r},{n}]
    g: f32[{n}]
    c = f32[{r},{n}] convert(x)
    zero = f32[] constant(0)
    s = f32[{r}] reduce(c, zero), dimensions={{1}}, to_apply=add_f32
    share = f32[] constant({share})
    shares = f32[{r}] broadcast(share), dimensions={{}}
    mean = f32[{r}] multiply(s, shares)
    means = f32[{r},{n}] broadcast(mean), dimensions={{0}}
    d = f32[{r},{n}] subtract(c, means)
    dd = f32[{r},{n}] multiply(d, d)
    v = f32[{r}] reduce(dd, zero), dimensions={{1}}, to_apply=add_f32
    var = f32[{r}] multiply(v, shares)
    eps = f32[] constant(0.01)
    least = f32[{r}] broadcast(eps), dimensions={{}}
    sure = f32[{r}] add(var, least)
    scale = f32[{r}] rsqrt(sure)
    column = f32[{r},1] reshape(scale)
    scales = f32[{r},1] broadcast(column), dimensions={{0,1}}
    row = f32[{r}] reshape(scales)
    wide = f32[{r},{n}] broadcast(row), dimensions={{0}}
    y = f32[{r},{n}] multiply(d, wide)
    gs = f32[{r},{n}] broadcast(g), dimensions={{1}}
    yg = f32[{r},{n}] multiply(y, gs)
    o = {k}[{r},{n}] convert(yg)
    ROOT t = ({k}[{r},{n}], f32[{r}], f32[{r}]) tuple(o, mean, scale)
"""

GRADIENT = """
    y: f32[{r},{n}]
    dy: f32[{r},{n}]
    z: f32[{n},{r}]
    scale: f32[{r}]
    scales = f32[{r},{n}] broadcast(scale), dimensions={{0}}
    zt = f32[{r},{n}] transpose(z), dimensions={{1,0}}
    p = f32[{r},{n}] multiply(y, dy)
    start: f32[]
    s = f32[{r}] reduce(p, start), dimensions={{1}}, to_apply=add_f32
    most = f32[{r}] reduce(dy, start), dimensions={{1}}, to_apply=maximum_f32
    both = f32[{r}] add(s, most)
    sb = f32[{r},{n}] broadcast(both), dimensions={{0}}
    d = f32[{r},{n}] subtract(dy, sb)
    q = f32[{r},{n}] multiply(y, d)
    scaled = f32[{r},{n}] multiply(q, scales)
    w = f32[{r},{n}] multiply(scaled, zt)
    ROOT t = (f32[{r},{n}], f32[{r},{n}], f32[{r}]) tuple(q, w, most)
"""
"""Two reductions in one phase, operands with a value a row and transposed, results beside each other."""

BEST = """
    x: f32[{r},{n}]
    i = s32[{r},{n}] iota(), iota_dimension=1
    low = f32[] constant(-inf)
    none = s32[] constant(0)
    b = (f32[{r}], s32[{r}]) reduce(x, i, low, none), dimensions={{1}}, to_apply=argmax_f32
    v = f32[{r}] get-tuple-element(b), index=0
    j = s32[{r}] get-tuple-element(b), index=1
    vb = f32[{r},{n}] broadcast(v), dimensions={{0}}
    jb = s32[{r},{n}] broadcast(j), dimensions={{0}}
    d = f32[{r},{n}] subtract(vb, x)
    at = pred[{r},{n}] compare(i, jb), direction=EQ
    ROOT t = (f32[{r},{n}], pred[{r},{n}]) tuple(d, at)
"""
"""A reducer without an identity, whose two outputs go back to the row."""

RESHAPED = """
    x: f32[{h},2,{n}]
    flat = f32[{r},{n}] reshape(x)
    zero = f32[] constant(0)
    s = f32[{h},2] reduce(x, zero), dimensions={{2}}, to_apply=add_f32
    sb = f32[{h},2,{n}] broadcast(s), dimensions={{0,1}}
    d = f32[{h},2,{n}] subtract(x, sb)
    f = f32[{r},{n}] reshape(d)
    ff = f32[{r},{n}] multiply(f, flat)
    v = f32[{r}] reduce(ff, zero), dimensions={{1}}, to_apply=add_f32
    vb = f32[{r},{n}] broadcast(v), dimensions={{0}}
    ROOT q = f32[{r},{n}] add(f, vb)
"""
"""Rows with their leading dimensions apart and together."""

NORM_GRADIENT = """
    x: {k}[{r},{n}]
    dy: {k}[{r},{n}]
    g: {k}[{n}]
    c = f32[{r},{n}] convert(x)
    d = f32[{r},{n}] convert(dy)
    gc = f32[{n}] convert(g)
    gb = f32[{r},{n}] broadcast(gc), dimensions={{1}}
    zero = f32[] constant(0)
    three = f32[] constant(3)
    cc = f32[{r},{n}] multiply(c, c)
    s = f32[{r}] reduce(cc, zero), dimensions={{1}}, to_apply=add_f32
    one = f32[] constant(1)
    ones = f32[{r}] broadcast(one), dimensions={{}}
    sure = f32[{r}] add(s, ones)
    scale = f32[{r}] rsqrt(sure)
    wide = f32[{r},{n}] broadcast(scale), dimensions={{0}}
    y = f32[{r},{n}] multiply(c, wide)
    yd = f32[{r},{n}] multiply(y, d)
    dg = f32[{n}] reduce(yd, three), dimensions={{0}}, to_apply=add_f32
    dgk = {k}[{n}] convert(dg)
    db = f32[{n}] reduce(d, zero), dimensions={{0}}, to_apply=add_f32
    low = f32[] constant(-inf)
    most = f32[{n}] reduce(y, low), dimensions={{0}}, to_apply=maximum_f32
    e = f32[{r},{n}] multiply(d, gb)
    ec = f32[{r},{n}] multiply(e, c)
    t = f32[{r}] reduce(ec, zero), dimensions={{1}}, to_apply=add_f32
    tb = f32[{r},{n}] broadcast(t), dimensions={{0}}
    q = f32[{r},{n}] multiply(y, tb)
    dx = f32[{r},{n}] subtract(e, q)
    dxk = {k}[{r},{n}] convert(dx)
    ROOT o = ({k}[{r},{n}], {k}[{n}], f32[{n}], f32[{n}], f32[{r}]) tuple(dxk, dgk, db, most, scale)
"""
"""Sums and maxima over the rows, of what waits for the rows' own sums and of what does not, and their casts."""

SIZES = [
    (5, 1),
    (7, 2),
    (33, 5),
    (40, 8),
    (3, 10),
    (9, 33),
    (130, 64),
    (6, 100),
    (2, 1000),
    (1, 4100),
]


def _filled(template: str, rows: int, minor: int, kind: str = "f32") -> str:
    return template.format(r=rows, n=minor, h=rows // 2, k=kind, share=1 / minor)


def test_rows_of_every_size() -> None:
    """Rows around parts of warps, warps and blocks, alone and several in a block, with a last block not full."""
    bodies = [_filled(SOFTMAX, *size) for size in SIZES]
    bodies += [_filled(LAYER_NORM, *size) for size in SIZES[::3]]
    bodies += [_filled(GRADIENT, *size) for size in SIZES[1::3]]
    check_kernel(fusions(bodies), "whole-row")


@pytest.mark.parametrize(
    "sizes",
    one_in(
        2,
        [
            [(5, 2), (130, 64), (900, 40), (6, 1000), (9, 96, "bf16")],
            [(33, 5), (7, 64), (40, 40), (420, 4100)],
        ],
    ),
)
def test_columns(sizes: Sequence[tuple[Any, ...]]) -> None:
    """Sums over the rows beside the rows' own, with rows after rows in a block, and a last turn not full."""
    check_kernel(fusions([_filled(NORM_GRADIENT, *size) for size in sizes]), "whole-row")


def test_columns_of_few_blocks() -> None:
    """However many blocks share the rows, and whatever part of a block has one."""
    text = fusions([_filled(NORM_GRADIENT, 33, 96), _filled(NORM_GRADIENT, 4, 96)])
    for blocks, rows, threads, vector in [(1, 1, 96, 1), (3, 4, 8, 4), (20, 2, 64, 2)]:
        tile = {"blocks": blocks, "rows": rows, "threads": threads, "vector": vector, "keep": 1}
        check_kernel(text, "whole-row", tile, everywhere=False, twice=False)


def test_too_many_columns() -> None:
    """Accumulators of columns lie in registers: rows that are too long for them are refused."""
    site = _site(fusions([_filled(NORM_GRADIENT, 8, 33000)]))
    verdict = find_kernel("whole-row").fits(site)
    assert not verdict.ok
    assert verdict.reason.startswith("columns need ")


def test_forms() -> None:
    """Logarithms, places of the best, reshaped rows; bf16 and f16 rows, f64 and scalars from memory."""
    bodies = [_filled(LOG_SOFTMAX, *size) for size in [(33, 5), (3, 10)]]
    bodies += [_filled(BEST, *size) for size in [(33, 5), (3, 500)]]
    bodies += [_filled(RESHAPED, *size) for size in [(6, 40)]]
    bodies += [_filled(SOFTMAX, 9, 96, "bf16"), _filled(LAYER_NORM, 4, 100, "f16")]
    bodies += [_filled(LAYER_NORM, 3, 72).replace("f32", "f64"), _filled(SOFTMAX, 4, 12, "f8e5m2")]
    reducers = [Case("f32", (), (), "argmax"), Case("f64", (), ())]
    check_kernel(fusions(bodies, reducers), "whole-row")


def test_rows_too_long_for_registers() -> None:
    """Rows that do not fit in registers are read again in each pass, with the same results."""
    text = fusions([_filled(SOFTMAX, 2, 40001), _filled(LAYER_NORM, 1, 36000)])
    assert not KernelCode.of(check_kernel(text, "whole-row")).arrays("local")


def test_a_row_is_read_once() -> None:
    """What a later pass asks for again is kept: each operand has one place where it is read."""
    code = KernelCode.of(planned(fusions([_filled(SOFTMAX, 300, 1024)]), "whole-row")[2])
    assert code.addresses("load_vector<4>") == ["p0"]
    assert code.reads("p0") == 1
    assert len(code.calls("expf")) == 4
    assert code.arrays("local")


def test_tiles() -> None:
    """Tiles of the user's own, kept or read again, give the same results."""
    text = fusions([_filled(SOFTMAX, 33, 96), _filled(GRADIENT, 5, 96)])
    for rows, threads, vector, keep in [(4, 8, 4, 1), (2, 64, 2, 0), (1, 96, 1, 1)]:
        tile = {"rows": rows, "threads": threads, "vector": vector, "keep": keep}
        check_kernel(text, "whole-row", tile, everywhere=False, twice=False)


def _site(text: str) -> Site:
    module, _, _ = planned(text)
    found = [inner for inner in module.entry if inner.opcode == "fusion"]
    return Site(region_of(found[0]), find_target("h200"), Limits())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            """x: f32[64,40]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32
            b = f32[40,64] broadcast(s), dimensions={1}
            t = f32[64,40] transpose(b), dimensions={1,0}
            ROOT r = f32[64,40] subtract(x, t)""",
            "b needs more of s than its own place or row",
        ),
        (
            """x: f32[64,64]
            zero = f32[] constant(0)
            c = f32[64] reduce(x, zero), dimensions={0}, to_apply=add_f32
            cb = f32[64,64] broadcast(c), dimensions={1}
            d = f32[64,64] subtract(x, cb)
            s = f32[64] reduce(d, zero), dimensions={1}, to_apply=add_f32
            sb = f32[64,64] broadcast(s), dimensions={0}
            ROOT r = f32[64,64] subtract(d, sb)""",
            "cb needs more of c than its own place or row",
        ),
        (
            """x: f32[64,40]
            zero = f32[] constant(0)
            ROOT s = f32[40] reduce(x, zero), dimensions={0}, to_apply=add_f32""",
            "no reduction is over rows",
        ),
        (
            """x: f32[64,40]
            y: f32[7]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32
            n = f32[7] negate(y)
            ROOT r = (f32[64], f32[7]) tuple(s, n)""",
            "result 1 has 7 elements, neither 64 rows' nor 40 elements of each",
        ),
        (
            """x: f32[64,40]
            zero = f32[] constant(0)
            s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32
            b = f32[64,40] broadcast(s), dimensions={0}
            d = f32[64,40] subtract(x, b)
            ROOT r = s4[64,40] convert(d)""",
            "result 0 is s4: its elements share bytes",
        ),
    ],
)  # fmt: skip
def test_refusals(body: str, reason: str) -> None:
    """What is no sequence of passes over the same rows is refused, with the instruction that is none."""
    verdict = find_kernel("whole-row").fits(_site(fusions([body])))
    assert (verdict.ok, verdict.reason) == (False, reason)


def test_wanted_where_a_row_waits() -> None:
    """A reduction alone has better kernels; where a row goes on with its reduction this is the one."""
    kernel = find_kernel("whole-row")
    alone = """x: f32[64,40]
    zero = f32[] constant(0)
    ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add_f32"""
    site = _site(fusions([alone]))
    assert kernel.fits(site)
    assert kernel.wanted(site).reason == "no element of a row waits for a reduction of it"
    assert kernel.wanted(_site(fusions([_filled(SOFTMAX, 64, 40)])))


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        ({"vector": 8}, "whole-row: vector=8 must be a power of two that divides 100 elements"),
        ({"threads": 48}, "whole-row: threads=48 must be a power of two below 32, or whole warps"),
        ({"rows": 3, "threads": 16}, "whole-row: a block of 48 threads; it has whole warps, 1024 threads at most"),
        ({"keep": 2}, "whole-row: keep=2 must be 0 or 1"),
        ({"rows": 32, "threads": 1, "vector": 1}, "whole-row: keep=1 of 100 elements a thread; at most 32"),
    ],
)  # fmt: skip
def test_tiles_that_cannot_be(tile: dict[str, int], message: str) -> None:
    """A tile that no block can have is refused with what would do."""
    site = _site(fusions([_filled(SOFTMAX, 64, 100)]))
    kernel = find_kernel("whole-row")
    with pytest.raises(UsageError) as caught:
        kernel.spec(site, {**kernel.tile(site), **tile})
    assert caught.value.message == message


def test_longest_rows_in_registers() -> None:
    """The longest rows that are kept fit in the registers of the largest block."""
    text = fusions([_filled(SOFTMAX, 4, 32768), _filled(GRADIENT, 4, 16384)])
    program = planned(text, "whole-row")[2]
    assert KernelCode.of(program).arrays("local")
    compile_everywhere(program.text)


def test_dimensions_of_one_element_are_reduced_in_place() -> None:
    """A value a row, or an element a place, that is reduced over dimensions of one element stays what it is."""
    body = """x: f32[40,48]
        two = f32[] constant(2)
        zero = f32[] constant(0)
        s = f32[40] reduce(x, zero), dimensions={1}, to_apply=add_f32
        column = f32[40,1] reshape(s)
        t = f32[40] reduce(column, two), dimensions={1}, to_apply=add_f32
        b = f32[40,48] broadcast(t), dimensions={0}
        d = f32[40,48] subtract(x, b)
        deep = f32[40,1,48] reshape(d)
        e = f32[40,48] reduce(deep, two), dimensions={1}, to_apply=add_f32
        v = f32[40] reduce(e, zero), dimensions={1}, to_apply=maximum_f32
        vb = f32[40,48] broadcast(v), dimensions={0}
        q = f32[40,48] divide(e, vb)
        ROOT r = (f32[40,48], f32[40]) tuple(q, t)"""
    code = KernelCode.of(check_kernel(fusions([body]), "whole-row"))
    # No reduction is folded by one thread alone: the loops are those of threads that exchange.
    assert [loop.change for loop in code.loops()] == ["/=", "/="]


def test_a_start_that_was_reduced_is_no_value_of_the_row() -> None:
    """What a reduction over one element starts from is asked for once, whatever the row."""
    body = """x: f32[1,48]
        zero = f32[] constant(0)
        s = f32[1] reduce(x, zero), dimensions={1}, to_apply=add_f32
        start = f32[] reshape(s)
        deep = f32[1,1,48] reshape(x)
        e = f32[1,48] reduce(deep, start), dimensions={1}, to_apply=add_f32
        ROOT q = f32[1,48] subtract(x, e)"""
    verdict = find_kernel("whole-row").fits(_site(fusions([body])))
    assert verdict.reason == "e needs more of start than its own place or row"

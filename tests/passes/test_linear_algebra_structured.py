"""Products with matrices of which something is known: what they become, and that all bits stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.linear_algebra import LinearAlgebra, blocks
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.rewrite import PassLog
from tests.passes.proof import check

N = 12
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
COLUMNS = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"


@pytest.fixture
def _only_products_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small ones gain."""
    monkeypatch.setattr(blocks, "_LEAST", 1)
    monkeypatch.setattr(AlgebraPrices, "elementwise", lambda _, elements: elements * 1e-12)
    monkeypatch.setattr(AlgebraPrices, "sum", lambda _, elements: elements * 1e-12)
    monkeypatch.setattr(
        AlgebraPrices, "matrix_product", lambda _, batch, m, n, k: batch * m * n * k * 1e-6
    )


def module(body: str, element: str = "s32", n: int = N) -> str:
    """``lower``, ``upper`` (without its diagonal), ``banded``, ``hot``, ``eye`` and ``scale`` are matrices."""
    square = f"{element}[{n},{n}]"
    text = f"""HloModule m
ENTRY e {{
a = SQUARE parameter(0)
b = SQUARE parameter(1)
x = {element}[{n}] parameter(2)
at = s32[{n}] parameter(3)
i = s32[{n},{n}] iota(), iota_dimension=0
j = s32[{n},{n}] iota(), iota_dimension=1
zero = {element}[] constant(0)
zeros = SQUARE broadcast(zero), dimensions={{}}
one = s32[] constant(1)
ones = s32[{n},{n}] broadcast(one), dimensions={{}}
next = s32[{n},{n}] add(i, ones)
below = pred[{n},{n}] compare(i, j), direction=GE
above = pred[{n},{n}] compare(i, j), direction=LT
near = pred[{n},{n}] compare(next, j), direction=GE
same = pred[{n},{n}] compare(i, j), direction=EQ
lower = SQUARE select(below, a, zeros)
upper = SQUARE select(above, b, zeros)
half = SQUARE select(near, a, zeros)
before = s32[{n},{n}] subtract(i, ones)
late = pred[{n},{n}] compare(j, before), direction=LT
banded = SQUARE select(late, zeros, half)
places = s32[{n},{n}] broadcast(at), dimensions={{0}}
is_one = pred[{n},{n}] compare(places, j), direction=EQ
hot = SQUARE convert(is_one)
eye = SQUARE convert(same)
spread = SQUARE broadcast(x), dimensions={{0}}
scale = SQUARE select(same, spread, zeros)
{body}
}}
"""
    return text.replace("SQUARE", square)


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize(
    ("factors", "dots"),
    [
        (f"lower, b), {PRODUCT}", 4),
        (f"b, lower), {PRODUCT}", 4),
        (f"upper, a), {PRODUCT}", 4),
        (f"lower, b), {COLUMNS}", 4),
        (f"b, upper), {ROWS}", 4),
        (f"lower, upper), {PRODUCT}", 9),
        (f"upper, lower), {PRODUCT}", 9),
        (f"a, a), {ROWS}", 7),
        (f"a, a), {COLUMNS}", 7),
        (f"hot, b), {PRODUCT}", 0),
        (f"hot, b), {COLUMNS}", 0),
        (f"b, hot), {PRODUCT}", 0),
        (f"b, hot), {ROWS}", 0),
        (f"eye, b), {PRODUCT}", 0),
        (f"b, eye), {COLUMNS}", 0),
        (f"scale, b), {PRODUCT}", 0),
        (f"b, scale), {ROWS}", 0),
    ],
)
def test_integers_keep_all_bits(factors: str, dots: int) -> None:
    text = module(f"ROOT r = SQUARE dot({factors}")
    better, _ = check(text, LinearAlgebra())
    assert sum(one.opcode == "dot" for one in better.entry) == dots


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize(
    "chosen", ["below, p, zeros", "above, p, zeros", "below, zeros, p", "below, p, b", "near, b, p"]
)
def test_what_a_mask_takes_away_is_not_computed(chosen: str) -> None:
    """Symmetric products are not mirrored then either."""
    for factors in (f"a, b), {PRODUCT}", f"a, a), {ROWS}"):
        body = f"p = SQUARE dot({factors}\nROOT r = SQUARE select({chosen})"
        better, _ = check(module(body), LinearAlgebra())
        found = [one for one in better.entry if one.opcode == "dot"]
        assert sum(one.array.elements for one in found) < 0.75 * N * N


@pytest.mark.usefixtures("_only_products_take_time")
def test_what_is_read_elsewhere_too_is_computed() -> None:
    """Whatever a mask takes of it."""
    for readers in (
        "select(below, p, b)\nROOT r = (SQUARE, SQUARE) tuple(p, s)",
        "select(below, p, p)",
    ):
        body = f"p = SQUARE dot(a, b), {PRODUCT}\n" + (
            f"s = SQUARE {readers}" if "tuple" in readers else f"ROOT r = SQUARE {readers}"
        )
        read = hloopt.parse(module(body))
        assert not LinearAlgebra().run(read, PassLog())


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize(
    ("padding", "factors", "dims"),
    [
        (f"5_{N - 7}x0_0", f"padded, b), {PRODUCT}", (2, N)),
        (f"5_{N - 7}x0_0", f"b, padded), {ROWS}", (N, 2)),
        (f"0_0x5_{N - 7}", f"padded, b), {PRODUCT}", (N, N)),
    ],
)
def test_padded_factors_are_multiplied_without_padding(
    padding: str, factors: str, dims: tuple[int, int]
) -> None:
    part = f"s32[2,{N}]" if padding.startswith("5") else f"s32[{N},2]"
    ranges = "[0:2], [0:12]" if padding.startswith("5") else "[0:12], [0:2]"
    body = f"""part = {part} slice(a), slice={{{ranges}}}
    padded = SQUARE pad(part, zero), padding={padding}
    ROOT r = SQUARE dot({factors}"""
    better, _ = check(module(body), LinearAlgebra())
    (dot,) = (one for one in better.entry if one.opcode == "dot")
    assert dot.array.dims == dims
    assert dot.operands[0].array.elements + dot.operands[1].array.elements < 2 * N * N


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize("kind", ["s8", "u8", "u32"])
def test_indices_of_any_type(kind: str) -> None:
    """Negative ones, and those behind the last row, select nothing."""
    body = f"""own = {kind}[{N}] convert(at)
    wide = {kind}[{N},{N}] broadcast(own), dimensions={{1}}
    rows = {kind}[{N},{N}] iota(), iota_dimension=0
    two = {kind}[] constant(2)
    twos = {kind}[{N},{N}] broadcast(two), dimensions={{}}
    later = {kind}[{N},{N}] add(rows, twos)
    mask = pred[{N},{N}] compare(later, wide), direction=EQ
    selecting = SQUARE convert(mask)
    ROOT r = SQUARE dot(selecting, b), {COLUMNS}"""
    better, _ = check(module(body), LinearAlgebra())
    assert [one.opcode for one in better.entry].count("gather") == 1


HOT = """c = s32[4,5,3] iota(), iota_dimension=2
m = pred[4,5,3] compare(spread, c), direction=EQ
hot = s32[4,5,3] convert(m)
"""


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize(
    ("given", "dot", "numbers", "opcode"),
    [
        ("3,6", "s32[4,5,6] dot(hot, x)", ("", "", "2", "0"), "gather"),
        ("6,3", "s32[6,4,5] dot(x, hot)", ("", "", "1", "2"), "gather"),
        ("4,5,6", "s32[3,6] dot(hot, x)", ("", "", "0,1", "0,1"), "scatter"),
        ("5,6,4", "s32[6,3] dot(x, hot)", ("", "", "2,0", "0,1"), "scatter"),
        ("4,3,6", "s32[4,5,6] dot(hot, x)", ("0", "0", "2", "1"), "gather"),
        ("6,3,4", "s32[4,6,5] dot(x, hot)", ("2", "0", "1", "2"), "gather"),
        ("5,3,4", "s32[5,4,4] dot(hot, x)", ("1", "0", "2", "1"), "gather"),
        ("4,5", "s32[4,5,3] dot(hot, x)", ("0,1", "0,1", "", ""), ""),
        ("4,5,6", "s32[4,3,6] dot(hot, x)", ("0", "0", "1", "1"), "scatter"),
        ("6,5,4", "s32[4,6,3] dot(x, hot)", ("2", "0", "1", "1"), "scatter"),
    ],
)
@pytest.mark.parametrize("index", ["4,5", "4", "5"])
def test_rows_selected_in_batches(
    given: str, dot: str, numbers: tuple[str, ...], opcode: str, index: str
) -> None:
    """By an index a matrix, or one for all of them; rows that come back, and rows that are added up."""
    places = {"4,5": "0,1", "4": "0", "5": "1"}[index]
    names = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
    dims = ", ".join(f"{name}={{{value}}}" for name, value in zip(names, numbers, strict=True))
    text = f"""HloModule m
ENTRY e {{
x = s32[{given}] parameter(0)
at = s32[{index}] parameter(1)
spread = s32[4,5,3] broadcast(at), dimensions={{{places}}}
{HOT}ROOT r = {dot}, {dims}
}}
"""
    better, _ = check(text, LinearAlgebra(), changes=bool(opcode), draws=3)
    found = [one.opcode for one in better.entry]
    assert ("dot" in found) != bool(opcode)
    assert not opcode or opcode in found


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batches_of_triangles(batch: tuple[int, ...]) -> None:
    dims = (*batch, N, N)
    shape, numbers = ",".join(map(str, dims)), ",".join(map(str, range(len(batch))))
    rank = len(dims)
    contracted = f"lhs_contracting_dims={{{rank - 1}}}, rhs_contracting_dims={{{rank - 2}}}"
    text = f"""HloModule m
ENTRY e {{
a = s32[{shape}] parameter(0)
b = s32[{shape}] parameter(1)
i = s32[{shape}] iota(), iota_dimension={rank - 2}
j = s32[{shape}] iota(), iota_dimension={rank - 1}
zero = s32[] constant(0)
zeros = s32[{shape}] broadcast(zero), dimensions={{}}
below = pred[{shape}] compare(i, j), direction=GE
lower = s32[{shape}] select(below, a, zeros)
ROOT r = s32[{shape}] dot(lower, b), lhs_batch_dims={{{numbers}}}, rhs_batch_dims={{{numbers}}}, {contracted}
}}
"""
    better, _ = check(text, LinearAlgebra(), draws=3)
    assert sum(one.opcode == "dot" for one in better.entry) == 4


@pytest.mark.usefixtures("_only_products_take_time")
def test_blocks_are_multiplied_alone() -> None:
    body = f"""p = s32[5,{N}] slice(a), slice={{[0:5], [0:{N}]}}
    first = s32[5,5] slice(p), slice={{[0:5], [0:5]}}
    second = s32[7,7] slice(b), slice={{[0:7], [0:7]}}
    wide = s32[5,{N}] pad(first, zero), padding=0_0x0_7
    low = s32[7,{N}] pad(second, zero), padding=0_0x5_0
    both = SQUARE concatenate(wide, low), dimensions={{0}}
    ROOT r = SQUARE dot(both, b), {PRODUCT}"""
    better, _ = check(module(body), LinearAlgebra())
    depths = [one.operands[0].array.dims for one in better.entry if one.opcode == "dot"]
    assert sorted(depths) == [(5, 5), (7, 7)]


@pytest.mark.usefixtures("_only_products_take_time")
@pytest.mark.parametrize("factors", ["lower, b", "hot, b", "eye, b", "scale, b", "b, banded"])
def test_floats_only_where_it_may_reassociate(factors: str) -> None:
    text = module(f"ROOT r = SQUARE dot({factors}), {PRODUCT}", "f32")
    check(text, LinearAlgebra(), changes=False, draws=1)
    log = PassLog(kinds=frozenset({"missed"}))
    assert not LinearAlgebra().run(hloopt.parse(text), log)
    assert log.remarks
    assert "predicted on h200" in log.remarks[0].reason
    check(text, LinearAlgebra(reassociate=True), rtol=1e-4, draws=4)


@pytest.mark.usefixtures("_only_products_take_time")
def test_floats_without_signs_are_selected_by_default() -> None:
    """Nothing that a zero meets is infinite, NaN or negative."""
    body = f"""low = f32[] constant(0)
    high = f32[] constant(9)
    known = SQUARE clamp(low, b, high)
    safe = SQUARE abs(known)
    finite = pred[{N},{N}] compare(known, known), direction=EQ
    numbers = SQUARE convert(i)
    ROOT r = SQUARE dot(hot, numbers), {PRODUCT}"""
    better, _ = check(module(body, "f32"), LinearAlgebra())
    assert [one.opcode for one in better.entry].count("gather") == 1


def test_small_triangles_stay_one_product() -> None:
    text = module(f"ROOT r = SQUARE dot(lower, b), {PRODUCT}", n=64)
    check(text, LinearAlgebra(), changes=False, draws=1)


@pytest.mark.parametrize("size", [2048, 8192])
def test_large_triangles_take_less(size: int) -> None:
    given = hloopt.parse(module(f"ROOT r = SQUARE dot(lower, b), {PRODUCT}", "f32", size))
    log = PassLog(kinds=frozenset({"passed"}))
    assert LinearAlgebra(reassociate=True, target="host").run(given, log)
    hloopt.verify(given)
    assert "flops predicted on host" in log.remarks[0].reason
    work = sum(2 * one.array.elements * one.operands[0].array.dims[1] for one in dots(given))
    assert work == 2 * size**3 * 5 // 8


@pytest.mark.parametrize(
    ("algorithm", "is_cut"), [("", True), (", algorithm=dot_tf32_tf32_f32", False)]
)
def test_products_are_priced_on_the_units_that_make_them(algorithm: str, is_cut: bool) -> None:
    """Half of a triangle pays for its launches in f32 on plain units, not where its factors are rounded."""
    given = hloopt.parse(
        module(f"ROOT r = f32[1024,1024] dot(lower, b), {PRODUCT}{algorithm}", "f32", 1024)
    )
    assert LinearAlgebra(reassociate=True).run(given, PassLog()) is is_cut


def dots(given: Any) -> list[Any]:
    return [one for one in given.entry if one.opcode == "dot"]


@pytest.mark.usefixtures("_only_products_take_time")
def test_infinities_beside_a_triangle_are_left_out() -> None:
    """That is what the option is for, and what the default does not do."""
    text = module(f"ROOT r = SQUARE dot(lower, b), {PRODUCT}", "f32")
    given = hloopt.parse(text)
    assert LinearAlgebra(reassociate=True).run(given, PassLog())
    inputs = [np.ones((N, N), np.float32) for _ in range(2)]
    inputs[1][N - 1, 0] = np.inf
    rest = [np.ones(N, np.float32), np.zeros(N, np.int32)]
    (result,) = hloopt.evaluate(given, [*inputs, *rest])
    assert result[0, 0] == 1
    assert np.isinf(result[N - 1, 0])

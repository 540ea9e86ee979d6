"""Running reductions in blocks have the results of windows as long as the dimension."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.passes.expand.reduce_window_rewriter import ReduceWindowRewriter
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import PassLog
from tests.passes.proof import check


def text(
    element: str, dims: str, window: str, opcode: str, init: str, region: str | None = None
) -> str:
    region = region or f"ROOT r = {element}[] {opcode}(a, b)"
    return (
        f"HloModule m\nfold {{ a = {element}[] parameter(0) b = {element}[] parameter(1) {region} }}\n"
        f"ENTRY e {{\n  x = {element}[{dims}] parameter(0)\n  i = {element}[] constant({init})\n"
        f"  ROOT r = {element}[{dims}] reduce-window(x, i), window={{{window}}}, to_apply=fold\n}}\n"
    )


@pytest.mark.parametrize(
    ("element", "dims", "window", "opcode", "init"),
    [
        ("s32", "64", "size=64 pad=63_0", "add", "0"),
        ("s32", "64", "size=64 pad=0_63", "add", "0"),
        ("u8", "3,21", "size=1x21 pad=0_0x20_0", "multiply", "1"),
        ("s32", "21,3", "size=21x1 pad=0_20x0_0", "add", "0"),
        ("f32", "2,17,2", "size=1x17x1 pad=0_0x16_0x0_0", "maximum", "-inf"),
        ("f32", "40", "size=40 pad=0_39", "minimum", "3"),
        ("bf16", "70", "size=70 pad=69_0", "maximum", "-inf"),
        ("pred", "33", "size=33 pad=32_0", "or", "false"),
        ("pred", "33", "size=33 pad=0_32", "and", "true"),
        ("s8", "100", "size=100 pad=99_0", "add", "0"),
    ],
)
def test_every_bit_stays(element: str, dims: str, window: str, opcode: str, init: str) -> None:
    """Forwards and backwards, in any dimension, whole blocks or not, at one level and at two."""
    one = text(element, dims, window, opcode, init)
    for block in (2, 4, 16):
        _, log = check(one, ReduceWindowRewriter(block=block), draws=4)
        assert log.hits == {"reduce in blocks": 1}


def test_dimensions_up_to_a_size_stay() -> None:
    """``above`` is where rewriting begins."""
    one = text("s32", "64", "size=64 pad=63_0", "add", "0")
    check(one, ReduceWindowRewriter(above=64), changes=False)
    check(one, ReduceWindowRewriter(above=63))


def test_sums_of_floats_need_fast_math() -> None:
    """Their order is another; the results agree within rounding."""
    for element, rtol in (("f32", 1e-5), ("bf16", 3e-2)):
        one = text(element, "100", "size=100 pad=99_0", "add", "0")
        check(one, ReduceWindowRewriter(), changes=False)
        wide = ReduceWindowRewriter(fast_math=True, narrow=False)
        check(one, wide, changes=element == "f32", rtol=rtol)
        better, _ = check(one, ReduceWindowRewriter(fast_math=True), rtol=rtol)
        sizes = [
            max(dim.size for dim in entry.attributes["window"].dims)
            for entry in better.instructions()
            if entry.opcode == "reduce-window"
        ]
        assert sorted(sizes) == [7, 16]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (text("s32", "16", "size=16 pad=15_0", "add", "0"), ""),
        (text("s32", "64", "size=32 pad=31_0", "add", "0"), ""),
        (text("s32", "64", "size=64 pad=32_31", "add", "0"), ""),
        (text("s32", "17,17", "size=17x17 pad=16_0x16_0", "add", "0"), ""),
        (text("s32", "64", "size=64 pad=63_0", "add", "1"), "not the identity of add"),
        (
            text("s32", "64", "size=64 pad=63_0", "", "0", "c = s32[] add(a, b) ROOT d = s32[] negate(c)"),
            "not one associative op",
        ),
    ],
)  # fmt: skip
def test_others_stay(one: str, reason: str) -> None:
    """Short ones, windows of another form, and what would not come to the same."""
    check(one, ReduceWindowRewriter(), changes=False, draws=2)
    log = PassLog(kinds=frozenset(("missed",)))
    ReduceWindowRewriter().run(hloopt.parse(one), log)
    assert [reason in remark.reason for remark in log.remarks] == ([True] if reason else [])


LOG_ADD_EXP = """m = f32[] maximum(a, b) s = f32[] subtract(a, b) d = f32[] abs(s) n = f32[] negate(d)
e = f32[] exponential(n) l = f32[] log-plus-one(e) ROOT r = f32[] add(m, l)"""
LAST = "z = s32[] constant(0) c = pred[] compare(b, z), direction=NE ROOT r = s32[] select(c, b, a)"


@pytest.mark.parametrize("window", ["size=100 pad=99_0", "size=100 pad=0_99"])
def test_regions_of_several_ops_are_cut_too(window: str) -> None:
    """In the order of the elements; with a neutral initial value, and where rounding may change."""
    one = text("f32", "100", window, "", "-1e30", LOG_ADD_EXP)
    check(one, ReduceWindowRewriter(), changes=False)
    check(one, ReduceWindowRewriter(fast_math=True), rtol=1e-5)
    counted = text("f32", "100", window, "", "1", LOG_ADD_EXP)
    check(counted, ReduceWindowRewriter(fast_math=True), changes=False)
    ordered = text("s32", "100", window, "", "0", LAST)
    _, log = check(ordered, ReduceWindowRewriter(fast_math=True), draws=4)
    assert log.hits == {"reduce in blocks": 1}


def test_a_block_of_one_is_refused() -> None:
    """It would be the same again."""
    with pytest.raises(UsageError, match="a block has at least 2 elements"):
        ReduceWindowRewriter(block=1)


def test_it_can_be_named() -> None:
    """As on the command line."""
    assert (
        str(parse_pipeline("reduce-window-rewriter{block=8}")) == "reduce-window-rewriter{block=8}"
    )

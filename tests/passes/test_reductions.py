"""Reductions grouped, split and made in two steps."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.passes.reductions.dimension_grouper import ReductionDimensionGrouper
from hloopt.passes.reductions.splitter import ReductionSplitter
from hloopt.passes.reductions.tree_rewriter import TreeReductionRewriter
from hloopt.rewrite import Pass, Pipeline
from tests.passes.proof import check

ARG_MAX = """best {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  greater = pred[] compare(v, w), direction=GT
  unordered = pred[] compare(v, v), direction=NE
  more = pred[] or(greater, unordered)
  alike = pred[] compare(v, w), direction=EQ
  lower = pred[] compare(i, j), direction=LT
  tied = pred[] and(alike, lower)
  first = pred[] or(more, tied)
  x = f32[] select(first, v, w)
  k = s32[] select(first, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k)
}
"""


def reduction(
    kind: str, dims: str, result: str, over: str, opcode: str = "add", init: str = "0"
) -> str:
    rank = dims.count(",") + 1
    layout = ",".join(map(str, reversed(range(rank))))
    return (
        "HloModule m\n"
        f"step {{\n a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
        f" ROOT s = {kind}[] {opcode}(a, b)\n}}\n"
        f"ENTRY e {{\n x = {kind}[{dims}]{{{layout}}} parameter(0)\n z = {kind}[] constant({init})\n"
        f" ROOT r = {kind}[{result}] reduce(x, z), dimensions={{{over}}}, to_apply=step\n}}\n"
    )


def reduces(module: Module) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The dimensions of what is reduced, and which of them are."""
    return [
        (one.operands[0].array.dims, one.attributes["dimensions"])
        for one in module.entry
        if one.opcode == "reduce"
    ]


@pytest.mark.parametrize(
    "instance",
    [ReductionDimensionGrouper(), ReductionSplitter(), TreeReductionRewriter()],
    ids=lambda one: one.name,
)
def test_the_example_is_rewritten(instance: Pass) -> None:
    """Each pass changes its own example with default options, and once is enough."""
    check(instance.example, instance, draws=2, rtol=1e-5)


def test_neighbours_are_grouped_and_others_not() -> None:
    """Of four dimensions two that lie together become one."""
    text = reduction("f32", "3,4,5,6", "3", "1,2,3")
    better, _ = check(text, ReductionDimensionGrouper(), draws=2)
    assert reduces(better) == [((3, 120), (1,))]
    better, _ = check(reduction("f32", "3,4,5,6", "5", "0,1,3"), ReductionDimensionGrouper())
    assert reduces(better) == [((12, 5, 6), (0, 2))]
    check(reduction("f32", "3,4,5", "4", "0,2"), ReductionDimensionGrouper(), changes=False)
    column_major = reduction("f32", "3,4,5", "5", "0,1").replace("{2,1,0}", "{0,1,2}")
    check(column_major, ReductionDimensionGrouper(), changes=False)


def test_the_largest_dimension_goes_first() -> None:
    """Until a kernel by tiles takes the rest; what it takes at once stays."""
    better, _ = check(reduction("s32", "4,48,3,64", "4,3", "1,3"), ReductionSplitter(), draws=2)
    assert reduces(better) == [((4, 48, 3, 64), (3,)), ((4, 48, 3), (1,))]
    check(reduction("s32", "8,3,64", "3", "0,2"), ReductionSplitter(), changes=False)
    check(reduction("f32", "4,48,3,64", "4,3", "1,3"), ReductionSplitter(), changes=False)
    check(
        reduction("f32", "4,48,3,64", "4,3", "1,3"),
        ReductionSplitter(fast_math=True),
        rtol=1e-5,
        draws=1,
    )


def rows_first(kind: str, rows: str, over: str) -> str:
    """What is computed from a sum over ``rows`` is summed over ``over``."""
    kept = "8" if rows == "1" else "16"
    at = "0" if rows == "1" else "1"
    return (
        f"HloModule m\nplus {{\n a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
        f" ROOT s = {kind}[] add(a, b)\n}}\n"
        f"ENTRY e {{\n x = {kind}[8,16]{{1,0}} parameter(0)\n z = {kind}[] constant(0)\n"
        f" n = {kind}[{kept}] reduce(x, z), dimensions={{{rows}}}, to_apply=plus\n m = {kind}[{kept}] negate(n)\n"
        f" b = {kind}[8,16]{{1,0}} broadcast(m), dimensions={{{at}}}\n y = {kind}[8,16]{{1,0}} multiply(x, b)\n"
        f" ROOT r = {kind}[{'' if over == '0,1' else '8'}] reduce(y, z), dimensions={{{over}}}, to_apply=plus\n}}\n"
    )


def test_rows_that_are_summed_before_are_summed_first() -> None:
    """Where that is asked for, and leave is there for floats; sums of columns, and of rows alone, stay."""
    asked = ReductionSplitter(rows=True)
    better, _ = check(rows_first("s32", "1", "0,1"), asked, draws=2)
    assert reduces(better)[1:] == [((8, 16), (1,)), ((8,), (0,))]
    check(rows_first("s32", "1", "0,1"), ReductionSplitter(), changes=False)
    check(rows_first("s32", "0", "0,1"), asked, changes=False)
    check(rows_first("s32", "1", "1"), asked, changes=False)
    check(rows_first("f32", "1", "0,1"), asked, changes=False)
    check(rows_first("f32", "1", "0,1"), ReductionSplitter(fast_math=True, rows=True), rtol=1e-4)


@pytest.mark.parametrize(
    ("dims", "result", "over", "steps"),
    [
        ("16384", "", "0", None),
        ("65536", "", "0", [((256, 256), (1,)), ((256,), (0,))]),
        ("3,16387", "3", "1", [((3, 68, 241), (2,)), ((3, 68), (1,))]),
        ("4096,40", "40", "0", None),
        ("8192,40", "40", "0", [((64, 128, 40), (1,)), ((64, 40), (0,))]),
        ("8,5,64", "5", "0,2", None),
        ("9,5,64", "5", "0,2", [((9, 5, 64), (2,)), ((9, 5), (0,))]),
    ],
)
def test_what_one_block_finishes_stays(
    dims: str, result: str, over: str, steps: list[object] | None
) -> None:
    """Rows of 16,384, columns of 4,096, batches of 8 rows; more is made in two steps."""
    text = reduction("s32", dims, result, over)
    better, _ = check(text, TreeReductionRewriter(), changes=steps is not None, draws=1)
    if steps is not None:
        assert reduces(better) == steps


def test_very_long_reductions_take_more_steps() -> None:
    """Each step is one that a block finishes."""
    module = hloopt.parse(reduction("s32", "600000000", "", "0"), "text")
    Pipeline((TreeReductionRewriter(),)).run(module, verify_each=True)
    lengths = [dims[over[0]] for dims, over in reduces(module)]
    assert len(lengths) == 3
    assert max(lengths) <= 16384


def test_only_what_may_be_regrouped() -> None:
    """Sums of floats need fast_math; the initial value comes in again, so that it must not matter."""
    text = reduction("f32", "20000", "", "0")
    check(text, TreeReductionRewriter(), changes=False, draws=1)
    check(text, TreeReductionRewriter(fast_math=True), rtol=1e-4, draws=1)
    check(reduction("f32", "20000", "", "0", "maximum", "2.5"), TreeReductionRewriter(), draws=2)
    started = reduction("s32", "20000", "", "0", init="7")
    check(started, TreeReductionRewriter(), changes=False, draws=1)
    minus = reduction("s32", "20000", "", "0", "subtract")
    check(minus, TreeReductionRewriter(fast_math=True), changes=False, draws=1)
    log = hloopt.PassLog(kinds=frozenset({"missed"}))
    assert not TreeReductionRewriter().run(hloopt.parse(minus), log)
    (remark,) = log.remarks
    assert remark.reason == "the region is not one associative op of its two parameters"


@pytest.mark.parametrize("tie", ["LT", "GT"])
def test_the_best_value_and_its_index(tie: str) -> None:
    """Pairs are padded with the initial pair; of equal values the same index wins in any grouping."""
    text = (
        f"HloModule m\n{ARG_MAX.replace('direction=LT', f'direction={tie}')}"
        "ENTRY e {\n x = f32[20001]{0} parameter(0)\n i = s32[20001]{0} iota(), iota_dimension=0\n"
        " low = f32[] constant(-inf)\n zero = s32[] constant(0)\n"
        " ROOT r = (f32[], s32[]) reduce(x, i, low, zero), dimensions={0}, to_apply=best\n}\n"
    )
    ties = np.random.default_rng(0).integers(0, 50, 20001).astype(np.float32)
    nothing = np.full(20001, -np.inf, np.float32)
    better, _ = check(text, TreeReductionRewriter(), given=[[ties], [nothing]])
    assert len(reduces(better)) == 2


def test_pairs_that_a_nan_groups_otherwise() -> None:
    """Without a word on NaN, which pair is returned depends on the grouping."""
    text = (
        f"HloModule m\n{ARG_MAX.replace('or(greater, unordered)', 'copy(greater)')}"
        "ENTRY e {\n x = f32[20001]{0} parameter(0)\n i = s32[20001]{0} iota(), iota_dimension=0\n"
        " low = f32[] constant(-inf)\n zero = s32[] constant(0)\n"
        " ROOT r = (f32[], s32[]) reduce(x, i, low, zero), dimensions={0}, to_apply=best\n}\n"
    )
    check(text, TreeReductionRewriter(fast_math=True), changes=False, draws=1)


@pytest.mark.parametrize(
    ("text", "one"),
    [
        (reduction("s32", "3,50000,7", "3,7", "1"), TreeReductionRewriter()),
        (reduction("s32", "4,64,3,48", "4,3", "1,3"), ReductionSplitter()),
    ],
    ids=str,
)
def test_only_the_result_is_sharded_as_the_reduce_was(text: str, one: Pass) -> None:
    """What the first step leaves has other dimensions."""
    text = text.replace("to_apply=step", "to_apply=step, sharding={devices=[1,2]0,1}")
    better, _ = check(text, one, draws=1)
    marked = [entry for entry in better.entry if "sharding" in entry.attributes]
    assert marked == [better.entry.root]


@pytest.mark.parametrize(
    "one", [ReductionDimensionGrouper(), ReductionSplitter(), TreeReductionRewriter()], ids=str
)
def test_a_reduce_over_no_dimension_stays(one: Pass) -> None:
    """There is nothing to group or to cut in a scalar."""
    region = (
        "step {\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT s = s32[] add(a, b)\n}\n"
    )
    module = hloopt.parse(
        f"HloModule m\n{region}ENTRY e {{\n x = s32[] parameter(0)\n z = s32[] constant(0)\n"
        " ROOT r = s32[] reduce(x, z), dimensions={}, to_apply=step\n}\n"
    )
    assert not one.run(module, hloopt.PassLog())

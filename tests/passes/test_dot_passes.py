"""What the passes over dots and convolutions do to dimension numbers, and what they leave alone."""

from __future__ import annotations

import random

import pytest

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.dots.decomposer import DotDecomposer
from hloopt.passes.dots.dimension_merger import DotDimensionMerger
from hloopt.passes.dots.dimension_sorter import DotDimensionSorter
from hloopt.passes.dots.merger import DotMerger
from hloopt.passes.dots.split_k_rewriter import SplitKRewriter
from hloopt.passes.dots.strength_reduction import DotStrengthReduction
from hloopt.passes.dots.transpose_folding import TransposeFolding
from hloopt.rewrite import Pass
from tests.passes.proof import check
from tests.properties.random_modules import module_text

ALL: tuple[Pass, ...] = (
    TransposeFolding(),
    DotDimensionMerger(),
    DotDimensionSorter(),
    DotDecomposer(),
    DotMerger(),
    DotStrengthReduction(),
    SplitKRewriter(),
)


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    seen, pending = [], [better.entry.root]
    while pending:
        instruction = pending.pop()
        seen.append(instruction.opcode)
        pending.extend(instruction.operands)
    return sorted(set(seen) - {"parameter", "constant"})


@pytest.mark.parametrize("instance", ALL, ids=lambda instance: instance.name)
def test_the_example_is_rewritten(instance: Pass) -> None:
    """Each pass changes its own example with default options, and once is enough."""
    check(instance.example, instance, rtol=1e-5)


@pytest.mark.parametrize("instance", ALL, ids=lambda instance: instance.name)
def test_random_modules_stay(instance: Pass) -> None:
    """Modules without dots stay as they are."""
    for seed in range(3):
        check(module_text(random.Random(seed)), instance, changes=False, draws=1)


# ---- transpose-folding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["f32", "bf16", "s32"])
def test_a_chain_of_transposes_of_both_sides_is_folded(element: str) -> None:
    """Batch and contracting dimensions may be anywhere; results keep their bits."""
    text = module(
        f"a = {element}[5,3,2] parameter(0)\n b = {element}[4,2,5] parameter(1)\n"
        f"t = {element}[2,3,5] transpose(a), dimensions={{2,1,0}}\n"
        f"u = {element}[3,2,5] transpose(t), dimensions={{1,0,2}}\n"
        f"w = {element}[2,5,4] transpose(b), dimensions={{1,2,0}}\n"
        f"ROOT r = {element}[2,3,4] dot(u, w), lhs_batch_dims={{1}}, lhs_contracting_dims={{2}}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}"
    )
    better, log = check(text, TransposeFolding())
    assert opcodes(better) == ["dot"]
    assert log.hits["dot(transpose(A), B) => dot(A, B)"] == 3


def test_a_transpose_that_orders_the_result_stays() -> None:
    """Two dimensions that come back exchanged would make another result."""
    text = module(
        "a = f32[5,3,2] parameter(0)\n b = f32[5] parameter(1)\n"
        "t = f32[2,3,5] transpose(a), dimensions={2,1,0}\n"
        "ROOT r = f32[2,3] dot(t, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}"
    )
    check(text, TransposeFolding(), changes=False)


CONVOLUTION = (
    "x = f32[2,3,8,9] parameter(0)\n w = f32[3,2,4,3] parameter(1)\n"
    "t = f32[2,8,9,3] transpose(x), dimensions={0,2,3,1}\n"
    "v = f32[2,3,3,4] transpose(w), dimensions={1,0,3,2}\n"
    "c = f32[2,7,7,4] convolution(t, v), window={size=2x3}, dim_labels=b01f_01io->b01f\n"
    "ROOT r = f32[2,4,7,7] transpose(c), dimensions={0,3,1,2}"
)


def test_transposes_around_a_convolution_are_labels() -> None:
    """Input, kernel and output are read and written where they lie."""
    better, log = check(module(CONVOLUTION), TransposeFolding(), rtol=1e-5)
    assert opcodes(better) == ["convolution"]
    assert str(better.entry.root.attributes["dim_labels"].text) == "bf01_10oi->bf01"
    assert better.entry.root.name == "r"
    assert sum(log.hits.values()) == 3


def test_only_dots_or_only_convolutions() -> None:
    """The option says where transposes go."""
    check(module(CONVOLUTION), TransposeFolding(into="dots"), changes=False)
    check(TransposeFolding.example, TransposeFolding(into="convolutions"), changes=False)
    with pytest.raises(UsageError, match="into is one of dots, convolutions, all"):
        TransposeFolding(into="nothing")


HEADS = (
    "x = f32[2,5,3,4]{3,2,1,0} parameter(0)\n k = f32[2,3,4,5]{3,2,1,0} parameter(1)\n"
    "t = f32[2,3,5,4]{3,2,1,0} transpose(x), dimensions={0,2,1,3}\n"
    "ROOT r = f32[2,3,5,5]{3,2,1,0} dot(t, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, "
    "rhs_batch_dims={0,1}, rhs_contracting_dims={2}"
)


@pytest.mark.parametrize(
    ("given", "order", "folds"),
    [
        ("3,4,5", "0,2,1", True),  # batch, columns, rows
        ("4,3,5", "1,0,2", True),  # rows, batch, columns
        ("4,5,3", "2,0,1", False),  # the batch fastest
    ],
)
def test_only_batches_of_matrices_are_folded(given: str, order: str, folds: bool) -> None:
    """Where libraries could not read what was transposed, it stays."""
    sizes = [int(size) for size in given.split(",")]
    rows = [sizes[int(dim)] for dim in order.split(",")]
    text = module(
        f"x = f32[{given}]{{2,1,0}} parameter(0)\n"
        f"k = f32[3,{rows[2]},7]{{2,1,0}} parameter(1)\n"
        f"t = f32[{','.join(map(str, rows))}]{{2,1,0}} transpose(x), dimensions={{{order}}}\n"
        f"ROOT r = f32[3,{rows[1]},7]{{2,1,0}} dot(t, k), lhs_batch_dims={{0}}, "
        "lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
    )
    check(text, TransposeFolding())
    check(text, TransposeFolding(matrices=True), changes=folds)


def test_heads_between_the_rows_of_a_batch_stay_transposed() -> None:
    """Two batch dimensions that lie apart are no batch of matrices."""
    check(module(HEADS), TransposeFolding())
    check(module(HEADS), TransposeFolding(matrices=True), changes=False)


# ---- dot-dimension-merger --------------------------------------------------------------------------------


def test_batch_dimensions_that_lie_together_are_one() -> None:
    """At any place of an operand, in the same order on both sides; else they stay."""
    better, _ = check(module(HEADS), DotDimensionMerger())
    (dot,) = (one for one in better.entry if one.opcode == "dot")
    assert [one.array.dims for one in dot.operands] == [(6, 5, 4), (6, 4, 5)]
    behind = (
        "x = f32[4,2,3,5]{3,2,1,0} parameter(0)\n k = f32[2,3,4,7]{3,2,1,0} parameter(1)\n"
        "ROOT r = f32[2,3,5,7]{3,2,1,0} dot(x, k), lhs_batch_dims={1,2}, lhs_contracting_dims={0}, "
        "rhs_batch_dims={0,1}, rhs_contracting_dims={2}"
    )
    better, _ = check(module(behind), DotDimensionMerger(), rtol=1e-6)
    (dot,) = (one for one in better.entry if one.opcode == "dot")
    assert [one.array.dims for one in dot.operands] == [(4, 6, 5), (6, 4, 7)]
    check(
        module(
            behind.replace("_dims={1,2}", "_dims={2,1}")
            .replace("f32[2,3,4,7]", "f32[3,2,4,7]")
            .replace("f32[2,3,5,7]", "f32[3,2,5,7]")
        ),
        DotDimensionMerger(),
        changes=False,
    )
    apart = behind.replace("f32[4,2,3,5]", "f32[2,4,3,5]").replace("s={1,2}", "s={0,2}")
    check(module(apart.replace("g_dims={0}", "g_dims={1}")), DotDimensionMerger(), changes=False)


# ---- dot-dimension-sorter --------------------------------------------------------------------------------


def test_floats_are_sorted_with_fast_math_only() -> None:
    """Sorting changes the order in which products are added."""
    text = DotDimensionSorter.example.replace("s32", "f32")
    check(text, DotDimensionSorter(), changes=False)
    check(text, DotDimensionSorter(fast_math=True), rtol=1e-5)


def test_dimensions_with_a_gap_stay() -> None:
    """Neither side comes out consecutive."""
    text = module(
        "a = s32[3,4,5] parameter(0)\n b = s32[5,4,3] parameter(1)\n"
        "ROOT r = s32[4,4] dot(a, b), lhs_contracting_dims={2,0}, rhs_contracting_dims={0,2}"
    )
    check(text, DotDimensionSorter(), changes=False)


# ---- dot-decomposer --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        (
            "a = f32[4,3] parameter(0)\n b = f32[2,4] parameter(1)\n"
            "ROOT r = f32[3,2] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
        ),
        (
            "a = f32[4,3,2] parameter(0)\n b = f32[2] parameter(1)\n"
            "ROOT r = f32[4,3] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}"
        ),
        "a = f32[4] parameter(0)\n b = f32[3] parameter(1)\n ROOT r = f32[4,3] dot(a, b)",
        (
            "a = f32[2,4,5] parameter(0)\n b = f32[5,4,2] parameter(1)\n"
            "ROOT r = f32[5] dot(a, b), lhs_batch_dims={2}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={0,1}, rhs_contracting_dims={2,1}"
        ),
    ],
)
def test_other_dots_become_canonical(text: str) -> None:
    """Several, exchanged and missing dimensions: always [batch, M, K] x [batch, K, N]."""
    better, _ = check(module(text), DotDecomposer(), rtol=1e-5)
    (dot,) = (entry for entry in better.instructions() if entry.opcode == "dot")
    assert dot.operands[0].array.rank <= len(dot.attributes.get("lhs_batch_dims", ())) + 2


@pytest.mark.parametrize(
    "text",
    [
        (
            "a = f32[4,3] parameter(0)\n b = f32[3,2] parameter(1)\n"
            "ROOT r = f32[4,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        ),
        (
            "a = f32[3] parameter(0)\n b = f32[3] parameter(1)\n"
            "ROOT r = f32[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
        ),
        (
            "a = f32[6,3] parameter(0)\n b = f32[6,3,2] parameter(1)\n"
            "ROOT r = f32[6,2] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
        ),
    ],
)
def test_canonical_dots_stay(text: str) -> None:
    """With a dimension that comes back on each side, or none."""
    check(module(text), DotDecomposer(), changes=False)


def test_matrices_may_be_left_as_they_lie() -> None:
    """matrices=false: contracted along either dimension, but with the batch first."""
    text = (
        "a = f32[6,3,4] parameter(0)\n b = f32[6,2,3] parameter(1)\n"
        "ROOT r = f32[6,4,2] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={1}, rhs_contracting_dims={2}"
    )
    check(module(text), DotDecomposer(), rtol=1e-5)
    check(module(text), DotDecomposer(matrices=False), changes=False)
    behind = text.replace("a = f32[6,3,4]", "a = f32[3,6,4]").replace(
        "dims={0}, r", "dims={1}, r", 1
    )
    behind = behind.replace("lhs_contracting_dims={1}", "lhs_contracting_dims={0}")
    check(module(behind), DotDecomposer(matrices=False), rtol=1e-5)


# ---- dot-merger ------------------------------------------------------------------------------------------

THREE = module(
    "x = s32[8,4] parameter(0)\n p = s32[4,2] parameter(1)\n q = s32[4,3] parameter(2)\n"
    "a = s32[8,2] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "n = s32[8,2] negate(a)\n m = s32[4,3] negate(q)\n"
    "b = s32[8,3] dot(x, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "c = s32[8,3] dot(x, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = (s32[8,2], s32[8,3], s32[8,3]) tuple(n, b, c)"
)


def dots(better: Module) -> int:
    return sum(entry.opcode == "dot" for entry in better.instructions())


def test_three_dots_become_one() -> None:
    """What the second reads is moved before the first."""
    better, log = check(THREE, DotMerger())
    assert dots(better) == 1
    assert log.hits["merge dots"] == 1


def test_a_shared_right_operand() -> None:
    """The left operands are joined along the dimension that comes back first."""
    text = module(
        "x = s32[2,3,4] parameter(0)\n y = s32[2,5,4] parameter(1)\n w = s32[2,4,6] parameter(2)\n"
        "a = s32[2,3,6] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
        "b = s32[2,5,6] dot(y, w), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
        "ROOT r = (s32[2,3,6], s32[2,5,6]) tuple(a, b)"
    )
    better, _ = check(text, DotMerger())
    assert dots(better) == 1


def test_a_dot_that_reads_the_other_stays() -> None:
    """dot(x, f(dot(x, p))) cannot be computed at the same time."""
    text = module(
        "x = s32[4,4] parameter(0)\n p = s32[4,4] parameter(1)\n"
        "a = s32[4,4] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "n = s32[4,4] negate(a)\n"
        "ROOT b = s32[4,4] dot(x, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    check(text, DotMerger(), changes=False)
    check(text.replace("dot(x, n)", "dot(x, a)"), DotMerger(), changes=False)


def test_groups_that_want_each_others_operands_first() -> None:
    """Either may be merged, not both: what the second reads comes out of the first."""
    dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = module(
        "s = s32[4,4] parameter(0)\nt = s32[4,4] parameter(1)\n"
        "x = s32[4,4] parameter(2)\ny = s32[4,4] parameter(3)\n"
        f"a = s32[4,4] dot(s, x){dims}\nb = s32[4,4] dot(t, y){dims}\n"
        f"c = s32[4,4] dot(s, b){dims}\nd = s32[4,4] dot(t, a){dims}\n"
        "ROOT r = (s32[4,4], s32[4,4]) tuple(c, d)"
    )
    better, _ = check(text, DotMerger())
    assert dots(better) == 3


def test_a_dot_that_has_moved_begins_its_group() -> None:
    """What one group moves up may be a dot of another, which is merged where the first of them is then."""
    dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = module(
        "s = s32[4,4] parameter(0)\nt = s32[4,4] parameter(1)\n"
        "x = s32[4,4] parameter(2)\ny = s32[4,4] parameter(3)\n"
        f"a = s32[4,4] dot(x, s){dims}\nb = s32[4,4] dot(y, t){dims}\n"
        f"m = s32[4,4] negate(x)\nc = s32[4,4] dot(m, t){dims}\n"
        f"d = s32[4,4] dot(c, s){dims}\n"
        "ROOT r = (s32[4,4], s32[4,4], s32[4,4], s32[4,4]) tuple(a, b, c, d)"
    )
    better, _ = check(text, DotMerger())
    assert dots(better) == 2


def test_one_large_dot_joins_a_group_and_a_second_does_not() -> None:
    """Of three dots over the limit none is merged; with a small one, one of them is."""
    check(THREE, DotMerger(max_bytes=1), changes=False)
    better, log = check(THREE, DotMerger(max_bytes=8 * 2 * 4 + 8 * 4 * 4 + 4 * 2 * 4))
    assert log.hits["merge dots"] == 1
    assert dots(better) == 2
    assert dots(better) == 2


TWINS = (
    "h = s32[3,6] parameter(0)\n p = s32[6,6] parameter(1)\n"
    "t = s32[6,3] transpose(h), dimensions={1,0}\n"
    "a = s32[6,3] dot(p, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "b = s32[3,6] dot(h, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = (s32[6,3], s32[3,6]) tuple(a, b)"
)


def test_twins_share_an_operand_on_other_sides() -> None:
    """P H' is the transpose of H P', which has H where H P has it; only where it is asked for."""
    check(module(TWINS), DotMerger(), changes=False)
    better, log = check(module(TWINS), DotMerger(twins=True))
    assert dots(better) == 1
    assert log.hits == {"turn a dot": 1, "merge dots": 1}
    other = TWINS.replace("dot(p, t)", "dot(q, h)").replace("dot(h, p)", "dot(t, q)")
    other = other.replace("p = s32[6,6]", "q = s32[3,3]").replace("a = s32[6,3]", "a = s32[3,6]")
    other = other.replace("b = s32[3,6]", "b = s32[6,3]").replace(
        "(s32[6,3], s32[3,6])", "(s32[3,6], s32[6,3])"
    )
    better, _ = check(module(other), DotMerger(twins=True))
    assert dots(better) == 1


def test_twins_that_need_each_other_stay() -> None:
    """(H P) H' reads H P."""
    text = TWINS.replace("a = s32[6,3] dot(p, t)", "b = s32[3,6] dot(h, p)", 1)
    text = text.replace(
        "b = s32[3,6] dot(h, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT",
        "a = s32[3,3] dot(b, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT",
    )
    text = text.replace("(s32[6,3], s32[3,6])", "(s32[3,3], s32[3,6])")
    check(module(text), DotMerger(twins=True), changes=False)
    check(module(TWINS), DotMerger(twins=True, max_bytes=1), changes=False)


@pytest.mark.parametrize(
    "mark",
    ['frontend_attributes={a="b"}', "algorithm=dot_any_f8_any_f8_any", "sharding={replicated}"],
)
def test_a_dot_is_not_turned_for_one_that_it_cannot_join(mark: str) -> None:
    """It would be transposed for nothing; a mark of its own goes to the result."""
    lines = TWINS.splitlines()
    places = [at for at, line in enumerate(lines) if " dot(" in line]
    for at, changes in zip(places, (mark.startswith(("front", "shard")), False), strict=True):
        marked = [f"{line}, {mark}" if at == number else line for number, line in enumerate(lines)]
        better, _ = check(module("\n".join(marked)), DotMerger(twins=True), changes=changes)
        assert dots(better) == 2 - changes


def test_other_precisions_and_types_stay_apart() -> None:
    """A group is computed in one way."""
    text = DotMerger.example.replace(
        "b = f32[8,6]{1,0} dot(x, k), ",
        "b = f32[8,6]{1,0} dot(x, k), operand_precision={high,high}, ",
    )
    check(text, DotMerger(), changes=False, rtol=1e-5)
    with pytest.raises(UsageError, match="max_bytes"):
        DotMerger(max_bytes=-1)


# ---- dot-strength-reduction ------------------------------------------------------------------------------

BATCHED = module(
    "a = $T[2,3,5] parameter(0)\n v = $T[5,2] parameter(1)\n"
    "ROOT r = $T[2,3] dot(a, v), lhs_batch_dims={0}, rhs_batch_dims={1}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={0}"
)
OUTER = module("a = $T[3] parameter(0)\n b = $T[4] parameter(1)\n ROOT r = $T[3,4] dot(a, b)")


@pytest.mark.parametrize("text", [BATCHED, OUTER])
@pytest.mark.parametrize("element", ["s32", "u8", "s64"])
def test_integers_are_exact(text: str, element: str) -> None:
    """Products and sums wrap as those of the dot do."""
    better, _ = check(text.replace("$T", element), DotStrengthReduction())
    assert "dot" not in opcodes(better)


@pytest.mark.parametrize("text", [BATCHED, OUTER])
@pytest.mark.parametrize(("element", "rtol"), [("f32", 1e-5), ("bf16", 1e-2), ("c64", 1e-5)])
def test_floats_need_fast_math(text: str, element: str, rtol: float) -> None:
    """With it results are near; without it dots stay."""
    text = text.replace("$T", element)
    check(text, DotStrengthReduction(), changes=False)
    if element != "c64":
        check(text, DotStrengthReduction(fast_math=True), rtol=rtol)


def test_narrow_integers_are_widened_first() -> None:
    """s8 x s8 => s32 multiplies in s32."""
    text = module(
        "a = s8[3,5] parameter(0)\n v = s8[5] parameter(1)\n"
        "ROOT r = s32[3] dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    better, _ = check(text, DotStrengthReduction())
    assert "convert" in opcodes(better)


def test_matrices_and_large_dots_stay() -> None:
    """Matrix times matrix, and more work than the limit."""
    text = module(
        "a = s32[3,5] parameter(0)\n b = s32[5,2] parameter(1)\n"
        "ROOT r = s32[3,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    check(text, DotStrengthReduction(), changes=False)
    example = DotStrengthReduction.example
    check(example, DotStrengthReduction(max_work=143), changes=False)
    check(example, DotStrengthReduction(max_work=144))
    with pytest.raises(UsageError, match="max_work"):
        DotStrengthReduction(max_work=-1)


# ---- splitk-rewriter -------------------------------------------------------------------------------------


def long_dot(kind: str, k: int, result: str = "") -> str:
    return module(
        f"a = {kind}[64,{k}]{{1,0}} parameter(0)\n b = {kind}[{k},64]{{1,0}} parameter(1)\n"
        f"ROOT r = {result or kind}[64,64]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}"
    )


def test_integers_are_cut_as_they_are() -> None:
    """The same bits, padded or not."""
    for k in (8192, 8191):
        better, _ = check(long_dot("s8", k, "s32"), SplitKRewriter(), draws=2)
        assert better.entry.root.opcode == "reduce"
        assert ("pad" in opcodes(better)) is (k == 8191)


def test_only_fast_math_cuts_floats() -> None:
    """Sums that round come out otherwise; parts of bf16 are added in f32 and rounded once."""
    check(long_dot("f32", 8192), SplitKRewriter(), changes=False, draws=1)
    check(long_dot("f32", 8192), SplitKRewriter(fast_math=True), rtol=1e-4, draws=1)
    better, _ = check(long_dot("bf16", 8192), SplitKRewriter(fast_math=True), rtol=1e-2, draws=1)
    convert = better.entry.root
    assert convert.opcode == "convert"
    assert convert.operands[0].array.dtype.name == "f32"


def test_parts_of_f8_are_not_rounded_to_it() -> None:
    """A sum of f8 that holds a few parts would hardly change by one more."""
    better, _ = check(long_dot("f8e5m2", 8192), SplitKRewriter(fast_math=True), rtol=1, draws=1)
    convert = better.entry.root
    assert convert.opcode == "convert"
    assert convert.operands[0].array.dtype.name == "f32"


def test_parts_join_the_batch_where_the_left_side_has_them() -> None:
    """Batch dimensions before and behind the contracted one stay in their order."""
    text = module(
        "a = f16[2,4096,3,8]{3,2,1,0} parameter(0)\n b = f16[3,2,4096,9]{3,2,1,0} parameter(1)\n"
        "ROOT r = f16[2,3,8,9]{3,2,1,0} dot(a, b), lhs_batch_dims={0,2}, lhs_contracting_dims={1}, "
        "rhs_batch_dims={1,0}, rhs_contracting_dims={2}"
    )
    better, _ = check(text, SplitKRewriter(fast_math=True), rtol=2e-2, draws=1)
    (dot,) = (one for one in better.entry if one.opcode == "dot")
    parts = dot.array.dims[1]
    assert dot.array.dims == (2, parts, 3, 8, 9)
    assert dot.attributes["lhs_batch_dims"] == (0, 1, 3)
    assert dot.attributes["rhs_batch_dims"] == (1, 2, 0)


@pytest.mark.parametrize(
    ("body", "grid", "one"),
    [
        (
            (
                "a = s8[64,8192]{1,0} parameter(0)\n b = s8[8192,64]{1,0} parameter(1)\n"
                "ROOT r = s32[64,64]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            ),
            "[2,1]",
            SplitKRewriter(),
        ),
        (HEADS, "[2,1,1,1]", DotDimensionMerger()),
        (
            (
                "a = s32[2,3,5]{2,1,0} parameter(0)\n b = s32[5,4]{1,0} parameter(1)\n"
                "ROOT r = s32[2,3,4]{2,1,0} dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}"
            ),
            "[2,1,1]",
            DotDecomposer(),
        ),
    ],
    ids=str,
)
def test_only_the_result_is_sharded_as_the_dot_was(body: str, grid: str, one: Pass) -> None:
    """What is computed on the way has other dimensions."""
    better, _ = check(module(f"{body}, sharding={{devices={grid}0,1}}"), one, draws=1)
    marked = [entry for entry in better.entry if "sharding" in entry.attributes]
    assert marked == [better.entry.root]


def test_an_operand_is_as_wide_as_what_it_is_made_of() -> None:
    """A conversion is fused: the dot reads what is converted, and pads for it."""
    narrow = module(
        "n = s8[64,8196]{1,0} parameter(0)\n b = f32[8196,64]{1,0} parameter(1)\n"
        "a = f32[64,8196]{1,0} convert(n)\n"
        "ROOT r = f32[64,64]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    sizes = []
    for text in (narrow, long_dot("f32", 8196)):
        better, _ = check(text, SplitKRewriter(fast_math=True), rtol=1e-4, draws=1)
        (dot,) = (one for one in better.entry if one.opcode == "dot")
        sizes.append(dot.operands[0].array.dims[2])
    assert sizes[0] % 16 == 0
    assert sizes[1] % 16 == 4

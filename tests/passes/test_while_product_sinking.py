"""while-product-sinking: products that a loop adds up are one product after it, with the same bits."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.linear_algebra.product_sinking import WhileProductSinking
from hloopt.rewrite import PassLog
from tests.passes.proof import check

PASS = WhileProductSinking(max_growth=10)
TRIPS = 5


def text(
    kind: str = "s32",
    *,
    x: str = "KIND[2,3] reshape(row)",
    y: str = "KIND[2,4] add(g, g)",
    dot: str = "KIND[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    term: str = "KIND[3,4] copy(d)",
    total: str = "total, term",
    at: str = "i",
    counter: str = "s32",
    start: int = 0,
    step: int = 1,
    rows: int = TRIPS,
    limit: str = "",
    more: str = "",
    results: str = "total, last",
) -> str:
    """A loop that adds up the product of a row of ``xs`` and of ``y``, from ``start`` on."""
    stop = start + TRIPS * step
    state = f"({counter}[], KIND[3,4], KIND[{rows},2,3], KIND[2,4], KIND[2,3])"
    shapes = {"total": "KIND[3,4]", "last": "KIND[2,4]"}
    ends = ", ".join(shapes[one.strip()] for one in results.split(","))
    return f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = {counter}[] get-tuple-element(s), index=0
  n = {counter}[] {limit or f"constant({stop})"}
  ROOT c = pred[] compare(i, n), direction=NE
}}
body {{
  s = {state} parameter(0)
  i = {counter}[] get-tuple-element(s), index=0
  total = KIND[3,4] get-tuple-element(s), index=1
  xs = KIND[{rows},2,3] get-tuple-element(s), index=2
  g = KIND[2,4] get-tuple-element(s), index=3
  w = KIND[2,3] get-tuple-element(s), index=4
  one = {counter}[] constant({step})
  j = {counter}[] add(i, one)
  zero = {counter}[] constant(0)
  last = {counter}[] constant({rows - 1})
  down = {counter}[] subtract(last, i)
  row = KIND[1,2,3] dynamic-slice(xs, {at}, zero, zero), dynamic_slice_sizes={{1,2,3}}
  x = {x}
  y = {y}
  d = {dot}
  term = {term}
  {more}
  sum = KIND[3,4] add({total})
  ROOT t = {state} tuple(j, sum, xs, y, w)
}}
ENTRY main {{
  first = KIND[3,4] parameter(0)
  xs = KIND[{rows},2,3] parameter(1)
  g = KIND[2,4] parameter(2)
  w = KIND[2,3] parameter(3)
  start = {counter}[] constant({start})
  t = {state} tuple(start, first, xs, g, w)
  loop = {state} while(t), condition=condition, body=body
  total = KIND[3,4] get-tuple-element(loop), index=1
  last = KIND[2,4] get-tuple-element(loop), index=3
  ROOT r = ({ends}) tuple({results})
}}
""".replace("KIND", kind)


def dots(given: Module, where: str) -> int:
    return sum(one.opcode == "dot" for one in given.computations[where])


def missed(source: str, instance: WhileProductSinking = PASS) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


@pytest.mark.every_value
@pytest.mark.parametrize("kind", ["s32", "u8", "s16", "u64"])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"at": "down"},
        {"rows": TRIPS + 3},
        {"rows": TRIPS + 3, "at": "down"},
        {"start": 2, "rows": TRIPS + 2},
        {"start": TRIPS - 1, "step": -1},
        {"start": TRIPS - 1, "step": -1, "at": "down"},
        {"start": -2, "x": "KIND[2,3] add(w, w)"},
        {"start": 7, "step": -1, "x": "KIND[2,3] negate(w)"},
        {"x": "KIND[2,3] copy(w)"},
        {"dot": "KIND[3,4] dot(w, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}"},
        {"total": "term, total", "results": "total"},
        {"term": "KIND[3,4] negate(d)"},
        {"dot": "KIND[4,3] dot(y, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
         "term": "KIND[3,4] transpose(d), dimensions={1,0}"},
    ],
)  # fmt: skip
def test_all_bits_stay(form: dict[str, str], kind: str) -> None:
    """Rows read up or down or in part, factors kept or added up, and what stands before the sum."""
    made, _ = check(text(kind, **form), PASS, draws=3)  # type: ignore[arg-type]
    assert dots(made, "body") == 0
    assert dots(made, "main") == 1


@pytest.mark.parametrize(("counter", "start"), [("u8", 0), ("s8", -5), ("u32", 3), ("s64", 0)])
def test_counters_of_any_type(counter: str, start: int) -> None:
    form = "KIND[2,3] add(w, w)"
    check(text(counter=counter, start=start, x=form), PASS, draws=2)


def test_batches_and_several_contracted_dimensions() -> None:
    """The iterations are one more of the contracted dimensions, wherever the others are."""
    source = text(
        x="KIND[2,3] reshape(row)\n  x3 = KIND[2,3,1] reshape(x)",
        y="KIND[2,4] add(g, g)\n  y3 = KIND[1,2,4] reshape(y)",
        dot="KIND[3,4] dot(x3, y3), lhs_contracting_dims={2,0}, rhs_contracting_dims={0,1}",
    )
    made, _ = check(source, PASS, draws=2)
    assert dots(made, "body") == 0
    source = text(
        x="KIND[2,3] reshape(row)\n  y1 = KIND[2,4] add(g, g)",
        dot="KIND[2,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}",
        term="KIND[3,4] reshape(part)",
    )
    # A batch that is not summed over does not fit the sum's shape but in part: here it is cut.
    source = source.replace(
        "  term = ",
        "  cut = s32[1,3,4] slice(d), slice={[0:1], [0:3], [0:4]}\n"
        "  part = s32[1,3,4] copy(cut)\n  term = ",
    )
    assert not missed(source)


def test_a_factor_is_kept_once() -> None:
    """Two sums of products with one value, both read up."""
    form = {
        "more": "d2 = s32[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "x": "s32[2,3] add(w, w)",
    }
    module = hloopt.optimize(hloopt.parse(text(**form)), PASS)  # type: ignore[arg-type]
    state = module.computations["body"].parameters[0].elements
    assert len(state) == 7


@pytest.mark.parametrize(
    "changed",
    [
        {"total": "term, term"},
        {"total": "total, total"},
        {"more": "seen = s32[3,4] negate(total)", "results": "total"},
        {"more": "seen = s32[3,4] negate(term)", "total": "total, seen", "term": "s32[3,4] abs(d)"},
        {"more": "also = s32[3,4] negate(d)"},
    ],
)
def test_what_is_more_than_a_sum_stays(changed: dict[str, str]) -> None:
    """Others read the sum or the product, or what is added is no product."""
    assert not missed(text(**changed))  # type: ignore[arg-type]


def test_the_number_of_iterations_has_to_be_known() -> None:
    source = text().replace("n = s32[] constant(5)", "t = s32[3,4] get-tuple-element(s), index=1\n"
        "  p = s32[1,1] slice(t), slice={[0:1], [0:1]}\n  n = s32[] reshape(p)")  # fmt: skip
    # What the condition reads is no sum either.
    assert not missed(source)
    source = text().replace("n = s32[] constant(5)", "t = s32[2,4] get-tuple-element(s), index=3\n"
        "  p = s32[1,1] slice(t), slice={[0:1], [0:1]}\n  n = s32[] reshape(p)")  # fmt: skip
    assert missed(source) == ["its loop has no counter whose values are known"]


def test_rows_outside_of_their_array_are_kept() -> None:
    """The slice clamps its index: row 4 is read twice, so that no slice of the array is what was read."""
    made, _ = check(text(rows=TRIPS - 1), PASS, draws=2)
    assert dots(made, "body") == 0
    assert len(made.computations["body"].parameters[0].elements) == 7


def test_sums_of_floats_need_leave() -> None:
    source = text("f32")
    assert missed(source) == ["another order changes sums of f32: fast_math"]
    for options in ({"fast_math": True}, {"reassociate": True}):
        made, _ = check(source, WhileProductSinking(max_growth=10, **options), rtol=1e-5)
        assert dots(made, "body") == 0


def test_factors_take_no_more_than_told() -> None:
    assert missed(text(), WhileProductSinking(max_growth=0.1)) == [
        "160 bytes to keep are more than max_growth=0.1 times the 228 of the state"
    ]
    with pytest.raises(UsageError, match="max_growth is a number of bytes a byte, or 0"):
        WhileProductSinking(max_growth=-1)


def test_products_that_are_large_already_stay() -> None:
    """Keeping the factors takes longer than what is saved of the sum."""
    source = text("s8", x="KIND[2,3] add(w, w)")
    for small, large in (("2,3", "65536,1"), ("2,4", "65536,1"), ("3,4", "1,1")):
        source = source.replace(f"[{small}]", f"[{large}]").replace("[1,2,3]", "[1,65536,1]")
    source = source.replace(",2,3]", ",65536,1]").replace("{1,2,3}", "{1,65536,1}")
    reasons = missed(
        source.replace("KIND", "s8"), WhileProductSinking(max_growth=100, target="host")
    )
    assert len(reasons) == 1
    assert reasons[0].startswith("it takes no less there: ")

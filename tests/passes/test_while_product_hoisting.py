"""while-product-hoisting: a loop reads rows of a product that is made before it, with the same bits."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.linear_algebra.product_hoisting import WhileProductHoisting
from hloopt.rewrite import PassLog
from tests.passes.proof import check

TRIPS = 5
PASS = WhileProductHoisting(max_growth=10)


def text(
    kind: str = "s32",
    *,
    whole: str = "5,2,3",
    cut: str = "1,2,3",
    at: str = "i, zero, zero",
    row: str = "2,3",
    factor: str = "KIND[3,4] get-tuple-element(s), index=3",
    dot: str = "KIND[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    following: str = "xs, kept",
    more: str = "",
    trips: str = "constant(5)",
) -> str:
    """A loop that adds to what it carries the product of a row of ``xs`` and of ``w``."""
    state = f"(s32[], KIND[2,4], KIND[{whole}], KIND[3,4])"
    return f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = KIND[2,4] get-tuple-element(s), index=1
  n = s32[] {trips}
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = KIND[2,4] get-tuple-element(s), index=1
  xs = KIND[{whole}] get-tuple-element(s), index=2
  kept = KIND[3,4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  last = s32[] constant({TRIPS - 1})
  down = s32[] subtract(last, i)
  part = KIND[{cut}] dynamic-slice(xs, {at}), dynamic_slice_sizes={{{cut}}}
  x = KIND[{row}] reshape(part)
  w = {factor}
  {more}
  d = {dot}
  sum = KIND[2,4] add(h, d)
  ROOT t = {state} tuple(j, sum, {following})
}}
ENTRY main {{
  h = KIND[2,4] parameter(0)
  xs = KIND[{whole}] parameter(1)
  w = KIND[3,4] parameter(2)
  start = s32[] constant(0)
  t = {state} tuple(start, h, xs, w)
  loop = {state} while(t), condition=condition, body=body
  ROOT r = KIND[2,4] get-tuple-element(loop), index=1
}}
""".replace("KIND", kind)


def dots(given: Module, where: str) -> int:
    return sum(one.opcode == "dot" for one in given.computations[where])


def missed(source: str, instance: WhileProductHoisting = PASS) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


CONSTANT = "KIND[3,4] constant({{1,2,3,4},{5,6,7,8},{9,1,2,3}})"


@pytest.mark.every_value
@pytest.mark.parametrize("kind", ["s32", "u8", "f32", "bf16"])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"at": "down, zero, zero"},
        {"at": "i, i, down"},
        {"whole": "2,5,3", "cut": "2,1,3", "at": "zero, i, zero"},
        {"whole": "2,3,5", "cut": "2,3,1", "at": "zero, zero, down"},
        {"factor": CONSTANT},
        {"dot": "KIND[4,2] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}\n"
                "  turned = KIND[2,4] transpose(d0), dimensions={1,0}"},
    ],
)  # fmt: skip
def test_all_bits_stay(form: dict[str, str], kind: str) -> None:
    """Rows along any dimension, read up or down, on either side of the product."""
    source = text(kind, **form)
    if "d0" in source:
        source = source.replace(f"d = {kind}[4,2]", f"d0 = {kind}[4,2]")
        source = source.replace(f"turned = {kind}[2,4]", f"d = {kind}[2,4]")
    made, _ = check(source, PASS, draws=3)
    assert dots(made, "body") == 0
    assert dots(made, "main") == 1


@pytest.mark.parametrize("kind", ["s32", "bf16"])
def test_rows_that_are_converted_first(kind: str) -> None:
    """Mixed precision: the rows of f32 are multiplied as bf16; conversions are done before the loop, too."""
    more = "near = WIDE[2,3] negate(x)\n  low = KIND[2,3] convert(near)"
    source = text(
        kind,
        more=more,
        dot="KIND[2,4] dot(low, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    wide = "f32" if kind == "bf16" else "s64"
    source = source.replace("WIDE", wide).replace(f"{kind}[5,2,3]", f"{wide}[5,2,3]")
    source = source.replace(f"{kind}[1,2,3]", f"{wide}[1,2,3]").replace(
        f"x = {kind}[2,3]", f"x = {wide}[2,3]"
    )
    made, _ = check(source.replace("KIND", kind), PASS, draws=3)
    assert dots(made, "body") == 0
    assert dots(made, "main") == 1


def test_batches() -> None:
    """Rows of a batch of matrices: what multiplies them is spread within the loop, or carried as it is."""
    batched = text(
        whole="2,5,3",
        cut="2,1,3",
        at="zero, i, zero",
        more="w3 = s32[3,2,4] broadcast(w), dimensions={0,2}",
        dot="s32[2,4] dot(x, w3), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
    )
    carried = (
        batched.replace("s32[3,4]", "s32[3,2,4]")
        .replace("w3 = s32[3,2,4] broadcast(w), dimensions={0,2}", "")
        .replace("dot(x, w3)", "dot(x, w)")
    )
    for source in (batched, carried):
        made, _ = check(source, PASS, draws=2)
        assert dots(made, "body") == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"following": "xs, changed", "more": "changed = s32[3,4] add(w, w)"},
        {"following": "changed, kept", "more": "changed = s32[5,2,3] add(xs, xs)"},
        {"at": "j, zero, zero"},
        {"at": "one, zero, zero"},
        {"whole": "6,2,3"},
        {"whole": "4,2,3"},
        {"factor": "s32[3,4] add(kept, kept)"},
    ],
)
def test_what_changes_or_is_not_all_of_an_array_stays(changed: dict[str, str]) -> None:
    """Another factor in each iteration, one row again and again, or rows that no iteration reads."""
    assert not missed(text(**changed))


def test_the_number_of_iterations_has_to_be_known() -> None:
    source = text(trips="reshape(p)").replace(
        "n = s32[] reshape(p)",
        "p = s32[1,1] slice(h), slice={[0:1], [0:1]}\n  n = s32[] reshape(p)",
    )
    assert not missed(source)


def test_products_take_no_more_than_told() -> None:
    assert missed(text(), WhileProductHoisting(max_growth=0.5)) == [
        "its 160 bytes are more than max_growth=0.5 times the 204 of the state"
    ]
    with pytest.raises(UsageError, match="max_growth is a number of bytes a byte, or 0"):
        WhileProductHoisting(max_growth=-1)


def test_only_products_of_what_is_carried_stay_in_a_recurrence() -> None:
    """O2 takes those of its inputs out, with fast math those that are added up, too."""
    rows, size = 16, 8
    square, row = f"f32[{size},{size}]", f"f32[4,{size}]"
    every = f"f32[{rows},4,{size}]"
    state = f"(s32[], {row}, {square}, {every}, {square})"
    source = f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({rows})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = {row} get-tuple-element(s), index=1
  total = {square} get-tuple-element(s), index=2
  xs = {every} get-tuple-element(s), index=3
  w = {square} get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  part = f32[1,4,{size}] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={{1,4,{size}}}
  x = {row} reshape(part)
  xw = {row} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  hw = {row} dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = {row} add(xw, hw)
  y = {row} tanh(z)
  g = {square} dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  more = {square} add(total, g)
  ROOT t = {state} tuple(j, y, more, xs, w)
}}
ENTRY main {{
  h = {row} parameter(0)
  total = {square} parameter(1)
  xs = {every} parameter(2)
  w = {square} parameter(3)
  start = s32[] constant(0)
  t = {state} tuple(start, h, total, xs, w)
  loop = {state} while(t), condition=condition, body=body
  last = {row} get-tuple-element(loop), index=1
  sum = {square} get-tuple-element(loop), index=2
  ROOT r = ({row}, {square}) tuple(last, sum)
}}
"""
    plain = hloopt.optimize(hloopt.parse(source), "O2")
    fast = hloopt.optimize(hloopt.parse(source), "O2{fast_math=true}")
    for module, within in ((plain, 2), (fast, 1)):
        bodies = [one.body for one in module.instructions() if one.opcode == "while"]
        (body,) = bodies
        found = [
            one
            for called in (body, *(each.calls for each in body if each.opcode == "fusion"))
            for one in called
            if one.opcode == "dot"
        ]
        assert len(found) == within

"""while-output-sinking: what a loop collects of products is one product after it, with the same bits."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.linear_algebra.output_sinking import WhileOutputSinking
from hloopt.rewrite import PassLog
from tests.passes.proof import check

TRIPS = 5
PASS = WhileOutputSinking(max_growth=10)


def text(
    kind: str = "s32",
    *,
    whole: str = "5,2,4",
    cut: str = "1,2,4",
    at: str = "i, zero, zero",
    dot: str = "KIND[2,4] dot(more, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    value: str = "",
    written: str = "d",
    into: str = "ys",
    more: str = "",
    following: str = "out",
    results: str = "last, all",
) -> str:
    """A loop that writes what it makes of the product of what it carries and of ``w`` into a row of ``ys``."""
    state = f"(s32[], KIND[2,3], KIND[{whole}], KIND[3,4], KIND[4])"
    shapes = {"last": "KIND[2,3]", "all": f"KIND[{whole}]"}
    ends = ", ".join(shapes[one.strip()] for one in results.split(","))
    return f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({TRIPS})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = KIND[2,3] get-tuple-element(s), index=1
  ys = KIND[{whole}] get-tuple-element(s), index=2
  w = KIND[3,4] get-tuple-element(s), index=3
  bias = KIND[4] get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  end = s32[] constant({TRIPS - 1})
  down = s32[] subtract(end, i)
  more = KIND[2,3] negate(h)
  d = {dot}
  {value}
  y = KIND[{cut}] reshape({written})
  out = KIND[{whole}] dynamic-update-slice({into}, y, {at})
  {more}
  ROOT t = {state} tuple(j, more, {following}, w, bias)
}}
ENTRY main {{
  h = KIND[2,3] parameter(0)
  ys = KIND[{whole}] parameter(1)
  w = KIND[3,4] parameter(2)
  bias = KIND[4] parameter(3)
  start = s32[] constant(0)
  t = {state} tuple(start, h, ys, w, bias)
  loop = {state} while(t), condition=condition, body=body
  last = KIND[2,3] get-tuple-element(loop), index=1
  all = KIND[{whole}] get-tuple-element(loop), index=2
  ROOT r = ({ends}) tuple({results})
}}
""".replace("KIND", kind)


def dots(given: Module, where: str) -> int:
    return sum(one.opcode == "dot" for one in given.computations[where])


def missed(source: str, instance: WhileOutputSinking = PASS) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


BIAS = """spread = KIND[2,4] broadcast(bias), dimensions={1}
  sum = KIND[2,4] add(d, spread)
  turned = KIND[4,3] transpose(w), dimensions={1,0}
  none = KIND[] constant(0)
  least = KIND[2,4] broadcast(none), dimensions={}
  active = KIND[2,4] maximum(least, sum)"""


@pytest.mark.every_value
@pytest.mark.parametrize("kind", ["s32", "u8", "f32", "bf16"])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"at": "down, zero, zero"},
        {"whole": "2,5,4", "cut": "2,1,4", "at": "zero, i, zero"},
        {"whole": "2,4,5", "cut": "2,4,1", "at": "j, zero, down"},
        {"value": BIAS, "written": "active"},
        {"whole": "2,5,4", "cut": "2,1,4", "at": "zero, down, zero", "value": BIAS, "written": "active"},
        {"dot": "KIND[4,2] dot(w, more), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
         "whole": "5,4,2", "cut": "1,4,2"},
        {"dot": "KIND[2,4] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         "results": "all"},
    ],
)  # fmt: skip
def test_all_bits_stay(form: dict[str, str], kind: str) -> None:
    """Rows written up or down along any dimension, by either side, with what is done to them."""
    made, _ = check(text(kind, **form), PASS, draws=3)
    assert dots(made, "body") == 0
    assert dots(made, "main") == 1


@pytest.mark.parametrize("kind", ["s32", "f32"])
def test_two_layers_leave_one_after_the_other(kind: str) -> None:
    """The second product is collected, then what it is made of, which is a product itself."""
    more = """square = KIND[4,4] dot(w, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  none = KIND[] constant(0)
  least = KIND[2,3] broadcast(none), dimensions={}
  first = KIND[2,3] dot(h, turn), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  active = KIND[2,3] maximum(least, first)
  second = KIND[2,4] dot(active, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""".replace(
        "KIND", kind
    )
    numbers = "{{1,2,3},{4,5,6},{7,8,9}}"
    source = text(
        kind,
        dot=f"{kind}[2,4] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"  turn = {kind}[3,3] constant({numbers})",
        value="\n  ".join(more.split("\n  ")[1:]),
        written="second",
    )
    made, _ = check(source, PASS, draws=3)
    assert [one.name for one in made.computations["body"] if one.opcode == "dot"] in ([], ["d"])
    assert dots(made, "main") == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"more": "seen = s32[2,4] negate(d)"},
        {"value": "twice = s32[2,4] add(d, d)", "written": "twice"},
        {"value": "other = s32[2,4] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                  "  sum = s32[2,4] add(d, other)", "written": "sum"},
        {"at": "zero, zero, zero"},
        {"at": "j, zero, zero"},
        {"whole": "6,2,4"},
        {"whole": "4,2,4"},
        {"more": "seen = s32[5,2,4] negate(ys)"},
        {"more": "seen = s32[5,2,4] negate(out)"},
        {"into": "twice", "value": "twice = s32[5,2,4] add(ys, ys)"},
        {"dot": "s32[2,4] dot(more, changed), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         "results": "all"},
    ],
)  # fmt: skip
def test_what_is_more_than_collected_stays(changed: dict[str, str]) -> None:
    """Others read the product or the array, rows that are not all written, or two products."""
    source = text(**changed)
    if "changed" in source:
        source = source.replace(
            "  more = ", "  q = s32[3,4] slice(z), slice={[0:3], [0:4]}\n  changed = s32[3,4] copy(q)\n"
            "  more = ").replace("  one = s32[] constant(1)\n",
            "  one = s32[] constant(1)\n  z = s32[3,4] broadcast(i), dimensions={}\n")  # fmt: skip
    assert not missed(source)


def test_factors_take_no_more_than_told() -> None:
    assert missed(text(), WhileOutputSinking(max_growth=0.1)) == [
        "120 bytes to keep are more than max_growth=0.1 times the 252 of the state"
    ]
    with pytest.raises(UsageError, match="max_growth is a number of bytes a byte, or 0"):
        WhileOutputSinking(max_growth=-1)


def test_the_array_that_was_collected_is_carried_no_more() -> None:
    """O2 drops it from the state."""
    module = hloopt.optimize(hloopt.parse(text("f32", value=BIAS, written="active")), "O2")
    (loop,) = [one for one in module.instructions() if one.opcode == "while"]
    dims = [getattr(one, "dims", ()) for one in loop.elements]
    assert (5, 2, 4) not in dims
    assert (5, 2, 3) in dims

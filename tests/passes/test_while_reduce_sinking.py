"""while-reduce-sinking: what a loop adds up is reduced behind it, with the same bits."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.loops.reduce_sinking import WhileReduceSinking
from hloopt.rewrite import PassLog
from tests.passes.proof import check

PASS = WhileReduceSinking()


def text(
    kind: str = "s32",
    opcode: str = "add",
    zero: str = "0",
    *,
    iterations: int = 3,
    more: str = "",
    next_total: str = "total, r",
    results: str = "total",
    condition: str = "i, n",
) -> str:
    """A loop that adds up what it has of ``x`` in each trip."""
    state = f"(s32[], {kind}[], {kind}[4,3])"
    return f"""HloModule m
region {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT c = {kind}[] {opcode}(a, b) }}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  total = {kind}[] get-tuple-element(s), index=1
  n = s32[] constant({iterations})
  ROOT c = pred[] compare({condition}), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  total = {kind}[] get-tuple-element(s), index=1
  x = {kind}[4,3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = {kind}[4,3] {opcode}(x, x)
  zero = {kind}[] constant({zero})
  r = {kind}[] reduce(y, zero), dimensions={{0,1}}, to_apply=region
  {more}
  sum = {kind}[] {opcode}({next_total})
  ROOT t = {state} tuple(j, sum, y)
}}
ENTRY main {{
  first = {kind}[] parameter(0)
  x = {kind}[4,3] parameter(1)
  start = s32[] constant(0)
  t = {state} tuple(start, first, x)
  w = {state} while(t), condition=condition, body=body
  total = {kind}[] get-tuple-element(w), index=1
  last = {kind}[4,3] get-tuple-element(w), index=2
  ROOT r = tuple({results})
}}
""".replace("ROOT r = tuple(total)", f"ROOT r = ({kind}[]) tuple(total)").replace(
        "ROOT r = tuple(total, last)", f"ROOT r = ({kind}[], {kind}[4,3]) tuple(total, last)"
    )


def inside(module: Module) -> list[str]:
    return [one.opcode for one in module.computations["body"]]


def missed(source: str, instance: WhileReduceSinking = PASS) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


@pytest.mark.every_value
@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize(
    ("kind", "opcode", "zero"),
    [
        ("s32", "add", "0"),
        ("u8", "multiply", "1"),
        ("s16", "xor", "0"),
        ("pred", "and", "true"),
        ("pred", "or", "false"),
        ("s32", "maximum", "-2147483648"),
        ("u32", "minimum", "4294967295"),
    ],
)
def test_the_result_keeps_its_bits(kind: str, opcode: str, zero: str, iterations: int) -> None:
    """Whatever the operation and however often the loop runs, never included."""
    check(text(kind, opcode, zero, iterations=iterations, results="total, last"), PASS)


def test_nothing_is_reduced_within_the_loop_any_more() -> None:
    """The body adds elementwise, and hands on what the sum began with."""
    module = hloopt.optimize(hloopt.parse(text(next_total="r, total")), PASS)
    assert "reduce" not in inside(module)
    assert [one.opcode for one in module.entry if one.opcode == "reduce"] == ["reduce"]
    body = module.computations["body"]
    assert body.root.operands[1].opcode == "get-tuple-element"
    assert body.root.operands[3].opcode == "add"


@pytest.mark.parametrize(
    "changed",
    [
        {"next_total": "r, r"},
        {"next_total": "total, total"},
        {"zero": "1"},
        {"more": "seen = s32[] negate(total)"},
        {"more": "seen = s32[] negate(r)", "next_total": "total, seen"},
        {"condition": "total, n"},
    ],
)
def test_what_is_more_than_a_sum_stays(changed: dict[str, str]) -> None:
    """Others read the sum, the reduce begins with something, or another value is added."""
    assert not missed(text(**changed))


def test_sums_of_floats_need_leave() -> None:
    """Another order rounds otherwise."""
    source = text("f32", zero="0", iterations=2)
    assert missed(source) == ["another order changes sums of f32: fast_math"]
    module = hloopt.optimize(hloopt.parse(source), WhileReduceSinking(fast_math=True))
    assert "reduce" not in inside(module)


def test_parts_take_no_more_than_told() -> None:
    """Of the bytes that the loop carries beside them."""
    assert missed(text(), WhileReduceSinking(max_growth=0.5)) == [
        "its 48 bytes are more than max_growth=0.5 times the 56 of the state"
    ]
    with pytest.raises(UsageError, match="max_growth is a number of bytes a byte, or 0"):
        WhileReduceSinking(max_growth=-1)


def test_a_loop_whose_units_only_meet_in_a_sum_is_one_kernel() -> None:
    """O3 lets each unit run apart, and adds up once."""
    source = text(iterations=50).replace("[4,3]", "[4096,3]")
    fused = hloopt.optimize(hloopt.parse(source), "O3")
    (kernel,) = (one for one in fused.instructions() if one.name.startswith("loop_fusion"))
    assert '"while-per-thread"' in str(kernel.attributes["backend_config"])

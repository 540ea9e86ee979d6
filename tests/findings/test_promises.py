"""What a finding promises is what its reader gets: their own change, as their compiler makes it."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Finding, kind_examples

STEP = """HloModule step
ENTRY main {{
  x = f32[4096,256] parameter(0)
  w = f32[256,256] parameter(1)
  v = f32[4096,256] parameter(2)
  y = f32[4096,256] {made}
  ROOT r = f32[4096,256] {root}
}}
"""
DOT = "dot({}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
MANY = """HloModule many
ENTRY main {{
{body}
  ROOT r = ({shapes}) tuple({names})
}}
"""


def found(text: str, kind: str) -> tuple[Finding, ...]:
    """The findings of a kind for an H200."""
    return hloopt.why(hloopt.parse(text), kinds=[kind]).rows


def ways(row: Finding) -> list[str]:
    """Where its remedies are."""
    return [one.way for one in row.remedies]


@pytest.mark.parametrize(
    ("made", "root", "saved"),
    [
        (DOT.format("v"), "add(x, y)", 1 << 22),
        (DOT.format("x"), "tanh(y)", 0),
        ("reverse(x), dimensions={0}", "multiply(y, v)", 0),
    ],
)
def test_donation_saves_what_is_not_copied_then(made: str, root: str, saved: int) -> None:
    """A sum behind a dot is made where the argument is; what reads it in another order is copied there."""
    rows = found(STEP.format(made=made, root=root), "not-donated")
    assert sum(row.gain.saved for row in rows) == saved


def test_a_loop_gains_what_eight_iterations_at_once_gain() -> None:
    """That is what a user can have, and hloopt's kernel is named beside it."""
    (row,) = found(kind_examples()["loop-kernels"].example, "loop-kernels")
    assert ways(row) == ["model", "hloopt"]
    assert "unroll=8" in row.remedies[0].text
    assert 4 < row.gain.before / row.gain.after < 8


def test_a_loop_that_cannot_be_unrolled_gains_its_kernel() -> None:
    """Five iterations are one kernel of hloopt's, or one that the user writes."""
    text = kind_examples()["loop-kernels"].example.replace("constant(50)", "constant(5)")
    (row,) = found(text, "loop-kernels")
    assert "loop-fusion" in row.remedies[0].text
    assert not any("unroll" in one.text for one in row.remedies)


def test_without_a_line_of_the_program_there_is_no_change_of_it() -> None:
    """What a library adds is not the user's to write otherwise, where others have their lines."""
    text = kind_examples()["loop-kernels"].example
    line = ', metadata={source_file="model.py" source_line=3}'
    by_library = text.replace("tuple(zero, x)", "tuple(zero, x)" + line)
    (row,) = found(by_library, "loop-kernels")
    assert ways(row) == ["hloopt"]
    by_user = text.replace("body=body", "body=body" + line)
    (row,) = found(by_user, "loop-kernels")
    assert ways(row) == ["model", "hloopt"]


@pytest.mark.parametrize("alike", [True, False])
def test_only_what_is_alike_can_be_one_array(alike: bool) -> None:
    """Other kernels side by side are hloopt's to join."""
    ops = ["tanh"] * 6 if alike else ["tanh", "sine", "cosine", "log", "sqrt", "floor"]
    body = "".join(
        f"  x{at} = f32[{8 + at}] parameter({at})\n  y{at} = f32[{8 + at}] {op}(x{at})\n"
        f"  z{at} = f32[{8 + at}] negate(y{at})\n"
        for at, op in enumerate(ops)
    )
    shapes = ", ".join(f"f32[{8 + at}]" for at in range(6))
    names = ", ".join(f"z{at}" for at in range(6))
    (row,) = found(MANY.format(body=body, shapes=shapes, names=names), "small-kernels")
    assert ways(row) == (["model", "hloopt"] if alike else ["hloopt"])


def test_a_root_is_turned_over_before_its_broadcast_is_moved() -> None:
    """As XLA does it: the division by a root becomes a product with one value a row."""
    text = """HloModule norm
ENTRY main {
  x = f64[64,32] parameter(0)
  v = f64[64] parameter(1)
  b = f64[64,32] broadcast(v), dimensions={0}
  s = f64[64,32] sqrt(b)
  ROOT r = f64[64,32] divide(x, s)
}
"""
    fast = hloopt.optimize(hloopt.parse(text), "simplify{fast_math=true}")
    root = fast.entry.root
    assert root.opcode == "multiply"
    assert root.operands[1].opcode == "broadcast"
    assert root.operands[1].operands[0].opcode == "rsqrt"
    assert root.operands[1].operands[0].array.dims == (64,)
    exact = hloopt.optimize(hloopt.parse(text), "simplify").entry.root
    assert exact.opcode == "divide"
    assert exact.operands[1].operands[0].opcode == "sqrt"


@pytest.mark.parametrize(
    ("rows", "depth", "then", "count"),
    [(200_000, 2, "negate", 1), (200_000, 2, "tanh", 0), (2, 7, "negate", 0)],
)
def test_on_the_host_a_thin_product_is_worth_it_by_what_is_measured(
    rows: int, depth: int, then: str, count: int
) -> None:
    """In a sum's loop, a function of rows of two leaves vectors idle; small products are loops already."""
    text = f"""HloModule thin
ENTRY main {{
  x = f32[{rows},{depth}] parameter(0)
  w = f32[{depth},2] parameter(1)
  d = f32[{rows},2] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[{rows},2] {then}(d)
}}
"""
    assert len(hloopt.why(hloopt.parse(text), "host", kinds=["thin-product"]).rows) == count

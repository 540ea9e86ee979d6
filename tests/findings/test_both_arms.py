"""Selects of whole rows whose arms are both computed for all of them."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console

import hloopt
from hloopt.analysis.cost import Cost
from hloopt.findings import Findings, both_arms
from hloopt.findings.both_arms import own_of
from hloopt.ir import Instruction
from hloopt.report.findings import show_findings
from hloopt.rewrite.site import sites

STEP = """HloModule step
ENTRY main {
  p = pred[64] parameter(0)
  x = f32[64,512,512] parameter(1)
  heavy = f32[64,512,512] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  waves = f32[64,512,512] sine(heavy)
  zero = f32[] constant(0)
  zeros = f32[64,512,512] broadcast(zero), dimensions={}
  mask = pred[64,512,512] broadcast(p), dimensions={0}
  ROOT r = f32[64,512,512] select(mask, waves, x)
}
"""
BY_INDEX = STEP.replace("p = pred[64]", "p = s32[64]").replace(
    "  mask = pred[64,512,512] broadcast(p), dimensions={0}\n",
    """  n = s32[] constant(1)
  ns = s32[64,512,512] broadcast(n), dimensions={}
  ps = s32[64,512,512] broadcast(p), dimensions={0}
  mask = pred[64,512,512] compare(ps, ns), direction=LT
""",
)


def found(text: str) -> Findings:
    return hloopt.why(hloopt.parse(text), kinds=["one-hot-product"])


def said(row: Findings) -> str:
    """As it is printed, on one line."""
    console = Console(file=StringIO(), width=80)
    show_findings(row, console)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


@pytest.mark.parametrize("text", [STEP, BY_INDEX], ids=["pred", "index"])
def test_the_costly_arm_is_named_with_what_a_run_takes_without_it(text: str) -> None:
    """However the mask of the rows is made."""
    answer = found(text)
    (choice,) = answer.choices
    assert (choice.name, choice.arm, choice.other, choice.rows) == ("r", "waves", "x", 64)
    assert choice.without < 0.8 * choice.seconds
    assert choice.seconds == answer.seconds
    assert answer.to_json()["row_choices"][0]["arm"] == "waves"
    assert "%r chooses 64 rows one by one between %waves and %x" in said(answer)


def test_the_other_arm_is_seen_as_well() -> None:
    """The one that is taken where the mask is false."""
    (choice,) = found(STEP.replace("select(mask, waves, x)", "select(mask, x, waves)")).choices
    assert (choice.arm, choice.other) == ("waves", "x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("select(mask, waves, x)", "select(mask, waves, zeros)"),
        ("select(mask, waves, x)", "select(mask, waves, waves)"),
        ("select(mask, waves, x)", "select(mask, zeros, x)"),
        ("p = pred[64] parameter(0)", "p = pred[64,512,512] parameter(0)"),
        (
            "  ROOT r = f32[64,512,512] select(mask, waves, x)",
            "  s = f32[64,512,512] select(mask, waves, x)\n  ROOT r = f32[64,512,512] add(s, waves)",
        ),
    ],
    ids=["mask of what counts", "no choice", "nothing computed", "by element", "read otherwise"],
)
def test_where_no_row_is_computed_in_vain(old: str, new: str) -> None:
    """Arms that are constant, that something else reads, masks of elements."""
    text = STEP.replace(old, new)
    text = (
        text.replace("broadcast(p), dimensions={0}", "copy(p)")
        if "512] parameter(0)" in new
        else text
    )
    answer = found(text)
    assert not answer.choices
    assert "one by one between" not in said(answer)


def test_a_mask_of_shared_values_is_looked_at_once() -> None:
    """Each instruction, however often it is read: there are 2 ** 40 ways through this one."""
    lines = ["  m0 = pred[64,512,512] broadcast(p), dimensions={0}"]
    lines += [f"  m{n + 1} = pred[64,512,512] and(m{n}, m{n})" for n in range(40)]
    text = STEP.replace("  mask = pred[64,512,512] broadcast(p), dimensions={0}", "\n".join(lines))
    (choice,) = found(text.replace("select(mask,", "select(m40,")).choices
    assert choice.rows == 64


def test_work_that_is_read_elsewhere_is_no_arms_own() -> None:
    """Also where the arm reads it along two ways, through one value."""
    ways = """  first = f32[64,512,512] exponential(heavy)
  other = f32[64,512,512] negate(first)
  waves = f32[64,512,512] add(first, other)
"""
    text = STEP.replace("  waves = f32[64,512,512] sine(heavy)\n", ways)
    read = text.replace("ROOT r =", "s =").replace(
        "select(mask, waves, x)",
        "select(mask, waves, x)\n  ROOT r = (f32[64,512,512], f32[64,512,512]) tuple(s, heavy)",
    )
    (alone,) = sites(hloopt.parse(text), "select")
    (shared,) = sites(hloopt.parse(read), "select")
    for select, names in (
        (alone, ["waves", "other", "first", "heavy"]),
        (shared, ["waves", "other", "first"]),
    ):
        assert [one.name for one in own_of(select, 1)] == names


def test_choices_of_one_computation_share_what_its_work_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are, each instruction's cost is asked for once."""
    asked: list[str] = []
    cost = both_arms.instruction_cost

    def counted(one: Instruction) -> Cost:
        asked.append(one.name)
        return cost(one)

    monkeypatch.setattr(both_arms, "instruction_cost", counted)
    lines = ["  step0 = f32[64,512,512] select(mask, waves, x)"]
    lines += [f"  step{n + 1} = f32[64,512,512] select(mask, step{n}, x)" for n in range(20)]
    text = STEP.replace("  ROOT r = f32[64,512,512] select(mask, waves, x)", "\n".join(lines))
    module = hloopt.parse(text.replace("  step20 =", "  ROOT step20 ="))
    assert hloopt.why(module, kinds=["one-hot-product"]).choices
    assert max(Counter(asked).values()) == 1

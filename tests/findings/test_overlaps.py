"""What of a collective is exposed: by the order of a plan, and by the best one."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.collectives import collective_run_time
from hloopt.findings import Finding
from hloopt.targets import find_target

GATHER = (
    "(bf16[512,4096], bf16[4096,4096]) all-gather-start(w{n}), channel_id={n}, "
    "replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{0}}, use_global_device_ids=true"
)
DOT = "lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def plan(*lines: str, gathers: int = 1) -> str:
    """A scheduled module: gathered weights, and what is computed; {G1} is the first gather, {D} ends a dot."""
    given = "".join(f"  w{n} = bf16[512,4096] parameter({n})\n" for n in range(1, gathers + 1))
    starts = {f"G{n}": GATHER.format(n=n) for n in range(1, gathers + 1)}
    body = "\n".join(f"  {line.format(D=DOT.format(), **starts)}" for line in lines)
    head = "HloModule m, is_scheduled=true, num_partitions=8\nENTRY main {\n  w0 = bf16[4096,4096] parameter(0)\n"
    return f"{head}{given}{body}\n}}\n"


def exposed(text: str) -> tuple[Finding, ...]:
    """What is found of a module."""
    return hloopt.why(hloopt.parse(text), "h200", kinds=["exposed-collective"]).rows


def gather_seconds() -> float:
    """Of one collective by itself, with its launch."""
    start = hloopt.parse(plan("s = {G1}", "ROOT d = bf16[4096,4096] all-gather-done(s)"))["s"]
    time = collective_run_time(start, find_target("h200"))
    assert time is not None
    return time.exec_ns * 1e-9 + 1e-6


FIRST = ("s = {G1}", "d = bf16[4096,4096] all-gather-done(s)")
BESIDE = "h = bf16[4096,4096] dot(w0, w0), {D}"
AFTER = "ROOT r = bf16[4096,4096] dot(h, d), {D}"


def test_the_whole_collective_is_hidden_by_a_longer_kernel() -> None:
    """The gain is what runs beside it, and no more than the collective takes."""
    (found,) = exposed(plan(*FIRST, BESIDE, AFTER))
    assert found.instruction == "s"
    assert found.gain.how == "predicted"
    assert found.gain.saved == pytest.approx(gather_seconds(), rel=0.01)
    assert {one.way for one in found.remedies} == {"flag", "model"}


def test_no_more_than_the_kernel_takes_is_hidden() -> None:
    """A short kernel hides its own time."""
    short = "h = bf16[4096,4096] negate(w0)"
    (found,) = exposed(plan(*FIRST, short, AFTER))
    assert 0 < found.gain.saved < 0.5 * gather_seconds()


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((FIRST[0], BESIDE, FIRST[1], AFTER), id="beside it already"),
        pytest.param(
            (*FIRST, "h = bf16[4096,4096] dot(w0, d), {D}", AFTER), id="all reads its result"
        ),
        pytest.param((*FIRST, "ROOT r = bf16[4096,4096] dot(w0, d), {D}"), id="nothing else"),
    ],
)
def test_what_cannot_be_better_is_not_found(lines: tuple[str, ...]) -> None:
    """Hidden as it is, or by nothing there is."""
    assert not exposed(plan(*lines))


def test_a_plan_that_hides_another_one_is_left_alone() -> None:
    """Its compiler orders for that, and no flag makes it find more."""
    hidden = ("t = {G2}", BESIDE, "e = bf16[4096,4096] all-gather-done(t)")
    late = (
        *FIRST,
        "f = bf16[4096,4096] dot(w0, e), {D}",
        "ROOT r = bf16[4096,4096] dot(f, d), {D}",
    )
    assert not exposed(plan(*hidden, *late, gathers=2))


def test_two_collectives_share_what_hides_them() -> None:
    """A kernel hides one after the other: the second gains only what the first leaves."""
    lines = (
        "s = {G1}",
        "t = {G2}",
        BESIDE,
        "d = bf16[4096,4096] all-gather-done(s)",
        "e = bf16[4096,4096] all-gather-done(t)",
        "f = bf16[4096,4096] add(d, e)",
        "ROOT r = bf16[4096,4096] dot(h, f), {D}",
    )
    assert not exposed(plan(*lines, gathers=2))


def test_a_module_that_is_no_plan_has_no_order() -> None:
    """Its compiler will choose one."""
    text = plan(*FIRST, BESIDE, AFTER).replace("is_scheduled=true, ", "")
    assert not exposed(text)

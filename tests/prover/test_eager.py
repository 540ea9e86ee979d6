"""Programs that are NaN as a whole and numbers one instruction at a time, or the reverse."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.prover.eager import merged_operands
from tests.helpers.support import invoke

SUM = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"


def program(*lines: str, sharding: str = "") -> hloopt.Module:
    parameters = (
        "x = f32[8,16] parameter(0)",
        "y = f32[8,16] parameter(1)",
        "z = f32[] constant(0)",
    )
    body = "\n".join(f"  {line}" for line in (*parameters, *lines))
    return hloopt.parse(f"HloModule m{sharding}\n{SUM}\nENTRY e {{\n{body}\n}}\n")


TWO_SUMS = (
    "p = f32[8] reduce(x, z), dimensions={1}, to_apply=add",
    "q = f32[8] reduce(x, z), dimensions={1}, to_apply=add",
)
VARIANCE = (
    "n = f32[] constant(16)",
    "c = f32[8] broadcast(n), dimensions={}",
    "xx = f32[8,16] multiply(x, x)",
    "p = f32[8] reduce(xx, z), dimensions={1}, to_apply=add",
    "q = f32[8] reduce(x, z), dimensions={1}, to_apply=add",
    "ex = f32[8] divide(p, c)",
    "m = f32[8] divide(q, c)",
    "mm = f32[8] multiply(m, m)",
    "v = f32[8] subtract(ex, mm)",
    "ROOT r = f32[8] sqrt(v)",
)
CROSS = (
    "p = f32[8,16] multiply(x, y)",
    "q = f32[8,16] multiply(y, x)",
    "v = f32[8,16] subtract(p, q)",
    "ROOT r = f32[8,16] divide(v, v)",
)


@pytest.fixture(autouse=True)
def _no_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOPT_XLA_PYTHON", "")


@pytest.mark.parametrize(
    ("lines", "name", "at", "named"),
    [
        ((*TWO_SUMS, "ROOT r = f32[8] divide(p, q)"), "cse", "%r", ["r", "p", "q"]),
        (CROSS, "cse", "%r", ["r", "p", "q"]),
        (
            (*TWO_SUMS, "d = f32[8] subtract(p, q)", "ROOT r = f32[8] log(d)"),
            "cse",
            "%r",
            ["r", "p", "q"],
        ),
        (VARIANCE, "rounding", "%r", ["r"]),
    ],
)
def test_what_decides_is_named(
    lines: tuple[str, ...], name: str, at: str, named: list[str]
) -> None:
    found = hloopt.bisect(program(*lines), eager=True)
    (culprit,) = found.culprits
    assert found.exit_code == 1
    assert culprit.name == name
    assert culprit.where.startswith(f"{at}, inputs ")
    assert [one.name for one in culprit.rewritten] == named
    assert any("as a whole" in line for line in culprit.first)


@pytest.mark.parametrize(
    "lines",
    [
        (*TWO_SUMS, "ROOT r = f32[8] subtract(p, q)"),
        (TWO_SUMS[0], "ROOT r = f32[8] tanh(p)"),
        ("m = pred[8,16] compare(x, x), direction=EQ", "ROOT r = f32[8,16] select(m, x, y)"),
    ],
)
def test_numbers_that_stay_numbers_are_nothing(lines: tuple[str, ...]) -> None:
    """A difference of twins is 0 or nearly so: no NaN of either."""
    found = hloopt.bisect(program(*lines), eager=True)
    assert not found.culprits
    assert found.exit_code == 0
    assert {one.outcome for one in found.examined} == {"equal"}


def test_operands_that_become_one_are_listed_with_their_reader() -> None:
    apart = program(*CROSS)
    merged = program(*CROSS)
    hloopt.ir.edit.replace_uses(merged.entry.by_name["q"], merged.entry.by_name["p"])
    (found,) = merged_operands(apart, merged)
    assert (found.reader.name, found.kept.name) == ("v", "p")
    assert [one.name for one in found.gone] == ["q"]


def test_several_participants_are_refused() -> None:
    with pytest.raises(UsageError, match="it has several participants"):
        hloopt.bisect(program(*CROSS, sharding=", num_partitions=2"), eager=True)


@pytest.mark.parametrize(
    "option", ["-O2", "--tolerance=rtol=1", "--check=true", "--every", "--device=cpu", "--xla"]
)
def test_options_of_other_searches_are_refused(tmp_path: Path, option: str) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(program(*CROSS).to_text())
    result = invoke("bisect", str(path), "--eager", option)
    assert result.exit_code == 2
    name = option.partition("=")[0].removesuffix("2")
    assert result.stderr == f"hloopt: error: {name} has no meaning with --eager\n"

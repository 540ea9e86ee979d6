"""The text of gates, and what they say of figures."""

from __future__ import annotations

import pytest

from hloopt.errors import UsageError
from hloopt.report.gate import Gate, parse_gates


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("kernels<=100", Gate("kernels<=100", "kernels", 100)),
        ("launches<=+0", Gate("launches<=+0", "launches", 0, relative=True)),
        ("bytes<=+2%", Gate("bytes<=+2%", "bytes", 0.02, relative=True, percent=True)),
        ("flops<=-1", Gate("flops<=-1", "flops", -1, relative=True)),
        ("bytes<=1.5KiB", Gate("bytes<=1.5KiB", "bytes", 1536)),
        ("flops <= +3 M", Gate("flops <= +3 M", "flops", 3e6, relative=True)),
        ("time<=250us", Gate("time<=250us", "time", 250e-6)),
        ("time<=-5%", Gate("time<=-5%", "time", -0.05, relative=True, percent=True)),
        ("time<=+0", Gate("time<=+0", "time", 0, relative=True)),
    ],
)
def test_a_gate(text: str, gate: Gate) -> None:
    """Absolute without a sign, relative with one, in hundredths with a percent sign, in units."""
    (found,) = parse_gates(text)
    assert (found.text, found.figure, found.relative, found.percent) == (
        gate.text, gate.figure, gate.relative, gate.percent,
    )  # fmt: skip
    assert found.value == pytest.approx(gate.value)


def test_gates_are_separated_by_commas() -> None:
    """Blanks are free."""
    found = parse_gates(" kernels<=+0 , bytes <= +2% ")
    assert [gate.text for gate in found] == ["kernels<=+0", "bytes <= +2%"]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected one of kernels, launches"),
        ("kernels<=+0,", 13, "expected one of kernels, launches"),
        ("kernel<=+0", 1, "no gate is called 'kernel'; did you mean 'kernels'?"),
        ("kernels", 8, "expected '<=' after 'kernels', found the end"),
        ("kernels<+0", 8, "expected '<=' after 'kernels', found '<'"),
        ("kernels>=3", 8, "expected '<=' after 'kernels', found '>'"),
        ("bytes<=", 8, "expected a limit such as 100, +0 or +2%, found the end"),
        ("bytes<=few", 8, "expected a limit such as 100, +0 or +2%, found 'f'"),
        ("bytes<=2%", 8, "write +2% or -2%"),
        ("bytes<=2MX", 9, "'MX' is not a unit of bytes (valid: B, kB"),
        ("kernels<=2ms", 11, "'ms' is not a unit of kernels"),
        ("time<=20", 9, "time needs a unit (valid: ns, us"),
        ("kernels<=1 bytes<=2", 12, "'bytes' is not a unit of kernels"),
        ("kernels<=1;bytes<=2", 11, "expected ',' or the end, found ';'"),
    ],
)
def test_a_gate_that_makes_no_sense(text: str, column: int, message: str) -> None:
    """A usage error with the column, the text and a caret."""
    with pytest.raises(UsageError) as caught:
        parse_gates(text)
    first, *excerpt = str(caught.value).splitlines()
    assert first.startswith(f"--max, column {column}: ")
    assert message in first
    assert excerpt[-1].index("^") == column - 1


@pytest.mark.parametrize(
    ("text", "before", "after", "passed"),
    [
        ("kernels<=100", 5, 100, True), ("kernels<=100", 500, 101, False),
        ("kernels<=+0", 7, 7, True), ("kernels<=+0", 7, 8, False), ("kernels<=+0", 7, 6, True),
        ("kernels<=-1", 7, 6, True), ("kernels<=-1", 7, 7, False),
        ("bytes<=+2%", 100, 102, True), ("bytes<=+2%", 100, 103, False),
        ("bytes<=+2%", 0, 1, False), ("bytes<=-10%", 100, 90, True), ("bytes<=-10%", 100, 91, False),
        ("bytes<=+0.1%", 3 << 40, round((3 << 40) * 1.001) - 1, True),
    ],
)  # fmt: skip
def test_a_verdict(text: str, before: float, after: float, passed: bool) -> None:
    """The limit itself is allowed, one more is not."""
    (gate,) = parse_gates(text)
    assert gate.check(before, after).passed is passed

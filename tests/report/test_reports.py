"""Numbers as people read them, and tables that fit."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import hloopt
from hloopt.numbers import amount, byte_size, error, seconds
from hloopt.report.console import table
from hloopt.report.run import RunReport, RunRow
from hloopt.report.stats import module_stats
from hloopt.runtime.judge import compare
from hloopt.runtime.timing import Timing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 us"), (3e-8, "30 ns"), (0.0, "0 ns"),
        (999.6e-6, "1000 us"), (1234.0, "1234 s"),
    ],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    """Three digits and the unit that suits them."""
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3 TiB"), (5 << 50, "5120 TiB")],
)
def test_byte_sizes(value: int, text: str) -> None:
    """Powers of 1024."""
    assert byte_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(999, "999"), (1000, "1 k"), (12_345_678, "12.3 M"), (10**18, "1000 P")]
)
def test_amounts(value: int, text: str) -> None:
    """Powers of 1000."""
    assert amount(value) == text


def test_an_exact_result_has_no_error() -> None:
    """0, not 0.0e+00."""
    assert (error(0.0), error(1.25e-7)) == ("0", "1.2e-07")


def report() -> RunReport:
    """Two programs of which one is wrong in one place."""
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    wrong = want.copy()
    wrong[1, 2] += 1
    return RunReport(
        "a[b].hlo",
        "strict rounding",
        "seed 0",
        "given, cpu",
        [
            RunRow(
                "given, cpu",
                3,
                3,
                Timing((0.002, 0.002, 0.0021)),
                "interpreter",
                (compare(want, want),),
            ),
            RunRow(
                "O2, cpu",
                1,
                1,
                Timing((0.001, 0.001, 0.001)),
                "interpreter",
                (compare(wrong, want),),
            ),
        ],
    )


def test_names_are_no_markup() -> None:
    """What a module calls its things is printed as it is, in every table."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0),"
        ' metadata={source_file="/a/[bold]/b.py" source_line=3}\n  ROOT r = f32[4] negate(x)\n}\n'
    )
    module.name = "[red]"
    stream = io.StringIO()
    module_stats(module).show(Console(file=stream, width=200))
    made = table("name")
    made.add_row("[/]")
    Console(file=stream).print(made)

    assert "/a/[bold]/b.py:3" in stream.getvalue()
    assert stream.getvalue().startswith("[red]\n")
    assert "[/]" in stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 132, 200])
def test_tables_fit_the_terminal(width: int) -> None:
    """No row is longer than the terminal; names from files are not taken for markup."""
    stream = io.StringIO()
    report().show(Console(file=stream, width=width, force_terminal=True, color_system=None))
    lines = stream.getvalue().splitlines()

    rows = [line for line in lines[1:] if not line.startswith("differs")]
    assert max(map(len, rows)) <= width
    assert lines[0].startswith("a[b].hlo")
    assert "2.00x" in stream.getvalue()
    assert "out_0[1,2]" in stream.getvalue()


@pytest.mark.parametrize(
    ("given", "better", "shown"),
    [
        ((0.004, 0.0041, 0.0042), (0.002, 0.0021, 0.0022), "1.95x"),
        ((0.002, 0.0021, 0.009), (0.0019, 0.002, 0.0021), " ~"),
        ((0.038,), (0.001,), " ~"),
    ],
)
def test_a_ratio_is_shown_where_times_part(
    given: tuple[float, ...], better: tuple[float, ...], shown: str
) -> None:
    """Not of times that overlap, nor of single runs; a note where they vary, and the shortest run, always."""
    rows = [RunRow("given, cpu", timing=Timing(given)), RunRow("O2, cpu", timing=Timing(better))]
    made = RunReport("m", "strict rounding", "seed 0", "given, cpu", rows)
    stream = io.StringIO()
    made.show(Console(file=stream, width=200))
    line = next(line for line in stream.getvalue().splitlines() if line.startswith("O2, cpu"))
    assert shown in line
    assert "least" in stream.getvalue()
    assert made.to_json()["rows"][1]["min"] == min(better)
    unsteady = "times of given, cpu vary by more than a fifth" in stream.getvalue()
    assert unsteady == (0.009 in given)


def test_a_wrong_result_is_told() -> None:
    """Which program, which result, how many elements and where."""
    stream = io.StringIO()
    report().show(Console(file=stream, width=200))

    assert not report().passed
    assert (
        "differs O2, cpu: out_0 against interpreter: 1 of 12 elements of f32" in stream.getvalue()
    )
    assert "worst at [1,2]" in stream.getvalue()


@pytest.mark.parametrize(
    ("memory", "shown"),
    [
        (None, "2.00x              16 B"),
        (4000, "< 1 MiB"),
        (3 << 20, "3 MiB"),
        (5 << 30, "5 GiB"),
    ],
)
def test_memory_is_shown_where_it_is_known(memory: int | None, shown: str) -> None:
    """A small run finds its memory already there."""
    made = report()
    made.rows[1] = replace(made.rows[1], memory=memory, alive=16)
    stream = io.StringIO()
    made.show(Console(file=stream, width=200))
    (line,) = [line for line in stream.getvalue().splitlines() if line.startswith("O2")]
    assert shown in line
    row = made.to_json()["rows"][1]
    assert (row["peak_memory"], row["bytes_alive"]) == (memory, 16)


def test_notes_stand_below_the_table() -> None:
    """Before what differs."""
    made = report()
    made.notes.append("1 of 1 results hold NaN")
    stream = io.StringIO()
    made.show(Console(file=stream, width=200))
    assert "\nnote 1 of 1 results hold NaN\ndiffers " in stream.getvalue()
    assert made.to_json()["notes"] == ["1 of 1 results hold NaN"]


def test_a_sentence_is_one_line() -> None:
    """A pipe gets what can be searched; a terminal breaks lines by itself."""
    stream = io.StringIO()
    report().show(Console(file=stream, width=60))
    assert "\ndiffers O2, cpu: out_0 against" in stream.getvalue()
    assert stream.getvalue().endswith(
        "; worst at [1,2]: got 7.0, want 6.0, error 1, allowed 5.72e-06 (its own rounding)\n"
    )


@pytest.mark.parametrize(
    ("pipeline", "shown"), [("O2", None), ("dce,cse", "dce,cse"), ("", "none")]
)
def test_passes_are_shown_where_no_row_tells_them(pipeline: str, shown: str | None) -> None:
    """A pipeline written out would not fit into a row's name."""
    made = report()
    made.pipeline = pipeline
    stream = io.StringIO()
    made.show(Console(file=stream, width=200))
    assert (
        stream.getvalue()
        .partition("\n")[0]
        .endswith("strict rounding" if shown is None else f"  passes: {shown}")
    )
    assert made.to_json()["pipeline"] == pipeline


def test_a_buffer_has_the_shape_of_its_place_in_a_tuple() -> None:
    """Not that of the whole tuple; what takes no bytes is no buffer worth listing."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  t = token[] after-all()\n"
        "  i = ((f32[8], s32[2]), token[]) infeed(t)\n"
        "  j = (f32[8], s32[2]) get-tuple-element(i), index=0\n"
        "  ROOT r = f32[8] get-tuple-element(j), index=0\n}\n"
    )
    stats = module_stats(module)
    stream = io.StringIO()
    stats.show(Console(file=stream, width=200))
    assert [(entry.index, entry.shape) for entry in stats.buffers] == [
        ((0, 0), "f32[8]"),
        ((0, 1), "s32[2]"),
    ]
    assert "i{0,1}  s32[2]" in stream.getvalue()


def test_infinities_survive_json() -> None:
    """JSON has no infinity: it is a string."""
    bad = compare(np.ones(2, np.float32), np.ones(3, np.float32))
    made = RunReport("m", "", "", "x", [RunRow("x", against="y", comparisons=(bad,))]).to_json()
    assert made["rows"][0]["comparisons"][0]["absolute"] == "inf"
    assert made["passed"] is False

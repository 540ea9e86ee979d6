"""Tables in a narrow terminal: no name is broken; columns go by importance, sentences go below."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hloopt.report.console import table
from hloopt.report.fit import FittedTable

NAME = "input_reduce_fusion.with_a_long_name"
SENTENCE = "both hold a reduce that reads 16 elements or more for each result"


def shown(made: FittedTable, width: int, *, terminal: bool = True) -> list[str]:
    """The lines of a table as a terminal of ``width`` columns, or a pipe, gets them."""
    stream = io.StringIO()
    Console(
        file=stream, width=width, force_terminal=terminal, color_system=None, _environ={}
    ).print(made, crop=False)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def kernels() -> FittedTable:
    made = table(
        *("kernel", "computes", "from", "bytes", "time"), left=3, optional=("computes", "bytes")
    )
    made.add_row(NAME, "add, divide, 4 others", "/home/me/deep/model.py:12", "8 KiB", "1 us")
    made.add_row("copy", "copy", "model.py:7", "16 KiB", "10.5 us")
    return made


def test_columns_go_by_importance() -> None:
    """First the directories of a source, then one optional column after the other."""
    wide, folders, one, both = (shown(kernels(), width) for width in (120, 90, 70, 56))
    assert "/home/me/deep/model.py:12" in wide[1]
    assert " model.py:12 " in folders[1]
    assert "computes" in folders[0]
    assert one[0].split() == ["kernel", "from", "bytes", "time"]
    assert both[0].split() == ["kernel", "from", "time"]


@pytest.mark.parametrize("width", range(20, 121, 4))
def test_no_name_is_broken(width: int) -> None:
    """However narrow the terminal is; as long as that is possible, no line is longer than it."""
    lines = shown(kernels(), width)
    assert any(line.startswith(f"{NAME}  ") for line in lines)
    least = len(f"{NAME}  model.py:12  10.5 us")
    assert max(map(len, lines)) <= max(width, least)


def test_a_pipe_gets_every_column() -> None:
    assert shown(kernels(), 56, terminal=False)[0].split() == [
        *("kernel", "computes", "from", "bytes", "time")
    ]


def test_a_sentence_goes_below_its_row() -> None:
    """Where the columns beside it leave no room; the other cells stay in line over all rows."""

    def made() -> FittedTable:
        found = table("not fused", "why", "lost", left=2, below="why")
        found.add_row(NAME, SENTENCE, "0.66 us")
        found.add_row("copy", "a copy", "12.5 us")
        return found

    assert shown(made(), 120)[1] == f"{NAME}  {SENTENCE}  0.66 us"
    assert shown(made(), 60) == [
        "not fused                                lost",
        f"{NAME}  0.66 us",
        "    both hold a reduce that reads 16 elements or more for",
        "    each result",
        "copy                                  12.5 us",
        "    a copy",
    ]


def test_words_of_the_module_are_no_markup() -> None:
    """Brackets in a name are shown as they are."""
    made = table("name", "why", left=2)
    made.add_row("[bold]x[/bold]", "[red]")
    assert shown(made, 80)[1] == "[bold]x[/bold]  [red]"


def test_what_follows_a_sentence_goes_below_with_its_header() -> None:
    """Where moving the sentence is not enough; an empty cell takes no line."""
    made = table("not fused", "why", "from", "lost", left=3, below=("why", "from"))
    made.add_row(NAME, SENTENCE, "/home/me/deep/model_of_a_long_name.py:12", "1 us")
    made.add_row("copy", SENTENCE, "", "1 us")
    lines = shown(made, 60)
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["not", "fused", "lost"]
    assert lines[4] == "    from model_of_a_long_name.py:12"
    assert [line for line in lines if "from" in line] == [lines[4]]
    assert "from" in shown(made, 120)[0]

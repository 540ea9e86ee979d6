"""Sorts that are read as a whole are named with their price; where a few elements are read, it is a finding."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

import hloopt
from hloopt.findings import Findings, kind_examples
from hloopt.report.findings import show_findings

NUCLEUS = """HloModule nucleus
order {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GT
}}
ENTRY main {{
  x = {kind}[64,{row}] parameter(0)
  s = {kind}[64,{row}] sort(x), dimensions={{1}}, to_apply=order
  f = {kind}[64,1] slice(s), slice={{[0:64], [0:1]}}
  first = {kind}[64] reshape(f)
  spread = {kind}[64,{row}] broadcast(first), dimensions={{0}}
  ROOT d = {kind}[64,{row}] subtract(s, spread)
}}
"""


def found(row: int = 32000, kind: str = "f32", target: str = "h200") -> Findings:
    """Of rows that are sorted and all read."""
    return hloopt.why(hloopt.parse(NUCLEUS.format(row=row, kind=kind)), target, kinds=["full-sort"])


def text(row: Findings) -> str:
    """As it is printed, on one line."""
    console = Console(file=StringIO(), width=80)
    show_findings(row, console)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_its_kernels_and_what_the_largest_would_take() -> None:
    """That the largest alone are another result is said, and that XLA may have a faster sort."""
    answer = found()
    (sort,) = answer.sorts
    assert (sort.name, sort.row, sort.passes) == ("s", 32000, 10)
    assert sort.share > 0.8
    assert sort.top is not None
    assert sort.top < sort.seconds / 10
    assert answer.to_json()["sorts"][0]["row"] == 32000
    said = text(answer)
    assert "puts rows of 32,000 elements in order by 10 kernels" in said
    assert "where 16 of each row are enough, which is another result" in said
    assert "CUB's radix sort" in said


@pytest.mark.parametrize(
    ("row", "kind", "target"),
    [(512, "f32", "h200"), (32000, "s32", "h200"), (32000, "f32", "host")],
)
def test_xla_has_no_kernel_for_the_largest_of_others(row: int, kind: str, target: str) -> None:
    """Short rows, whole numbers, and processors."""
    answer = found(row, kind, target)
    assert [sort.top for sort in answer.sorts] == [None]
    assert "top_k" not in text(answer)


def test_where_a_few_are_read_there_is_a_finding_instead() -> None:
    """And no note beside it."""
    answer = hloopt.why(hloopt.parse(kind_examples()["full-sort"].example), kinds=["full-sort"])
    assert answer.rows
    assert not answer.sorts

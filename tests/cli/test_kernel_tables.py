"""The tables of ``hloopt kernels``: a row a line in a pipe, breaks between options where columns are few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.loop_programs import SAMPLES
from tests.helpers.support import invoke

NAME = "a_name_of_many_words_that_a_narrow_table_would_break_somewhere_in_between_and_nobody_could_grep"

LONG = f"""HloModule m

ENTRY e {{
  x = f32[64,64] parameter(0)
  ROOT {NAME} = f32[64,64] negate(x), metadata={{source_file="{"d/" * 40}f.py" source_line=3}}
}}
"""


@pytest.fixture
def long(tmp_path: Path) -> str:
    path = tmp_path / "long.hlo"
    path.write_text(LONG)
    return str(path)


@pytest.mark.parametrize("more", [[], ["--plan"]])
def test_a_row_is_one_line_in_a_pipe(long: str, more: list[str]) -> None:
    """However long names and lines are: the header, the row, what it comes to."""
    lines = invoke("kernels", long, *more).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(NAME)] == [NAME]
    assert len(lines) == (3 if more else 4)


def test_a_narrow_table_breaks_tiles_between_their_options(long: str) -> None:
    """Each option of a tile stays whole, and so does a name, however long its line becomes."""
    wide = invoke("kernels", long).stdout
    assert "loop{threads=128,unroll=1,vector=1}" in wide
    narrow = invoke("kernels", long, columns=80).stdout
    assert {NAME, "{threads=128,", "unroll=1,", "vector=1}"} <= set(narrow.split())


ROW = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

shares {
  x = f32[8,64] parameter(0)
  zero = f32[] constant(0)
  sum = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
  all = f32[8,64] broadcast(sum), dimensions={0}
  ROOT share = f32[8,64] divide(x, all)
}

ENTRY e {
  x = f32[8,64] parameter(0)
  ROOT f = f32[8,64] fusion(x), kind=kLoop, calls=shares
}
"""


def test_one_reduction_is_not_several() -> None:
    """The reason of a kernel for whole rows counts them."""
    told = invoke("explain", "-O0", "-", "f", "--json", stdin=ROW).stdout
    assert "1 reduction of rows of 64 elements, and what follows, in one go" in told


def test_kernels_for_other_opcodes_are_hidden_unless_asked_for() -> None:
    """One line names them; a kernel that a figure ruled out is a row of its own."""
    words = ("explain", str(SAMPLES / "attention.hlo"), "exp.1")
    assert (
        "for other instructions (--all says why): copy, while-per-thread" in invoke(*words).stdout
    )
    assert "cholesky  " in invoke(*words, "--all").stdout
    assert "--all says why" not in invoke(*words, "--all").stdout

"""Scatters into few places: what copies of them gain, and what is said where indices are not known."""

from __future__ import annotations

import pytest

import hloopt

TEXT = """HloModule m
combine {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT r = {kind}[] {opcode}(a, b) }}
ENTRY main {{
  t = {kind}[{rows},16] parameter(0)
  i = s32[{dims}] {indices}
  u = {kind}[65536,16] parameter(1)
  ROOT r = {kind}[{rows},16] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
      scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=combine
}}
"""


def why(
    kind: str, opcode: str, rows: int, dims: str = "65536,1", indices: str = ""
) -> hloopt.Findings:
    given = indices or "parameter(2)"
    text = TEXT.format(kind=kind, opcode=opcode, rows=rows, dims=dims, indices=given)
    return hloopt.why(hloopt.parse(text), kinds=["contention"])


@pytest.mark.parametrize(
    ("kind", "opcode", "dims", "method"),
    [
        ("f32", "add", "65536,1", ".add(u).sum(0)"),
        ("s32", "maximum", "65536", ".max(u).max(0)"),
        ("bf16", "minimum", "65536,1", ".min(u).min(0)"),
        ("u32", "or", "65536", ".apply(u).reduce(0)"),
    ],
)
def test_copies_of_the_places_gain(kind: str, opcode: str, dims: str, method: str) -> None:
    """With the same results, whatever combines them; indices outside of the places stay outside."""
    (row,) = why(kind, opcode, 8, dims).rows
    assert row.cost.bound == "contention"
    assert row.gain.verdict in ("equal", "within tolerance")
    assert "8,192 meet at least" in row.why
    assert method in row.remedies[0].text


def test_unknown_indices_have_a_worst_case() -> None:
    """Few meet where they are spread evenly, and all may."""
    found = why("f32", "add", 30_000)
    assert not found.rows
    (note,) = found.scatters
    assert (note.windows, note.places, note.least) == (65_536, 30_000, 3)
    assert note.worst > 10 * note.seconds
    assert note.native == "add of f32"
    assert found.to_json()["scatters"][0]["most_collisions"] == 65_536


def test_indices_that_count_up_have_none() -> None:
    """They are all different."""
    assert not why("f32", "add", 65_536, indices="iota(), iota_dimension=0").scatters

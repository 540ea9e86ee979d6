"""What a place of a text stands for, where a name is used, and what is wrong."""

from __future__ import annotations

import pytest

from hloopt.editor.document import Document
from hloopt.ir import Computation

TEXT = """HloModule m

add (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT add = f32[] add(a, b), metadata={op_name="add a"}
}

ENTRY %main (x: f32[8]) -> f32[] {
  %x = f32[8] parameter(0)
  %zero = f32[] constant(0), control-predecessors={%x} // x and zero
  ROOT %sum = f32[] reduce(%x, %zero), dimensions={0}, to_apply=add
}
"""


def document(text: str = TEXT) -> Document:
    return Document(text, "m.hlo")


def nth(part: str, number: int) -> int:
    """The offset of an occurrence of a text, from 0."""
    at = -1
    for _ in range(number + 1):
        at = TEXT.index(part, at + 1)
    return at


@pytest.mark.parametrize(
    ("part", "number", "into", "name"),
    [
        ("add (", 0, 0, "computation add"),
        ("(a:", 0, 1, "add/a"),
        ("a = ", 0, 0, "add/a"),
        ("ROOT add", 0, 6, "add/add"),
        ("add(a, b)", 0, 4, "add/a"),
        ("add(a, b)", 0, 5, "add/a"),  # right behind it, where a cursor stands after typing
        ("add(a, b)", 0, 0, None),  # the opcode, though an instruction has this name
        ('"add a"', 0, 1, None),
        ("metadata", 0, 2, None),
        ("%main", 0, 0, "computation main"),
        ("%main", 0, 3, "computation main"),
        ("(x:", 0, 1, "main/x"),
        ("{%x}", 0, 1, "main/x"),
        ("// x and", 0, 3, None),
        ("%x, %zero", 0, 5, "main/zero"),
        ("to_apply=add", 0, 9, "computation add"),
        ("to_apply=add", 0, 2, None),
        ("HloModule", 0, 0, None),
        ("f32[8] parameter", 0, 1, None),
    ],
)
def test_what_a_place_stands_for(part: str, number: int, into: int, name: str | None) -> None:
    found = document().at(nth(part, number) + into)
    if found is None:
        assert name is None
    elif isinstance(found, Computation):
        assert f"computation {found.name}" == name
    else:
        assert found.computation is not None
        assert f"{found.computation.name}/{found.name}" == name


def test_uses_are_neither_opcodes_nor_words_of_a_string() -> None:
    """All places of the name but its definition."""
    text = document()
    assert text.module is not None
    add, main = text.module.computations["add"], text.module.entry
    assert text.uses(add) == [nth("to_apply=add", 0) + 9]
    assert text.uses(add["a"]) == [nth("add(a, b)", 0) + 4]
    assert text.uses(add["add"]) == []
    assert text.uses(main["x"]) == [nth("{%x}", 0) + 2, nth("(%x, %zero)", 0) + 2]


def test_an_outline_has_computations_with_their_ends() -> None:
    found = [
        (home.name, TEXT[end - 2 : end], len(rows)) for home, end, rows in document().symbols()
    ]
    assert found == [("add", "\n}", 3), ("main", "\n}", 3)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("reduce(%x", "reduce(%y", [("%y", "there is no instruction 'y'", "", False)]),
        ("dimensions={0}", "dimensions={1}", [("sum", "", "shape", False)]),
        ("parameter(1)", "parameter(1), hue=3", [("hue", "hue", "", True)]),
        ("parameter(1)", "parmeter(1", None),
    ],
)
def test_mistakes(
    before: str, after: str, expected: list[tuple[str, str, str, bool]] | None
) -> None:
    """Each at its place, warnings among them; a text that cannot be read has no module."""
    found = document(TEXT.replace(before, after))
    assert (found.valid is None) is (expected is None or not expected[0][3])
    if expected is None:
        assert found.module is None
        assert found.mistakes
        assert found.at(40) is None
        return
    for one, (place, message, rule, warning) in zip(found.mistakes, expected, strict=True):
        text = found.source.text
        assert text[one.offset : one.offset + len(place)].lstrip("%") == place.lstrip("%")
        assert message in one.message
        assert (bool(one.rule), one.warning) == (bool(rule), warning)

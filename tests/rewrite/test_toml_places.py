"""Where keys and values of a TOML text stand."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.errors import FileError
from hloopt.rewrite.toml_places import KeyPath, read_table
from hloopt.source import Source

TEXT = '''# a comment = "not a key"
title = "a # no comment" # one
"quoted.key".inner = 1
plain = ["one", # first
  'two', [3, 4], { deep = """
five"""},
]

[[row]]
name = "first"
at = 1979-05-27 07:32:00

[row.table]
key = true

[[row]]
name = \'\'\'second\'\'\'
'''


def shown(path: KeyPath) -> tuple[str, str]:
    """The texts at the places of key and value."""
    _, places = read_table(Source(TEXT, "t.toml"))
    place = places.found[path]
    return tuple(TEXT[start : start + width] for start, width in (place.key, place.value))


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("title",), "title", '"a # no comment"'),
        (("quoted.key", "inner"), '"quoted.key".inner', "1"),
        (("plain", 0), '"one"', '"one"'),
        (("plain", 1), "'two'", "'two'"),
        (("plain", 2, 1), "4", "4"),
        (("plain", 3, "deep"), "deep", '"""\nfive"""'),
        (("row", 0), "row", "row"),
        (("row", 0, "at"), "at", "1979-05-27 07:32:00"),
        (("row", 0, "table"), "row.table", "row.table"),
        (("row", 0, "table", "key"), "key", "true"),
        (("row", 1, "name"), "name", "'''second'''"),
    ],
)
def test_place_of(path: KeyPath, key: str, value: str) -> None:
    """Comments, quotes, lists of lists, inline tables and arrays of tables do not confuse it."""
    assert shown(path) == (key, value)


def test_what_stands_nowhere_is_told_at_the_nearest_thing() -> None:
    """A key that is missing is told at the table it is missing from."""
    _, places = read_table(Source(TEXT, "t.toml"))
    error = places.key_error(("row", 1, "passes"), "there is none")
    assert (error.line, error.column) == (16, 3)
    assert (places.value_error(("nothing",), "no").line) == 1


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a = 1\nb = = 2\n", 2, 5), ('a = "x', 1, 7), ("a = 1\na = 2", 2, 6), ("é = 1", 1, 1)],
)
def test_what_is_no_toml_has_its_place(text: str, line: int, column: int) -> None:
    """The reader's own messages come with line, column and excerpt."""
    with pytest.raises(FileError) as caught:
        read_table(Source(text, "t.toml"))
    assert (caught.value.line, caught.value.column) == (line, column)


def test_brackets_without_end_are_an_error() -> None:
    """No depth of brackets ends in a traceback."""
    with pytest.raises(FileError, match="nested too deep"):
        read_table(Source(f"a = {'[' * 5000}{']' * 5000}", "t.toml"))
    with pytest.raises(FileError, match="nested too deep"):
        read_table(Source(f"a = {'[' * 120}{']' * 120}", "t.toml"))


_KEYS = st.text(st.sampled_from("abz_-.\"'# é"), min_size=1, max_size=5)
_SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.text(st.sampled_from("a\"'#\\[]{}=,\n é"), max_size=6)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


def written(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[ {', '.join(map(written, value))} ]"
    assert isinstance(value, dict)
    pairs = (f"{written(key)} = {written(inner)}" for key, inner in value.items())
    return f"{{ {', '.join(pairs)} }}"


def check(value: object, path: KeyPath, text: str, found: dict) -> None:
    """Every value is found where its text is."""
    place = found[path]
    start, width = place.value
    if isinstance(value, list):
        assert text[start] == "["
        for number, inner in enumerate(value):
            check(inner, (*path, number), text, found)
    elif isinstance(value, dict):
        assert text[start] == "{"
        for key, inner in value.items():
            check(inner, (*path, key), text, found)
    else:
        assert tomllib.loads(f"v = {text[start : start + width]}")["v"] == value


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_every_value_is_found_at_its_own_text(table: dict[str, object]) -> None:
    """What stands at the place of a value reads as that value."""
    text = "".join(f"{written(key)} = {written(value)}\n" for key, value in table.items())
    read, places = read_table(Source(text, "t.toml"))
    assert read == table
    for key, value in table.items():
        check(value, (key,), text, places.found)

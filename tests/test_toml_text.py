"""Every file of data in TOML: what cannot be read is told with its place, whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.backend_config import known_trip_count
from hloopt.errors import FileError
from hloopt.source import Source
from hloopt.toml_text import parse_toml
from tests.helpers.support import invoke

MODULE = "HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }\n"
BIG = "9" * 5000
READERS = {
    "pipeline": ("optimize", "--passes"),
    "lock": ("optimize", "--lock"),
    "kernel lock": ("kernels", "--lock"),
    "target": ("stats", "--target"),
    "study": ("study", "--strategies"),
}


@pytest.mark.parametrize(
    ("text", "line", "column", "told"),
    [
        (f"a = 1\nb = [0, {BIG}]", 2, 9, "an integer over 64 bits"),
        ("a = 18446744073709551616", 1, 5, "an integer over 64 bits"),
        (f"a = 0x{'f' * 5000}", 1, 5, "an integer over 64 bits"),
        ("a = -9223372036854775809", 1, 5, "an integer over 64 bits"),
        (f'a = "{BIG} [[[["\nb = 99_999_999_999_999_999_999', 2, 5, "an integer over 64 bits"),
        ("a = " + "[" * 5000 + "]" * 5000, 1, 105, "brackets are nested too deep"),
        ("a = " + "[" * 150 + "]" * 150, 1, 105, "brackets are nested too deep"),
        ("a = " + "{b = " * 150 + "1" + "}" * 150, 1, 505, "brackets are nested too deep"),
        (".".join("a" * 150) + " = 1", 1, 1, "keys are nested too deep"),
        ("a = 1\nb =", 2, 4, "Invalid value at the end"),
        ("a = 1\n  b = }", 2, 7, "Invalid value"),
    ],
)
def test_places(text: str, line: int, column: int, told: str) -> None:
    """Of numbers, brackets, and what is no TOML."""
    with pytest.raises(FileError) as found:
        parse_toml(Source(text, "x.toml"))
    assert (found.value.line, found.value.column) == (line, column)
    assert found.value.message == told


def test_what_is_within_bounds_is_read() -> None:
    """Of 64 bits with or without a sign; 50 brackets; digits in texts, comments and keys."""
    text = f"""a = 18446744073709551615 # {BIG}
b = -9223372036854775808
c = "{BIG}"
{BIG} = 1
d = {"[" * 50}{"]" * 50}
"""
    found = parse_toml(Source(text, "x.toml"))
    assert found["a"] == 2**64 - 1
    assert found["b"] == -(2**63)


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", [f"version = {BIG}", f"version = {'[' * 5000}", "version = }", "\xff", "name = 3", f"version = 0x{'f' * 5000}"],
                         ids=["digits", "brackets", "no TOML", "no UTF-8", "no sense", "hexadecimal"])  # fmt: skip
def test_each_reader_tells_the_place(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    """One message, with the file and, where it cannot be read, the line and the column: a mistake of usage."""
    file, module = tmp_path / "x.toml", tmp_path / "m.hlo"
    file.write_bytes(text.encode("latin-1"))
    module.write_text(MODULE)
    result = invoke(words[0], str(module), *words[1:], str(file))
    place = {"\xff": f"{file}: byte 0", "name = 3": f"{file}:"}.get(text, f"{file}:1:")
    assert place in result.stderr, result.output
    assert result.exit_code == 2


def test_json_in_a_module_is_no_reason_to_stop() -> None:
    """A backend_config that is nested deep, or has a number of thousands of digits."""
    for value in ("[" * 20_000 + "]" * 20_000, BIG):
        config = '"{\\"known_trip_count\\":' + value + '}"'
        text = (
            "HloModule m\nc { p = (f32[]) parameter(0)\n ROOT t = pred[] constant(false) }\n"
            "b { ROOT p = (f32[]) parameter(0) }\n"
            "ENTRY e { x = f32[] parameter(0)\n t = (f32[]) tuple(x)\n"
            f" ROOT w = (f32[]) while(t), condition=c, body=b, backend_config={config} }}\n"
        )
        module = hloopt.parse(text)
        assert known_trip_count(module.entry.root) is None
        hloopt.optimize(module, "O3")

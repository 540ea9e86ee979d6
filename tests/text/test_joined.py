"""Texts with several modules: what ``optimize`` prints of a directory, and what logs hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hloopt.text.logs import split_modules
from tests.helpers.support import invoke

MODULE = "HloModule {0}\n\nENTRY e {{\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] {1}(x)\n}}\n"
TWO = (
    f"// a/one.txt\n{MODULE.format('one', 'negate')}\n// two.hlo.pb\n{MODULE.format('two', 'tanh')}"
)


def test_each_part_has_its_name_and_line() -> None:
    first, second = split_modules(TWO)
    assert (first.module, first.heading, first.line) == ("one", "a/one.txt", 2)
    assert (second.module, second.heading, second.line) == ("two", "two.hlo.pb", 10)
    assert first.text == MODULE.format("one", "negate")
    assert second.placed() == "\n" * 9 + MODULE.format("two", "tanh")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HloModule a",
        MODULE.format("one", "negate"),
        "// HloModule b\nHloModule a\n",
        "HloModule\n" * 3,
    ],
)
def test_one_module_is_no_part(text: str) -> None:
    assert split_modules(text) == []


def test_without_a_comment_a_part_has_no_heading() -> None:
    """Nor where the comment belongs to the module before."""
    parts = split_modules("HloModule a\n}\n\nHloModule b, x={}\n} // not b\n\nHloModule %c\n}\n")
    assert [(part.module, part.heading) for part in parts] == [("a", ""), ("b", ""), ("c", "")]


def test_what_optimize_prints_of_several_modules_every_command_reads(tmp_path: Path) -> None:
    """Under the names that the modules had, errors at their lines of the whole text."""
    for name, opcode in (("one", "negate"), ("two", "tanh")):
        (tmp_path / f"{name}.hlo").write_text(MODULE.format(name, opcode))
    files = [str(tmp_path / "one.hlo"), str(tmp_path / "two.hlo")]
    text = invoke("optimize", *files, "-O1").stdout
    for words in (
        ["stats"],
        ["hash"],
        ["optimize"],
        ["run", "--repeat", "1"],
        ["kernels"],
        ["explain"],
    ):
        result = invoke(*words, "--json", stdin=text)
        assert result.exit_code == 0, result.stderr
        assert [row["file"] for row in json.loads(result.stdout)["modules"]] == files
    assert invoke("optimize", stdin=text).stdout == invoke("optimize", *files).stdout
    broken = invoke("stats", stdin=text.replace("tanh(", "tanhh("))
    assert "<stdin>:15:20: warning: unknown opcode 'tanhh'" in broken.stderr


def test_a_module_of_several_is_picked_by_its_name() -> None:
    picked = invoke("stats", "--json", "--module", "tw", stdin=TWO)
    assert [row["module"] for row in json.loads(picked.stdout)["modules"]] == ["two"]
    none = invoke("stats", "--module", "three", stdin=TWO)
    assert (none.exit_code, none.stderr) == (
        2,
        "hloopt: error: no module matches --module 'three'; there are: one, two\n",
    )
    assert "picks from a dump directory" in invoke("stats", "--stage", "after", stdin=TWO).stderr


def test_strictly_a_text_is_one_module() -> None:
    """As XLA's parser reads it."""
    result = invoke("check", stdin=TWO)
    assert result.exit_code == 3
    assert (
        "<stdin>:10:1: error: a second module begins here: one of 2 in this text" in result.stderr
    )
    assert invoke("check", "--no-strict", stdin=TWO).stdout == "a/one.txt: ok\ntwo.hlo.pb: ok\n"


def test_a_log_with_several_modules_is_read() -> None:
    """With what it puts before each line, and lines of its own."""
    log = "\n".join(
        f"I0000 00:00:01.000000 1 x.cc:7] {line}" for line in ("start", *TWO.splitlines())
    )
    found = invoke("stats", "--json", stdin=f"{log}\n")
    assert [row["module"] for row in json.loads(found.stdout)["modules"]] == ["one", "two"]

"""Pipelines in TOML files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hloopt.errors import FileError, UsageError
from hloopt.pipelines import parse_pipeline, read_pipeline


def read(folder: Path, text: str | bytes) -> str:
    path = folder / "p.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(read_pipeline(path))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('pipeline = "simplify,fix(cse,dce)"', "simplify,fix(cse,dce)"),
        ('pipeline = ["O1", "cse"]', "O1,cse"),
        ("pipeline = []", ""),
        (
            'pipeline = ["cse", {pass="simplify", fast_math=true, disable=["A + 0 => A"]}]',
            'cse,simplify{fast_math=true,disable=["A + 0 => A"]}',
        ),
        ('[[pipeline]]\npass="constant-folding"\nlimit=7\n', "constant-folding{limit=7}"),
        (
            '[[pipeline]]\nfix=["cse", {fix="dce,cse", limit=2}]\nlimit=3\n[[pipeline]]\npass="dce"',
            "fix{limit=3}(cse,fix{limit=2}(dce,cse)),dce",
        ),
    ],
)
def test_a_file_says_what_a_text_says(tmp_path: Path, text: str, same: str) -> None:
    """Texts, lists and tables; options with TOML's own values."""
    assert read(tmp_path, text) == str(parse_pipeline(same))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\npipeline = ]", "p.toml:2:12: error: Invalid value"),
        ("pipeline = [", "p.toml:1:13: error: Invalid value at the end"),
        (b'pipeline = "\xff"', "p.toml: byte 12 is not UTF-8"),
        ("x = 1", "p.toml: 'x' means nothing here"),
        ("", "p.toml: there is no 'pipeline' in it"),
        ("pipeline = 3", "p.toml: pipeline: a text or a list is wanted, not a number"),
        ("pipeline = [3]", "p.toml: pipeline[0]: a text or a table is wanted, not a number"),
        ('pipeline = ["cse", {limit=3}]', "p.toml: pipeline[1]: a table has the key 'pass'"),
        ("pipeline = [{pass=3}]", "p.toml: pipeline[0].pass: the name of a pass, not a number"),
        ("pipeline = [{fix=3}]", "p.toml: pipeline[0].fix: a text or a list is wanted"),
        ('pipeline = [{pass="cse", x=1979-05-27}]', "pipeline[0].x: no option is a date or a time"),
        (
            'pipeline = [{pass="simplfy"}]',
            "p.toml: no pass is called 'simplfy'; did you mean 'simplify'?",
        ),
        (
            'pipeline = "cse,,dce"',
            "p.toml: pipeline: in the pipeline text: expected the name of a pass",
        ),
        ('pipeline = [{pass="simplify", fast_maths=true}]', "did you mean 'fast_math'?"),
        (
            'pipeline = [{pass="simplify", fast_math=1}]',
            "simplify{fast_math=...} is '1'; it is true or false",
        ),
        ("pipeline = " + "[" * 5000, "p.toml"),
        (
            "pipeline = " + "[{fix=" * 60 + '"cse"' + "}]" * 60,
            "p.toml:1:312: error: brackets are nested too deep",
        ),
        ("pipeline = [{fix=[]}]", "fix() is empty"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path: Path, text: str | bytes, message: str) -> None:
    """The file, the entry, and what was expected."""
    with pytest.raises((UsageError, FileError)) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "p.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Named."""
    with pytest.raises(UsageError, match=r"none\.toml: No such file"):
        read_pipeline(tmp_path / "none.toml")


def test_a_pipeline_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data: a module named in it in any way is not looked for."""
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for text in (
        'pipeline = "evil"',
        'pipeline = "evil.py"',
        'pipeline = [{pass="evil:Pass"}]',
        'pass_file = "evil.py"\npipeline = "cse"',
        'pipeline = [{pass="cse", module="evil"}]',
    ):
        with pytest.raises(UsageError):
            read(tmp_path, text)
    assert "evil" not in sys.modules

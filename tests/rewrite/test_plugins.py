"""Passes of others: from a Python file, and from an installed package."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from hloopt.errors import UsageError
from hloopt.pipelines import find_pass, load_passes, parse_pipeline
from hloopt.rewrite import plugins
from tests.helpers.support import invoke

PASS = '''from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog


@dataclass(frozen=True)
class Rename(Pass):
    """Call the module otherwise.

    to   the new name
    """

    name: ClassVar[str] = "rename"

    to: str = "renamed"

    def run(self, module: Module, log: PassLog) -> bool:
        if module.name == self.to or not log.allows():
            return False
        log.hit("rename")
        module.name = self.to
        return True
'''
MODULE = "HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_pass.py"
    path.write_text(PASS)
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with passes of all kinds."""
    (tmp_path / "my_package.py").write_text(PASS + "\nclass Other:\n    pass\n")
    (tmp_path / "my_broken.py").write_text("import not_there_at_all\n")
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[hloopt.passes]\n"
        "rename = my_package:Rename\n"
        "broken = my_broken:Rename\n"
        "other = my_package:Other\n"
        "function = my_package:dataclass\n"
        "misnamed = my_package:Rename\n"
        "cse = my_package:Rename\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.installed.cache_clear()
    yield tmp_path
    plugins.installed.cache_clear()
    for name in ("my_package", "my_broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_entry_points_are_found_by_group() -> None:
    """Those of a group that a folder on the path declares; none of a group that nobody names."""
    assert "rename" in {entry.name for entry in plugins.entry_points_of("hloopt.passes")}
    assert plugins.entry_points_of("hloopt.nothing_of_the_kind") == ()


def test_entry_points_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no folder is asked, too."""
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("packed-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\n")
        packed.writestr("packed-1.dist-info/entry_points.txt", "[hloopt.packed]\na = b:c\n")
    assert plugins.entry_points_of("hloopt.packed") == ()
    monkeypatch.syspath_prepend(str(archive))
    assert [entry.value for entry in plugins.entry_points_of("hloopt.packed")] == ["b:c"]


def test_entry_points_in_an_egg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older form of an installed package: one folder for it and what is said about it."""
    info = tmp_path / "laid-1-py3.egg" / "EGG-INFO"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: laid\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hloopt.laid]\na = b:c\n")
    monkeypatch.syspath_prepend(str(info.parent))
    assert [entry.value for entry in plugins.entry_points_of("hloopt.laid")] == ["b:c"]


def test_a_file_brings_its_passes(file: Path) -> None:
    """By the name of the pass, with options that are read as any other's."""
    passes = load_passes(str(file))
    assert list(passes) == ["rename"]
    assert str(parse_pipeline("cse,rename{to=other}", passes)) == "cse,rename{to=other}"
    with pytest.raises(UsageError, match=r"rename has no option 'too'; did you mean 'to'\?"):
        parse_pipeline("rename{too=x}", passes)


def test_the_flag_runs_the_pass(file: Path) -> None:
    """On optimize, run and passes."""
    flag = ("--pass-file", str(file))
    result = invoke("optimize", *flag, "--passes", "rename{to=n}", "--stats", stdin=MODULE)
    assert result.stdout.startswith("HloModule n")
    assert "rename" in result.stderr
    ran = invoke("run", *flag, "--passes", "rename", "--repeat", "1", stdin=MODULE)
    assert ran.exit_code == 0
    shown = invoke("passes", *flag, "rename")
    assert "Call the module otherwise." in shown.stdout
    assert "the new name" in shown.stdout
    assert "rename" in invoke("passes", *flag).stdout


def test_the_pass_of_the_documentation_works(tmp_path: Path) -> None:
    """As it stands there: copies go, but for large ones, of which it tells."""
    page = (Path(__file__).parents[2] / "docs/how-to/write-a-pass.md").read_text()
    (block,) = (
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "(Pass)" in text
    )
    path = tmp_path / "mine.py"
    path.write_text(block)
    module = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT c = f32[4] copy(x)\n}\n"
    flag = ("optimize", "--pass-file", str(path), "--remarks", "all", "--passes")
    assert "copy" not in invoke(*flag, "remove-copies", stdin=module).stdout
    kept = invoke(*flag, "remove-copies{most=3}", stdin=module)
    assert "copy(" in kept.stdout
    assert "missed: %c in %e: remove a copy: 4 elements, most=3 [remove-copies]" in kept.stderr


def test_without_the_flag_there_is_no_such_pass(file: Path) -> None:
    """A pass of a file is known only to the command that was told of it."""
    assert invoke("optimize", "--pass-file", str(file), "-O0", stdin=MODULE).exit_code == 0
    result = invoke("optimize", "--passes", "rename", stdin=MODULE)
    assert result.exit_code == 2
    assert "no pass is called 'rename'" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@dataclass(frozen=True)\n", "", "Rename is not a frozen dataclass"),
        ("(frozen=True)", "", "Rename is not a frozen dataclass"),
        ('"rename"\n', "3\n", "Rename needs a class attribute 'name'"),
        ('name: ClassVar[str] = "rename"', "pass", "Rename needs a class attribute 'name'"),
        ('"rename"\n', '"cse"\n', "Rename: hloopt has a 'cse' already"),
        ('"rename"\n', '"O2"\n', "Rename: hloopt has a 'O2' already"),
        ('to: str = "renamed"', "to: str", "the option 'to' has no default"),
        ('to: str = "renamed"', "to: dict[str, int] | None = None", "the option 'to' is a dict"),
        ('to: str = "renamed"', "to: Nowhere = 3", "name 'Nowhere' is not defined"),
        ("(Pass)", "(str)", "no class in it is a pass"),
        ("from typing", "from not_there", ":2: ModuleNotFoundError: No module named 'not_there'"),
        ("return True", "return True)", ":23: SyntaxError"),
        ("from dataclasses", "raise SystemExit(3)\nfrom dataclasses", ":1: SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_a_file(file: Path, old: str, new: str, message: str) -> None:
    """The file, the class and what is missing; a usage error."""
    assert old in PASS
    text = PASS.replace(old, new)
    if "Nowhere" not in new:
        text = text.replace("from dataclasses", "from __future__ import annotations\nfrom dataclasses") \
            if ":" not in message[:4] else text  # fmt: skip
    else:
        text = f"from __future__ import annotations\n{text}"
    file.write_text(text)
    result = invoke("optimize", "--pass-file", str(file), "-O0", stdin=MODULE)
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert message in result.stderr


def test_a_pass_that_refuses_an_option_in_its_own_way(file: Path) -> None:
    """Any exception of its constructor is a wrong option."""
    init = "    def __post_init__(self) -> None:\n        if not self.to:\n            raise ValueError('to: no name')\n\n"
    file.write_text(PASS.replace("    def run", f"{init}    def run"))
    result = invoke("optimize", "--pass-file", str(file), "--passes", 'rename{to=""}', stdin=MODULE)
    assert (result.exit_code, result.stderr) == (2, "hloopt: error: rename: to: no name\n")


def test_files_that_are_none(tmp_path: Path) -> None:
    """Not there, or no Python."""
    with pytest.raises(UsageError, match=r"no\.py: no such file"):
        load_passes(str(tmp_path / "no.py"))
    (tmp_path / "x.txt").write_text(PASS)
    with pytest.raises(UsageError, match=r"x\.txt: not a Python file"):
        load_passes(str(tmp_path / "x.txt"))


def test_an_installed_pass_is_found_by_its_name(package: Path) -> None:
    """Imported when a pipeline names it, and not before."""
    assert "my_package" not in sys.modules
    result = invoke("optimize", "--passes", "cse,rename", stdin=MODULE)
    assert result.stdout.startswith("HloModule renamed")
    hinted = invoke("optimize", "--passes", "renam", stdin=MODULE)
    assert "did you mean 'rename'?" in hinted.stderr


def test_hloopts_own_passes_stay_what_they_are(package: Path) -> None:
    """An entry point cannot change what a named pipeline does."""
    found = find_pass("cse")
    assert found is not None
    assert found.__module__.startswith("hloopt.")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "cannot be loaded: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("other", "is not a pass (a subclass of hloopt.Pass), but Other"),
        ("function", "is not a pass (a subclass of hloopt.Pass), but function"),
        ("misnamed", "gives a pass called 'rename'"),
    ],
)
def test_an_entry_point_that_is_no_pass_is_named(package: Path, name: str, message: str) -> None:
    """With its package; all other commands go on."""
    result = invoke("optimize", "--passes", name, stdin=MODULE)
    assert result.exit_code == 2
    assert f"the entry point '{name} = " in result.stderr
    assert "(my-package)" in result.stderr
    assert message in result.stderr
    assert invoke("optimize", stdin=MODULE).exit_code == 0
    listed = invoke("passes")
    assert listed.exit_code == 0
    assert f"'{name} = " in listed.stderr
    assert "rename" in listed.stdout

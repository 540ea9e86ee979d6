"""Every command takes a dump directory, and picks modules and stages of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hloopt.cli.main import cli
from tests.helpers.support import invoke

BEFORE = "HloModule {0}\nENTRY e {{\n  x = f32[4] parameter(0)\n  y = f32[4] negate(x)\n  ROOT r = f32[4] negate(y)\n}}\n"
AFTER = "HloModule {0}\nENTRY e {{\n  ROOT x = f32[4] parameter(0)\n}}\n"
LABELS = {
    "before": "before_optimizations",
    "pass": "0001.simplification.after_dce.before_algsimp",
    "after": "cpu_after_optimizations",
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two modules before, within and after optimisation, and a third that was only read back."""
    for number, name in ((1, "jit_f"), (2, "jit_g")):
        for kind, label in LABELS.items():
            text = AFTER if kind == "after" else BEFORE
            path = tmp_path / f"module_{number:04d}.{name}.{label}.txt"
            path.write_text(text.format(name))
    (tmp_path / "module_0003.jit_h.cpu_after_optimizations.txt").write_text(AFTER.format("jit_h"))
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text("x")
    return tmp_path


def files(command: str, *words: str) -> list[tuple[str, str]]:
    """Module and label of what a command read."""
    result = invoke(command, *words, "--json", *(["--repeat", "1"] if command == "run" else []))
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["files" if command == "check" else "modules"]
    names = [Path(row["file"]).name.removesuffix(".txt").split(".", 2) for row in rows]
    return [(name, label) for _, name, label in names]


@pytest.mark.parametrize("command", ["check", "hash", "optimize", "run", "stats"])
def test_every_command_picks_modules_and_stages(command: str, dump: Path) -> None:
    """Of each module what was before optimisation, unless something else is asked for."""
    folder = str(dump)
    assert files(command, folder) == [
        ("jit_f", LABELS["before"]),
        ("jit_g", LABELS["before"]),
        ("jit_h", LABELS["after"]),
    ]
    assert files(command, folder, "--module", "_[gh]", "--stage", "after") == [
        ("jit_g", LABELS["after"]),
        ("jit_h", LABELS["after"]),
    ]
    assert files(command, folder, "--module", "jit_f", "--stage", "after_dce|before_opt") == [
        ("jit_f", LABELS["before"]),
        ("jit_f", LABELS["pass"]),
    ]


def test_what_is_taken_instead_is_said(dump: Path) -> None:
    """Unless a stage was asked for."""
    note = "note: module_0003.jit_h is not there before optimisation; cpu_after_optimizations is taken\n"
    assert invoke("hash", str(dump)).stderr == note
    assert invoke("hash", str(dump), "--stage", "after").stderr == ""
    assert invoke("optimize", str(dump), "-o", f"{dump}/out/").stderr == note


def test_messages_name_the_file(dump: Path) -> None:
    """As it is called in the directory."""
    path = dump / f"module_0002.jit_g.{LABELS['pass']}.txt"
    path.write_text(BEFORE.format("jit_g").replace("negate(y)", "negate(q)"))
    result = invoke("check", str(dump), "--module", "jit_g", "--stage", "algsimp")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"{path}:5:26: error: there is no instruction 'q'")


@pytest.mark.parametrize("option", ["--inputs", "--expect", "--save"])
def test_what_belongs_to_one_module_needs_one(dump: Path, option: str) -> None:
    """The candidates are listed."""
    result = invoke("run", str(dump), option, str(dump / "x.npz"))
    assert result.exit_code == 2
    assert "--module and --stage pick it); these are 3\n" in result.stderr
    assert f"\n  {dump}/module_0002.jit_g.before_optimizations.txt\n" in result.stderr


def test_one_file_holds_one_module(dump: Path) -> None:
    """A module of a dump is enough; several need a directory."""
    out = dump / "better.hlo"
    several = invoke("optimize", str(dump), "-o", str(out))
    assert (several.exit_code, out.exists()) == (2, False)
    assert "several modules need a directory" in several.stderr
    one = invoke("optimize", str(dump), "--module", "jit_g", "-o", str(out))
    assert one.exit_code == 0, one.stderr
    assert out.read_text().startswith("HloModule jit_g")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--module", "("], "'(' is not a regular expression"),
        (["--stage", "*"], "'*' is not a regular expression"),
        (["--module", "jit_x"], "no module matches 'jit_x'; did you mean 'jit_"),
        (["--module", "jit_h", "--stage", "before"], "no stage of module_0003.jit_h matches"),
    ],
)
@pytest.mark.parametrize("command", ["check", "ls"])
def test_wrong_picks_are_usage_errors(
    dump: Path, command: str, words: list[str], message: str
) -> None:
    """With what is there."""
    result = invoke(command, str(dump), *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_only_a_directory_can_be_picked_from(dump: Path) -> None:
    """A file or standard input is one module, whatever it is called."""
    path = dump / "module_0003.jit_h.cpu_after_optimizations.txt"
    for words in ([str(path), "--module", "jit_h"], ["--stage", "after"]):
        result = invoke("stats", *words, stdin=AFTER)
        assert result.exit_code == 2
        assert "picks from a dump directory, but none is given" in result.stderr


def test_ls_of_several_directories(dump: Path) -> None:
    """Each under its name."""
    (dump / "rank1").mkdir()
    result = invoke("ls", str(dump), str(dump / "rank1"))
    assert result.exit_code == 0
    assert f"{dump}:\n" in result.stdout
    assert "other directories: rank1" in result.stdout
    assert result.stdout.endswith(f"{dump / 'rank1'}:\n0 modules, 0 files, 0 B\n")


@pytest.mark.parametrize(("name", "message"), [("x", "no such"), ("f.txt", "not a")])
def test_ls_lists_directories_only(tmp_path: Path, name: str, message: str) -> None:
    """A file is not one."""
    (tmp_path / "f.txt").write_text("")
    result = invoke("ls", str(tmp_path / name))
    assert result.exit_code == 2
    assert f"{message} directory" in result.stderr


def test_ls_counts_when_asked(dump: Path) -> None:
    """In the table before and after optimisation, in JSON every stage."""
    lines = invoke("ls", str(dump)).stdout.splitlines()
    assert lines[2].split()[0] == "module_0001.jit_f"
    assert lines[2].split()[-4:-2] == ["1", "1"]
    found = json.loads(invoke("ls", str(dump), "--json").stdout)["dumps"][0]
    numbers = [stage["instructions"] for stage in found["modules"][0]["stages"]]
    assert numbers == [3, 3, 1]
    found = json.loads(invoke("ls", str(dump), "--json", "--no-counts").stdout)["dumps"][0]
    assert {stage["instructions"] for row in found["modules"] for stage in row["stages"]} == {None}


@pytest.mark.parametrize(
    ("option", "typed", "words"),
    [
        ("--module", "", ["jit_f", "jit_g", "jit_h"]),
        ("--module", "jit_g", ["jit_g"]),
        ("--stage", "", ["after", "before", "dce"]),
        ("--stage", "d", ["dce"]),
    ],
)
def test_a_shell_completes_modules_and_stages(
    dump: Path, option: str, typed: str, words: list[str]
) -> None:
    """Of the directory that was typed before."""
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    found = complete.get_completions(["stats", str(dump), option], typed)
    assert [item.value for item in found] == words
    assert complete.get_completions(["stats", option], typed) == []


def test_what_the_frontend_wrote_is_listed_and_no_stage_to_bisect(tmp_path: Path) -> None:
    """XLA writes StableHLO beside the stages; of modules whose files are filtered out it is all there is."""
    for name in ("module_0001.jit_f", "module_0002.jit_g"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.mlir").write_text("module @jit_f {\n}\n")
    text = "HloModule jit_f\n\nENTRY main {\n  ROOT x = f32[2] parameter(0)\n}\n"
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text(text)
    (tmp_path / "module_0001.jit_f.0001.simplification.after_algsimp.before_cse.txt").write_text(
        text
    )

    listed = invoke("ls", str(tmp_path), "--stages")
    assert listed.exit_code == 0, listed.output
    assert "mlir" in listed.stdout
    found = invoke("bisect", str(tmp_path))
    assert found.exit_code == 0, found.output
    assert "all 2 stages agree" in found.output

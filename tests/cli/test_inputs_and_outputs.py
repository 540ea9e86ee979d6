"""Where the commands read from and write to, and how they end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.support import invoke

GOOD = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x)\n}\n"
UNREADABLE = "HloModule m\nENTRY e {\n  ROOT r = f32[4] negate(x)\n}\n"
INVALID = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[5] negate(x)\n}\n"
ELIDED = "HloModule m\nENTRY e {\n  ROOT c = f32[100] constant({...})\n}\n"
CODES = {"unreadable": 3, "invalid": 3, "elided": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good module between two bad ones."""
    for name, text in (("a_unreadable", UNREADABLE), ("b_good", GOOD), ("c_invalid", INVALID)):
        (tmp_path / f"{name}.hlo").write_text(text)
    return tmp_path


def process(
    *words: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hloopt", *words],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["check", "optimize", "stats"])
def test_gzipped_text_is_read_from_standard_input(command: str) -> None:
    """As from a file: what it is, not what it is called, decides."""
    result = invoke(command, stdin=gzip.compress(GOOD.encode(), mtime=0))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "command", [["optimize", "-o", "out/"], ["run", "--repeat", "1"], ["stats"], ["check"]]
)
def test_one_bad_module_does_not_stop_the_others(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bad one is a message with its place; the exit code is theirs."""
    monkeypatch.chdir(folder)
    result = invoke(command[0], "a_unreadable.hlo", "b_good.hlo", "c_invalid.hlo", *command[1:])

    assert result.exit_code == 3
    assert "a_unreadable.hlo:3:" in result.stderr
    assert "c_invalid.hlo:4:" in result.stderr
    if command[0] == "optimize":
        assert [path.name for path in Path("out").iterdir()] == ["b_good.hlo"]
    else:
        assert "b_good.hlo" in result.stdout or "negate" in result.stdout


@pytest.mark.parametrize("command", ["optimize", "run", "stats"])
def test_json_has_a_row_for_every_module(command: str, folder: Path) -> None:
    """The row of a bad one holds its error."""
    result = invoke(command, str(folder), "--json")
    rows = json.loads(result.stdout)["modules"]

    assert result.exit_code == 3
    assert [Path(row["file"]).name[:1] for row in rows] == ["a", "b", "c"]
    assert [row.get("error", {}).get("kind") for row in rows] == ["ParseError", None, "VerifyError"]
    assert rows[0]["error"]["line"] == 3
    assert rows[2]["error"]["line"] == 4


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["check", "nowhere.hlo"], 2, "UsageError"),
        (["optimize", "--passes", "nothing"], 2, "UsageError"),
        (["run", "--device", "gpu"], 5, "DeviceError"),
        (["passes", "nothing"], 2, "UsageError"),
    ],
)
def test_json_is_written_for_what_ends_a_command(words: list[str], code: int, kind: str) -> None:
    """A script that reads stdout finds an object there, and the message is on stderr as ever."""
    result = invoke(*words, "--json", stdin=GOOD)
    found = json.loads(result.stdout)
    assert result.exit_code == code
    assert (found["schema"], found["command"], found["error"]["kind"]) == (1, words[0], kind)
    assert found["error"]["message"] in result.stderr
    assert invoke(*words, stdin=GOOD).stdout == ""


def test_stats_tell_the_file(folder: Path) -> None:
    """Modules of a dump have all the same names."""
    result = invoke("stats", str(folder / "b_good.hlo"))
    assert result.stdout.startswith(f"{folder / 'b_good.hlo'}  m\n")


def test_the_largest_exit_code_wins(folder: Path) -> None:
    """Something that cannot run is worse than something that cannot be read."""
    (folder / "d_elided.hlo").write_text(ELIDED)
    assert invoke("run", str(folder), "--repeat", "1").exit_code == 4


@pytest.mark.parametrize(("text", "code"), [(UNREADABLE, 3), (INVALID, 3)])
@pytest.mark.parametrize("command", ["check", "optimize", "run", "stats"])
def test_every_command_verifies_what_it_reads(command: str, text: str, code: int) -> None:
    """An invalid module is refused with a place, by whatever command."""
    result = invoke(command, stdin=text)
    assert result.exit_code == code
    assert "<stdin>:" in result.stderr
    assert "^" in result.stderr


def test_an_empty_text_is_called_so() -> None:
    """Not a list of what a grammar expects."""
    result = invoke("check", stdin=" \n")
    assert result.exit_code == 3
    assert result.stderr == "<stdin>: error: there is no module in it: it is empty\n"


def test_standard_input_is_read_once() -> None:
    """A second '-' could only be empty."""
    result = invoke("check", "-", "-", stdin=GOOD)
    assert result.exit_code == 2
    assert "only once" in result.stderr


def test_a_dump_holds_each_module_once(tmp_path: Path) -> None:
    """Of a module's two forms the one before optimisation is taken; one that has no such form stays."""
    for name in (
        "module_0001.jit_f.before_optimizations.txt",
        "module_0001.jit_f.cpu_after_optimizations.txt",
        "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt",
        "module_0002.jit_g.cpu_after_optimizations.txt",
    ):
        (tmp_path / name).write_text(GOOD)
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text("x")
    names = [line.split(":")[0] for line in invoke("check", str(tmp_path)).stdout.splitlines()]

    assert [Path(name).name for name in names] == [
        "module_0001.jit_f.before_optimizations.txt",
        "module_0002.jit_g.cpu_after_optimizations.txt",
    ]


def test_outputs_of_several_modules_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written over another result, nor over an input."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(name).mkdir()
        Path(name, "m.hlo").write_text(GOOD)
    twice = invoke("optimize", "one/m.hlo", "two/m.hlo", "-o", "out/")
    assert (twice.exit_code, Path("out").exists()) == (2, False)
    assert "several of the modules would be written to m.hlo" in twice.stderr
    Path("one/n.hlo").write_text(GOOD)
    onto = invoke("optimize", "one", "-o", "one")
    assert onto.exit_code == 2
    assert "is one of the inputs" in onto.stderr
    assert Path("one/m.hlo").read_text() == GOOD


def test_several_modules_on_stdout_say_which_they_are(tmp_path: Path) -> None:
    """Each begins with an HLO comment, so that any one of them still reads back."""
    paths = [tmp_path / "m.hlo", tmp_path / "n.hlo"]
    for path in paths:
        path.write_text(GOOD)
    result = invoke("optimize", "-O0", *map(str, paths))
    parts = result.stdout.split("// ")[1:]

    assert result.exit_code == 0
    assert [part.splitlines()[0] for part in parts] == list(map(str, paths))
    assert invoke("check", stdin=f"// {parts[1]}").exit_code == 0


def test_one_module_is_not_written_over_itself_by_way_of_its_directory(tmp_path: Path) -> None:
    """Only ``-o`` with the file's own name says so."""
    path = tmp_path / "m.hlo"
    path.write_text(GOOD)
    result = invoke("optimize", str(path), "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "is one of the inputs" in result.stderr
    assert path.read_text() == GOOD


def test_a_file_called_gz_is_compressed(tmp_path: Path) -> None:
    """The same bytes for the same module, whenever it is written."""
    path = tmp_path / "m.hlo.gz"
    assert invoke("optimize", "-o", str(path), stdin=GOOD).exit_code == 0
    content = path.read_bytes()
    assert gzip.decompress(content).decode() == invoke("optimize", stdin=GOOD).stdout
    assert content[4:8] == bytes(4), "no time of writing"
    assert invoke("check", str(path)).exit_code == 0


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """Said as such."""
    (tmp_path / "m.hlo").write_text(GOOD)
    result = invoke("optimize", "-o", str(tmp_path / "m.hlo" / "n.hlo"), stdin=GOOD)
    assert result.exit_code == 2
    assert result.stderr.endswith("m.hlo is not a directory\n")


def test_one_file_may_be_optimised_in_place(tmp_path: Path) -> None:
    """``-o`` with the input's own name is what it says."""
    path = tmp_path / "m.hlo"
    path.write_text(GOOD)
    assert invoke("optimize", str(path), "-o", str(path)).exit_code == 0
    assert "ROOT" in path.read_text()


def test_what_is_not_a_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """A pipe (or a device, such as /dev/null) is no file that could be replaced by one."""
    path = tmp_path / "m.hlo"
    path.write_text(GOOD)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    result = invoke("optimize", str(path), "-o", str(pipe))
    received = os.read(reader, 65536)
    os.close(reader)
    assert result.exit_code == 0, result.stderr
    assert received.startswith(b"HloModule m")
    assert pipe.is_fifo()


def test_a_link_and_the_mode_of_a_file_stay(tmp_path: Path) -> None:
    """What a link points to is written, with the permissions it had."""
    target, link = tmp_path / "target.hlo", tmp_path / "link.hlo"
    target.write_text(GOOD)
    target.chmod(0o640)
    link.symlink_to(target)
    assert invoke("optimize", str(link), "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.read_text() != GOOD
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.hlo", "target.hlo"]


@pytest.mark.parametrize("content", [gzip.compress(GOOD.encode(), mtime=0)[:-12], b"\x1f\x8bno"])
def test_a_damaged_gz_in_a_directory_is_reported(tmp_path: Path, content: bytes) -> None:
    """It neither ends the command nor goes unseen."""
    (tmp_path / "a.txt.gz").write_bytes(content)
    (tmp_path / "b.hlo").write_text(GOOD)
    result = invoke("check", str(tmp_path))
    assert result.exit_code == 3
    assert f"{tmp_path / 'a.txt.gz'}: error: this is not a whole .gz file" in result.stderr
    assert f"{tmp_path / 'b.hlo'}: ok" in result.stdout


def test_a_text_called_hlo_is_not_passed_over(tmp_path: Path) -> None:
    """Whatever it begins with; of the .txt files only modules are taken."""
    (tmp_path / "a.hlo").write_text(GOOD.partition("\n")[2])
    (tmp_path / "b.hlo").write_text("")
    (tmp_path / "c.txt").write_text("a report\n")
    rows = json.loads(invoke("check", str(tmp_path), "--json").stdout)["files"]
    assert [(Path(row["file"]).name, row["ok"]) for row in rows] == [
        ("a.hlo", True),
        ("b.hlo", False),
    ]


@pytest.mark.parametrize("words", [["check", ""], ["optimize", "-", "-o", ""]])
def test_an_empty_name_is_not_the_working_directory(words: list[str]) -> None:
    """As an unset variable of a script makes it."""
    result = invoke(*words, stdin=GOOD)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is empty" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--seed", "-1"],
        ["--tolerance", "rtol=-1"],
        ["--tolerance", "atol=x"],
        ["--tolerance", "rtol=nan"],
        ["--repeat", "0"],
        ["-O", "4"],
    ],
)
def test_options_out_of_range_are_usage_errors(options: list[str]) -> None:
    """Not exceptions of a library further down."""
    result = invoke("run", *options, stdin=GOOD)
    assert result.exit_code == 2
    assert options[0] in result.stderr


LONG_TABLE = """
import sys
from dataclasses import replace
import hloopt.ops
from hloopt.cli.main import main
row = hloopt.ops.OPS["add"]
for number in range(3000):
    hloopt.ops.OPS[f"x{number}"] = replace(row, opcode=f"x{number}")
sys.argv = ["hloopt", "ops", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("option", ["", "--json"])
def test_tables_end_quietly_when_nobody_reads_on(option: str) -> None:
    """A table longer than a pipe holds, read to its first bytes."""
    line = f'{sys.executable} -c "$LONG_TABLE" {option} | head -c 4; code=${{PIPESTATUS[0]}}'
    result = subprocess.run(
        ["bash", "-c", f"{line}; echo; echo $code"],
        capture_output=True,
        text=True,
        env={**os.environ, "LONG_TABLE": LONG_TABLE},
        timeout=60,
        check=False,
    )
    assert result.stderr == ""
    assert result.stdout.endswith("\n0\n")


HUGE = """HloModule m
ENTRY e {
  i = f32[1000000000000000] iota(), iota_dimension=0
  z = f32[] constant(0)
  ROOT r = f32[1000000000000000] negate(i)
}
"""


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (1 << 30, "this needs 7276 TiB of memory at once, 1 GiB can be had"),
        (None, "out of memory"),
    ],
)
def test_an_array_too_large_for_the_machine_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None, message: str
) -> None:
    """Not a defect: what the module asks for is not there; the next module runs."""
    monkeypatch.setattr("hloopt.driver.notes.memory_limit", lambda: memory)
    (tmp_path / "a.hlo").write_text(HUGE)
    (tmp_path / "b.hlo").write_text(GOOD)
    result = invoke("run", str(tmp_path), "--repeat", "1", "--json")
    rows = json.loads(result.stdout)["modules"]
    assert result.exit_code == 4
    assert f"a.hlo: error: {message}" in result.stderr
    assert rows[0]["error"]["message"].startswith(message)
    assert rows[1]["passed"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_a_message(unbuffered: str) -> None:
    """Writing fails with the system's words, at once or when what was kept back is written in the end."""
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m hloopt optimize > /dev/full"],
        input=GOOD,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert result.returncode == 2
    assert "Exception ignored" not in result.stderr
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_full_disk_ends_a_run_over_several_modules(tmp_path: Path) -> None:
    """It is not taken for a defect of the first of them."""
    for name in ("a.hlo", "b.hlo"):
        (tmp_path / name).write_text(GOOD)
    words = f"{sys.executable} -m hloopt optimize {tmp_path}/a.hlo {tmp_path}/b.hlo > /dev/full"
    result = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "hloopt: error: No space left on device\n")


def test_an_interrupt_ends_cleanly() -> None:
    """Ctrl-C while reading: exit 130, one word, no traceback."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hloopt", "check"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"Traceback" not in errors
    assert errors.strip() == b"interrupted"


@pytest.mark.parametrize("way", ["option", "early option", "variable"])
def test_tracebacks_are_shown_when_asked_for(way: str) -> None:
    """--traceback before or after the command, or HLOOPT_TRACEBACK=1."""
    words = {
        "option": ["stats", "--traceback"],
        "early option": ["--traceback", "stats"],
        "variable": ["stats"],
    }[way]
    code = (
        "import hloopt.cli.files as f, hloopt.cli.main as m, sys\n"
        "def broken(text): raise RuntimeError('boom')\n"
        "f.read_input = broken\n"
        f"sys.argv = ['hloopt', *{words!r}]\n"
        "m.main()\n"
    )
    environment = {**os.environ, "HLOOPT_TRACEBACK": "1" if way == "variable" else "0"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=GOOD,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert result.returncode == 70
    assert "Traceback" in result.stderr
    assert "internal error: RuntimeError: boom" in result.stderr


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    """Text and file names beyond ASCII pass through a process whose locale is not UTF-8."""
    text = GOOD.replace("negate(x)", 'negate(x), metadata={op_name="größe"}').encode()
    path = tmp_path / os.fsdecode(b"m\xff.hlo")
    path.write_bytes(text)
    result = process("optimize", "-O0", str(path), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0, result.stderr
    assert "größe".encode() in result.stdout
    said = process("check", str(path), PYTHONIOENCODING="ascii")
    assert said.stdout == os.fsencode(path) + b": ok\n"
    assert process("run", stdin=GOOD.encode(), PYTHONIOENCODING="ascii").returncode == 0


def test_help_does_not_wait_for_numpy() -> None:
    """What only prints help loads neither NumPy nor the tables of rich."""
    code = (
        "import sys\nsys.argv = ['hloopt', '--help']\nfrom hloopt.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'rich', 'lark'} & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "\nLook:\n" in result.stdout
    assert result.stderr == "[]\n"

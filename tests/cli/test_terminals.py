"""Commands as a process of their own: at a terminal, with streams that are closed, with texts that would control it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.helpers.support import invoke

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "samples"
SMALL = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] exponential(x)
  ROOT p = f32[4] add(x, y)
}
"""
# What the status line and rich write by themselves.
OWN = re.compile(r"\r\x1b\[K|\x1b\[[0-9;]*m")


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from hloopt.cli.main import main; main()", *words]


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    return kept | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "_HLOOPT_PATIENCE": "0"}


# Answers what a terminal is sent by commands, each in a process of its own that has loaded everything already.
SERVER = """
import fcntl, json, os, pty, struct, sys, termios
from click.testing import CliRunner
from hloopt.cli import main
from tests.helpers.command_server import end_at_once
for words in (["kernels"], ["run"], ["stats", "--target", "h200"], ["explain"], ["defuse"], ["hash"]):
    CliRunner().invoke(main.cli, [*words, "samples/gather.hlo"])
for line in sys.stdin:
    words = json.loads(line)
    child, terminal = pty.fork()
    if not child:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        sys.argv = ["hloopt", *words]
        end_at_once(main.main)
    sent = b""
    while True:
        try:
            sent += os.read(terminal, 1 << 16)
        except OSError:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    print(json.dumps([code, sent.decode()]), flush=True)
"""

AtATerminal: TypeAlias = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def at_a_terminal() -> Iterator[AtATerminal]:
    """The exit code of a command, and all that a terminal of 80 columns is sent; there is no patience."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(*words: str) -> tuple[int, str]:
            print(json.dumps(words), file=process.stdin, flush=True)
            code, sent = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return code, sent

        yield ask
        process.stdin.close()


def screen(sent: str) -> list[str]:
    """The lines that stay: what is behind the last clearing of each."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", sent).replace("\r\n", "\n")
    return [line.split("\r\x1b[K")[-1] for line in plain.split("\n")]


LONG = "module_0040.jit_a_train_step_with_a_name_as_long_as_those_of_dumps.before_optimizations.txt"
COMMANDS = {
    "check": ("check",),
    "stats": ("stats",),
    "hash": ("hash",),
    "optimize": ("optimize", "-O2", "-o", os.devnull),
    "defuse": ("defuse", "-o", os.devnull),
    "kernels": ("kernels",),
    "explain": ("explain",),
    "run": ("run", "--repeat", "1"),
    "run native": ("run", "--repeat", "1", "--device", "native"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_progress_at_a_terminal(
    at_a_terminal: AtATerminal, words: tuple[str, ...], tmp_path: Path
) -> None:
    """Told from the beginning: each line of it fits, and goes away; what is left is what a pipe gets."""
    path = tmp_path / LONG
    path.write_text(SMALL)
    code, sent = at_a_terminal(*words, str(path))
    assert code == 0, sent
    assert "Traceback" not in sent
    told = re.findall(r"\r\x1b\[K([^\r\n]+)", sent)
    shown = [line for line in told if re.search(r": \d+ s$", line)]
    assert shown, sent
    assert all(len(line) < 80 for line in shown)
    assert any(".txt" in line for line in shown)
    assert not any(re.search(r": \d+ s$", line) for line in screen(sent))
    assert "\x1b[?25l" not in OWN.sub("", sent)


@pytest.mark.parametrize("plain", [(), ("--color", "never")], ids=["auto", "never"])
def test_colours_may_be_turned_off(at_a_terminal: AtATerminal, plain: tuple[str, ...]) -> None:
    """Bold and italic as well: what is copied, or recorded, is text alone."""
    code, sent = at_a_terminal("stats", str(SAMPLES / "gather.hlo"), *plain)
    assert code == 0
    assert bool(re.search(r"\x1b\[[0-9;]*m", sent)) is not bool(plain)


def test_progress_of_several(at_a_terminal: AtATerminal, tmp_path: Path) -> None:
    """With the number of each; tables and errors begin on lines of their own."""
    bad = tmp_path / "bad.hlo"
    bad.write_text("HloModule m\nENTRY e { ROOT p = f32[] frobnicate( }\n")
    files = [str(SAMPLES / f"{name}.hlo") for name in ("gather", "sort")]
    code, sent = at_a_terminal("stats", files[0], str(bad), files[1])
    assert code == 3
    assert "1 of 3: " in sent
    lines = screen(sent)
    assert any(line.startswith(f"{bad}:2:") for line in lines)
    assert sum(line.startswith(tuple(files)) for line in lines) == 2


def test_progress_of_a_study(at_a_terminal: AtATerminal, tmp_path: Path) -> None:
    """Of its cells."""
    path = tmp_path / "m.hlo"
    path.write_text(SMALL)
    code, sent = at_a_terminal(
        "study", str(path), "--strategy", "O0", "--strategy", "O1", "--device", "cpu"
    )
    assert code == 0, sent
    assert "1 of 2: m, O0, cpu: 0 s" in sent
    assert "Traceback" not in sent
    assert not any(re.search(r": \d+ s$", line) for line in screen(sent))


def test_an_error_at_a_terminal_takes_the_progress_away(
    at_a_terminal: AtATerminal, tmp_path: Path
) -> None:
    """Its message begins a line."""
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule m\nENTRY e {\n  ROOT p = f32[] frobnicate(\n}\n")
    code, sent = at_a_terminal("optimize", str(path))
    assert code == 3
    assert f"{path}:" in [line[: len(str(path)) + 1] for line in screen(sent)]


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("optimize samples/gather.hlo", ">&-", 2),
        ("optimize samples/gather.hlo -o /dev/null", ">&-", 0),
        ("optimize samples/gather.hlo --emit proto", ">&-", 2),
        ("stats samples/gather.hlo", "<&- >&- 2>&-", 2),
        ("stats samples/gather.hlo --json", ">&-", 2),
        ("check samples/gather.hlo", "2>&-", 0),
        ("--help", ">&-", 2),
        ("stats -", "<&-", 3),
        ("check /nowhere.hlo", "2>&-", 2),
    ],
)
def test_a_stream_that_is_closed(words: str, closed: str, code: int) -> None:
    """As daemons, cron and some CI systems start commands: to read finds nothing, to print is an error."""
    shell = f'"$0" -c "from hloopt.cli.main import main; main()" {words} {closed}'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "internal error" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if code == 2 and "2>&-" not in closed:
        assert done.stderr == "hloopt: error: standard output is closed\n"
    if code == 3:
        assert done.stderr == "<stdin>: error: there is no module in it: it is empty\n"


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066"
HOSTILE = {
    "an attribute": f"ROOT p = f32[4] negate(x), colour={EVIL}",
    "an opcode": f"ROOT p = f32[4] {EVIL}(x)",
    "a shape": f"ROOT p = f32{EVIL}[4] negate(x)",
    "a call's target": f'ROOT p = f32[4] custom-call(x), custom_call_target="t{EVIL}"',
    "metadata": f'ROOT p = f32[4] negate(x), metadata={{op_name="a{EVIL}" source_file="b{EVIL}.py" source_line=3}}',
    "a name": f"ROOT %p{EVIL} = f32[4] negate(x)",
}


SHOWN = [(words, body) for words in ("check", "kernels", "optimize") for body in HOSTILE]
SHOWN += [("run", "a call's target"), ("stats --target h200 --by source", "metadata")]


@pytest.mark.parametrize(("words", "body"), SHOWN)
def test_no_text_controls_a_terminal(
    at_a_terminal: AtATerminal, words: str, body: str, tmp_path: Path
) -> None:
    """Whatever of a module is shown, in tables, in messages and as HLO; nor does the name of a file."""
    path = tmp_path / f"m{EVIL}.hlo"
    path.write_text(f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n  {HOSTILE[body]}\n}}\n")
    _, sent = at_a_terminal(*words.split(), str(path))
    left = OWN.sub("", sent).replace("\r\n", "\n").replace("\t", " ")
    found = [c for c in left if c != "\n" and not c.isprintable()]
    assert not found, left


def test_a_table_in_a_pipe_has_no_controls_either(tmp_path: Path) -> None:
    """Somebody looks at it sooner or later; HLO stays what it is."""
    path = tmp_path / "m.hlo"
    body = HOSTILE["metadata"]
    path.write_text(f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n  {body}\n}}\n")
    table = invoke("stats", str(path), "--target", "h200", "--by", "source").stdout
    assert "\\x1b]0;owned" in table
    assert "\x1b" not in table
    assert f'op_name="a{EVIL}"' in invoke("optimize", str(path), "-O0").stdout

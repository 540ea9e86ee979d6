"""Forty tasks of a new user, typed as the documentation says, on programs that are not in it.

``python -m tests.newcomer.tasks [WHEEL]`` installs a wheel (without one: this tree's) into a new environment away from
the checkout, runs all of them there, and prints which fail.  ``--python`` names another Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Task:
    """One row of ``tasks.toml``."""

    ask: str
    page: str
    type: str
    shows: tuple[str, ...]
    code: int = 0

    @property
    def text(self) -> str:
        """The page it was found on, as it is in the repository."""
        path = ROOT / self.page
        return (path if path.exists() else ROOT / "docs" / self.page).read_text()

    def words(self) -> set[str]:
        """Commands and options that are typed."""
        commands = {f"hloopt {word}" for word in re.findall(r"\bhloopt ([a-z]+)", self.type)}
        return commands | set(
            re.findall(r"(?<=\s)--[a-z][\w-]*|(?<=\s)-[A-Za-z]\d?\b", self._hloopt())
        )

    def _hloopt(self) -> str:
        parts = re.split(r"\||&&|;", re.sub(r"'[^']*'", "''", self.type))
        return " ".join(part for part in parts if part.strip().startswith("hloopt"))


def tasks() -> list[Task]:
    rows = tomllib.loads((HERE / "tasks.toml").read_text())["task"]
    return [Task(**{**row, "shows": tuple(row["shows"])}) for row in rows]


def problem(task: Task, programs: Path, folder: Path) -> str:
    """What goes wrong when the task is typed in a new ``folder``, or nothing; ``programs`` is first in PATH."""
    shutil.copytree(HERE / "programs", folder)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", task.type],
        cwd=folder,
        env={
            "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "COLUMNS": "80",
            "HOME": os.environ.get("HOME", "/"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    printed = " ".join((done.stdout + done.stderr).split())
    missing = [piece for piece in task.shows if " ".join(piece.split()) not in printed]
    if missing or done.returncode != task.code:
        return f"exit {done.returncode}, without {missing}:\n{done.stdout}{done.stderr}"
    return ""


def install(wheel: Path | None, python: str, folder: Path) -> Path:
    """The folder of programs of a new environment that has the wheel."""
    if wheel is None:
        built = folder / "wheels"
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = built.glob("*.whl")
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *quiet, str(wheel.resolve())], check=True)
    return folder / "venv" / "bin"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        programs = install(given.wheel, given.python, Path(name))
        for number, task in enumerate(tasks()):
            begin = time.perf_counter()
            wrong = problem(task, programs, Path(name) / str(number))
            failed += bool(wrong)
            print(
                f"{'FAILED' if wrong else 'ok':6} {time.perf_counter() - begin:5.1f} s  {task.ask}"
            )
            if wrong:
                print(f"  {task.type}\n{wrong}")
    print(f"{len(tasks()) - failed} of {len(tasks())}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

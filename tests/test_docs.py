"""The README's commands work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def commands(page: str) -> list[str]:
    """Lines that begin with ``$`` in the console blocks of a page; a backslash continues a line."""
    found = []
    for block in _BLOCK.findall((ROOT / page).read_text()):
        joined = block.replace("\\\n", " ")
        found += [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return found


# The two set-up commands are what runs this suite; running them inside it would never end.
ALL = [
    (page, command)
    for page in ("README.md", "samples/README.md", "samples/cartpole/README.md")
    for command in commands(page)
    if not command.startswith("make ")
]


def _codes(command: str) -> tuple[int, ...]:
    """The exit codes of success: ``diff`` tells by its own that modules differ."""
    last = re.split(r"\||&&", command)[-1]
    return (0, 1) if last.strip().startswith("hloopt diff") else (0,)


@pytest.mark.parametrize(("page", "command"), ALL, ids=[command for _, command in ALL])
def test_documented_command(page: str, command: str, tmp_path: Path) -> None:
    """Typed at the top of the repository, the command does what the page says, and leaves nothing outside ``build``."""
    for name in ("samples", "grammar"):
        (tmp_path / name).symlink_to(ROOT / name)
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode in _codes(command), result.stdout + result.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"samples", "grammar", "build"}


def test_readme_leads_with_the_two_commands() -> None:
    """The first two commands of the README set everything up."""
    assert commands("README.md")[:2] == ["make demo", "make test"]

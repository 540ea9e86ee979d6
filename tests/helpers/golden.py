"""Golden cases: input, command and expected output in one readable file.

    -- description
    What the case shows.
    -- command
    hloopt optimize --passes cse
    -- input
    HloModule m ...
    -- output
    HloModule m ...
    -- exit 3

``-- stderr`` holds expected messages; ``-- file NAME`` puts a file beside the command.  A file may hold
several cases: each begins at its ``-- description``.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from hloopt.extras import XLA_PYTHON

_MARK = re.compile(r"^-- (.*?)[ \t]*$", re.MULTILINE)
_SECTION = re.compile(r"(description|command|input|output|stderr|exit \d+|file \S+)")


@dataclass
class Case:
    """One case; ``index`` counts within its file."""

    path: Path
    index: int
    description: str = ""
    command: str = ""
    stdin: str | None = None
    output: str = ""
    stderr: str | None = None
    exit_code: int = 0
    files: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The case as it stands in its file."""
        parts = [f"-- description\n{self.description}", f"-- command\n{self.command}"]
        parts += [f"-- file {name}\n{text}" for name, text in self.files.items()]
        if self.stdin is not None:
            parts.append(f"-- input\n{self.stdin}")
        parts.append(f"-- output\n{self.output}")
        if self.stderr is not None:
            parts.append(f"-- stderr\n{self.stderr}")
        if self.exit_code:
            parts.append(f"-- exit {self.exit_code}")
        return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def read(path: Path) -> list[Case]:
    """The cases of one file, in order.

    Raises ``ValueError`` where a section is unknown, stands twice in a case, or before any case: a section
    that is misspelt must not become part of the one above it.
    """
    text = path.read_text()
    marks = list(_MARK.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise ValueError(f"{path}: text before the first section")
    cases: list[Case] = []
    seen: set[str] = set()
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() + 1 : following.start() if following else len(text)]
        if not _SECTION.fullmatch(mark.group(1)):
            raise ValueError(f"{path}: no section is called -- {mark.group(1)}")
        kind, _, argument = mark.group(1).partition(" ")
        if kind == "description":
            cases.append(Case(path, len(cases), description=body))
            seen = set()
            continue
        if not cases:
            raise ValueError(f"{path}: -- {kind} before -- description")
        section = mark.group(1) if kind == "file" else kind
        if section in seen:
            raise ValueError(f"{path}: -- {section} twice in case {cases[-1].index}")
        seen.add(section)
        case = cases[-1]
        if kind == "command":
            case.command = body.strip()
        elif kind == "input":
            case.stdin = body
        elif kind == "output":
            case.output = body
        elif kind == "stderr":
            case.stderr = body
        elif kind == "exit":
            case.exit_code = int(argument)
        else:
            case.files[argument] = body
    return cases


def run(case: Case) -> Case:
    """The case as the command answers it now, where there is no jaxlib."""
    from tests.helpers.support import invoke

    words = shlex.split(case.command)
    if words[:1] != ["hloopt"]:
        raise ValueError(f"{case.path}: a command starts with hloopt: {case.command}")
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case.files.items():
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        try:
            with patch.dict(os.environ, {XLA_PYTHON: ""}):
                result = invoke(*words[1:], stdin=case.stdin or "")
        finally:
            os.chdir(here)
    return Case(
        case.path,
        case.index,
        case.description,
        case.command,
        case.stdin,
        result.stdout,
        result.stderr if case.stderr is not None or result.exit_code else None,
        result.exit_code,
        case.files,
    )


def write(path: Path, cases: list[Case]) -> None:
    """Replace a file by its cases, at once."""
    text = "".join(case.text() for case in cases)
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)

"""Where modules come from: files, dump directories, ``-`` or nothing for standard input.

The content of a file decides what it is, not its name (``hloopt.reading``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.messages import error_json, show_defect, show_error, show_warnings
from hloopt.cli.options import PICK, SIZES, STRICT
from hloopt.cli.waiting import interrupted, patience, progress
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.reading import (
    ELIDED,
    Input,
    bytes_of,
    decompressed,
    form_of,
    is_model,
    read_content,
    read_model_of,
)
from hloopt.source import STDIN
from hloopt.text.encoding import decode
from hloopt.verifier import verify_module

if TYPE_CHECKING:
    from hloopt.dumps import DumpModule, Stage
    from hloopt.text.logs import JoinedModule

__all__ = [
    "Input",
    "InputText",
    "each_input",
    "each_module",
    "modules_of",
    "one_text",
    "open_each",
    "open_texts",
    "read_input",
]

_MOST_LISTED = 12


@dataclass(frozen=True, slots=True)
class InputText:
    """A source of a module; ``path`` is None for standard input.

    ``twin`` is a protocol buffer of the same module in the same stage.  ``content`` is what was read already,
    because it cannot be read twice.  ``part`` is one module of a text that holds several; ``whole`` is that
    text's name, for its lines, and ``name`` the module's.
    """

    name: str
    path: Path | None
    twin: Path | None = None
    content: bytes | None = None
    part: JoinedModule | None = None
    whole: str = ""

    @property
    def place(self) -> str:
        """The name that belongs to the line numbers."""
        return self.whole or self.name

    def read(self) -> bytes:
        """The content, decompressed.

        Raises ``ParseError`` when it is damaged, ``UsageError`` when it is not there.
        """
        if self.part is not None:
            return self.part.placed().encode()
        if self.content is not None:
            return decompressed(self.content, self.name)
        if self.path is not None:
            return bytes_of(self.path)
        return decompressed(sys.stdin.buffer.read(), self.name)


def open_texts(arguments: Sequence[str]) -> list[InputText]:
    """The texts that arguments name.

    A directory means the modules in it that ``--module`` and ``--stage`` pick.

    Raises ``UsageError`` for a path that does not exist, a directory without such modules, and where
    standard input would be read from a terminal.
    """
    if not arguments and sys.stdin.isatty():
        context = click.get_current_context()
        click.echo(context.get_usage(), err=True)
        raise UsageError("no file given, and standard input is a terminal (try --help)")
    names = arguments or ["-"]
    stages = click.get_current_context().meta.get(PICK, {}).get("stage", ())
    return [text for texts in open_each(names, [stages] * len(names)) for text in texts]


def open_each(arguments: Sequence[str], stages: Sequence[Sequence[str]]) -> list[list[InputText]]:
    """What each argument names, of a directory in the stages that are for it; else as ``open_texts``."""
    wanted = click.get_current_context().meta.get(PICK, {})
    if arguments.count("-") > 1:
        raise UsageError("'-' is given more than once, but standard input can be read only once")
    found = [
        _open(argument, wanted.get("module"), picked)
        for argument, picked in zip(arguments, stages, strict=True)
    ]
    has_folder = any(Path(argument).is_dir() for argument in arguments)
    joined = any(text.part is not None for texts in found for text in texts)
    if wanted and not has_folder and (not joined or "stage" in wanted):
        options = " and ".join(f"--{name}" for name in wanted)
        raise UsageError(f"{options} picks from a dump directory, but none is given")
    return [_picked(texts, wanted.get("module")) for texts in found]


def _open(argument: str, module: str | None, stages: Sequence[str]) -> list[InputText]:
    path = Path(argument)
    if not argument:
        raise UsageError("the name of a file is empty")
    if argument == "-":
        return modules_of(InputText(STDIN, None))
    if is_model(path):
        return [InputText(argument, path)]
    if path.is_dir():
        return _from_dump(path, module, stages)
    if not path.exists():
        raise UsageError(f"{argument}: no such file or directory")
    return modules_of(InputText(argument, path))


def modules_of(text: InputText) -> list[InputText]:
    """The modules of a text that holds several, unless it is to be read as strictly as XLA does."""
    if click.get_current_context().meta.get(STRICT, False):
        return [text]
    if text.path is None or not text.path.is_file():
        with patience(f"reading {text.name}"):
            text = replace(text, content=text.read())
    try:
        content = text.read()
        if content.count(b"HloModule") < 2 or form_of(content, text.name) != "text":
            return [text]
        from hloopt.text.logs import split_modules

        parts = split_modules(decode(text.name, content))
    except HlooptError:
        return [text]  # the command will say what is wrong with it, in its turn
    return [_part(text, part) for part in parts] or [text]


def _part(text: InputText, part: JoinedModule) -> InputText:
    return InputText(part.heading or f"{text.name}:{part.module}", None, part=part, whole=text.name)


def _picked(texts: list[InputText], module: str | None) -> list[InputText]:
    """The texts without the modules of joined texts that ``--module`` does not want."""
    if module is None or all(text.part is None for text in texts):
        return texts
    pattern = re.compile(module)
    found = [text for text in texts if text.part is None or pattern.search(text.part.module)]
    if not found:
        names = ", ".join(text.part.module for text in texts if text.part is not None)
        raise UsageError(f"no module matches --module {module!r}; there are: {names}")
    return found


def _from_dump(folder: Path, module: str | None, stages: Sequence[str]) -> list[InputText]:
    from hloopt.dumps import pick, read_dump

    try:
        found = pick(read_dump(folder), module, stages)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    if not stages:
        _say_which([row for row in found if row[1].kind not in {"before", "given"}])
    return [_stage_text(one) for _, one in found]


def _say_which(found: Sequence[tuple[DumpModule, Stage]]) -> None:
    """Say which modules are not there as they were before optimisation."""
    for module, stage in found[:1]:
        rest = f" (and so for {len(found) - 1} more)" if len(found) > 1 else ""
        click.echo(
            f"note: {module.label} is not there before optimisation; {stage.label} is taken{rest}",
            err=True,
        )


def _stage_text(stage: Stage) -> InputText:
    """The text of a stage, unless it is empty; with what else holds the module."""
    path, twin = stage.paths()
    return InputText(str(path), path, twin)


def one_text(texts: Sequence[InputText], what: str) -> InputText:
    """The only text.  Raises ``UsageError`` with the candidates when there are several; ``what`` needs one."""
    if len(texts) == 1:
        return texts[0]
    lines = [f"  {text.name}" for text in texts[:_MOST_LISTED]]
    rest = len(texts) - len(lines)
    lines += [f"  and {rest} more"] if rest else []
    raise UsageError(
        f"{what} to one module (of a dump, --module and --stage pick it); these are {len(texts)}\n"
        + "\n".join(lines)
    )


def read_input(text: InputText) -> Input:
    """Read a module, as strictly as the command's ``--strict`` wants it.

    Where a text leaves out values that a protocol buffer of the same stage has, that is read instead, and
    stderr says so.
    """
    meta = click.get_current_context().meta
    if text.path is not None and is_model(text.path):
        return read_model_of(text.path, meta.get(SIZES))
    content = text.read()
    if ELIDED in content:
        if text.twin is not None:
            click.echo(
                f"note: {text.name} leaves out values; {text.twin} is read instead", err=True
            )
            text = InputText(str(text.twin), text.twin)
            content = text.read()
        elif text.path is not None:
            _hint_at_twin(text.path)
    return read_content(
        content,
        text.name,
        place=text.place,
        strict=meta.get(STRICT, False),
        sizes=meta.get(SIZES),
    )


def _hint_at_twin(path: Path) -> None:
    stem = path.name.removesuffix(".gz").removesuffix(".txt").removesuffix(".hlo")
    for end in (".hlo.pb", ".hlo.pb.gz"):
        twin = path.with_name(stem + end)
        if twin.is_file():
            click.echo(f"note: {path} leaves out values, {twin.name} beside it has them", err=True)
            return


def each_module(
    arguments: Sequence[str], step: Callable[[InputText, Module], dict[str, Any]], doing: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """What ``step`` makes of each module that arguments name; see ``each_input``."""

    def of_input(found: Input) -> dict[str, Any]:
        return step(InputText(found.name, None), found.module)

    return each_input(open_texts(arguments), of_input, doing)


def each_input(
    texts: Sequence[InputText], step: Callable[[Input], dict[str, Any]], doing: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """What ``step`` makes of each module, in turn; and the exit code so far.

    A module that cannot be read, is not valid or fails in ``step`` is one message, and one row with its
    ``error``; the others are done all the same, whatever the exception where there are others.  The code is the
    largest of the errors', 70 for a defect of hloopt, 0 without any.
    After Ctrl-C it is 130, and the rows are those of the modules that were done; raised on the first of them.
    ``doing`` is what a terminal shows while ``step`` takes long, empty where it shows that by itself.
    """
    rows: list[dict[str, Any]] = []
    code = 0
    alone = len(texts) == 1
    with progress(texts, _called) as each:
        for text in each:
            row: dict[str, Any] = {"file": text.name}
            rows.append(row)
            try:
                found = _verified(text, row, alone=alone)
                with patience(doing, _called(text), alone=alone):
                    row |= step(found)
            except KeyboardInterrupt:
                if len(rows) == 1:
                    raise
                return rows[:-1], interrupted(len(rows) - 1, len(texts))
            except (HlooptError, MemoryError) as caught:
                error = caught if isinstance(caught, HlooptError) else _out_of_memory(text, caught)
                show_error(error)
                row["error"] = error_json(error)
                code = max(code, error.exit_code)
            except (OSError, click.exceptions.Exit, click.ClickException):
                raise  # what reading or writing files raises is among the errors above
            except Exception as defect:
                if alone:
                    raise
                show_defect(defect, text.name)
                row["error"] = {"kind": type(defect).__name__, "message": str(defect)}
                code = 70
    return rows, code


def _verified(text: InputText, row: dict[str, Any], *, alone: bool) -> Input:
    """Read and verify a module; its warnings go to stderr, and the name of its file into ``row``."""
    with patience("reading", _called(text), alone=alone):
        found = read_input(text)
    row["file"] = found.name
    show_warnings(found.module, text.place if text.part else found.name)
    with patience("verifying", _called(text), alone=alone):
        verify_module(found.module)
    return found


def _called(text: InputText) -> str:
    return Path(text.name).name if text.path or text.part else text.name


def _out_of_memory(text: InputText, error: MemoryError) -> HlooptError:
    return UnsupportedError(f"out of memory: {error or 'allocation failed'}", name=text.name)

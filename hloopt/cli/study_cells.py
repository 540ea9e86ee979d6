"""The cells of ``hloopt study`` as they are made, here or by workers; each is kept where a file is named."""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from hloopt import __version__
from hloopt.cli.study_out import Keep
from hloopt.cli.study_runner import Studied, StudyRunner
from hloopt.cli.study_worker import setup_of
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, UnsupportedError
from hloopt.proto import write_snapshot
from hloopt.reading import form_of, is_model
from hloopt.study.cell_rows import cell_of, cell_row
from hloopt.study.cells import Cell
from hloopt.study.devices import machine, way_of
from hloopt.workers.pool import spread
from hloopt.workers.records import (
    NoAnswer,
    TaskAnswer,
    WorkerFunction,
    WorkerLimits,
    WorkerTask,
)
from hloopt.workers.row_file import RowFile

if TYPE_CHECKING:
    from hloopt.cli.study_setup import StudyOptions
    from hloopt.study.plan import Strategy

__all__ = ["CellMaker", "Wanted", "called"]

Wanted: TypeAlias = "tuple[Studied, Strategy, str]"
"""A module, a strategy and the name of a device."""

_CODES: Final = {
    "crash": DeviceError.exit_code,
    "timeout": UnsupportedError.exit_code,
    "memory": UnsupportedError.exit_code,
    "defect": 70,
}
"""Of the exit, by how a worker failed."""


@dataclass(frozen=True)
class _Made:
    """A cell; ``again`` is whether it is to be made anew when a run goes on from the file."""

    wanted: Wanted
    cell: Cell
    kept: Sequence[Any] = ()
    again: bool = False


@dataclass
class CellMaker:
    """Makes cells as the options of a study want it.

    runner  makes the cells in this process, where no workers are asked for
    keep    writes the files of ``--out``
    doing   the cell that is being made; with workers, the last one that was finished
    """

    options: StudyOptions
    runner: StudyRunner
    keep: Keep
    doing: str = ""
    _modules: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def all(self, wanted: Sequence[Wanted]) -> Generator[tuple[Wanted, Cell], None, None]:
        """Each cell once: those in the file of ``--cells``, then the others as they are made.

        Raises ``UsageError`` for a file of other cells, ``DeviceError`` where workers cannot begin.
        """
        with ExitStack() as stack:
            file = self._file(wanted)
            if file is not None:
                stack.enter_context(file)
            left: list[Wanted] = []
            for one in wanted:
                row = None if file is None else file.rows.get(self._key(one))
                if row is None or row["again"] or not self.keep.has(row["kept"]):
                    left.append(one)
                else:
                    yield one, cell_of(row["cell"])
            making = self._here if self.options.workers is None else self._by_workers
            for made in stack.enter_context(closing(making(left))):
                self.keep.write(made.kept)
                if file is not None:
                    names = [entry[:-1] for entry in made.kept]
                    row = {"cell": cell_row(made.cell), "kept": names, "again": made.again}
                    file.add(self._key(made.wanted), row)
                yield made.wanted, made.cell

    def _here(self, left: Sequence[Wanted]) -> Generator[_Made, None, None]:
        for studied, strategy, device in left:
            self.doing = called((studied, strategy, device))
            cell = self.runner.cell(studied, strategy, device)
            kept = self.runner.keep.taken()
            yield _Made((studied, strategy, device), cell, kept, cell.missing)

    def _by_workers(self, left: Sequence[Wanted]) -> Generator[_Made, None, None]:
        options = self.options
        assert options.workers is not None
        memory = None if options.memory is None else int(options.memory * 2**30)
        limits = WorkerLimits(options.timeout, memory)
        by_key = {called(one): one for one in left}
        tasks = [
            WorkerTask(key, self._question(one), one[0].row.name) for key, one in by_key.items()
        ]
        function = WorkerFunction("study", setup_of(options), limits)
        if not tasks:
            return
        self.doing = "workers begin"
        for answer in spread(function, tasks, options.workers, _say):
            self.doing = answer.task.key
            yield _made(answer, by_key[answer.task.key])

    def _question(self, wanted: Wanted) -> dict[str, Any]:
        studied, strategy, device = wanted
        digest, module = self._module(studied)
        return {
            "of": digest,
            "module": module,
            "strategy": strategy.name,
            "digest": strategy.digest(),
            "device": device,
        }

    def _module(self, studied: Studied) -> tuple[str, dict[str, Any]]:
        """A module and its inputs as JSON values, and their digest."""
        name = studied.row.name
        if name not in self._modules:
            module = _as_json(studied)
            digest = blake2b(repr(sorted(module.items())).encode(), digest_size=12)
            inputs = module["row"]["inputs"]
            if inputs is not None and self.options.seed is None:
                digest.update(_content(Path(inputs)))
            self._modules[name] = digest.hexdigest(), module
        return self._modules[name]

    def _key(self, wanted: Wanted) -> str:
        """The key of a cell in the file: of another text, or another strategy of this name, it is another."""
        studied, strategy, _ = wanted
        return f"{called(wanted)}: {self._module(studied)[0]}-{strategy.digest()}"

    def _file(self, wanted: Sequence[Wanted]) -> RowFile | None:
        if self.options.cells is None:
            return None
        is_here = not isinstance(self.options.workers, str)
        measured = any(way_of(device) == "measured" for _, _, device in wanted)
        settings = {"hloopt": __version__, **_settings(self.options)}
        settings["the machine"] = machine() if is_here and measured else None
        return RowFile(Path(self.options.cells), "cells of a study", settings)


def _made(answer: TaskAnswer, wanted: Wanted) -> _Made:
    """The cell of an answer, or the failure of its worker as one."""
    if answer.failure is None:
        cell = cell_of(answer.value["cell"])
        return _Made(wanted, cell, answer.value["kept"], cell.missing)
    return _Made(wanted, _failed(wanted, answer.failure), again=True)


def _failed(wanted: Wanted, failure: NoAnswer) -> Cell:
    studied, strategy, device = wanted
    return Cell(
        studied.row.name,
        strategy.name,
        device,
        way_of(device),
        problem=failure.reason,
        code=_CODES[failure.kind],
    )


def _say(note: str) -> None:
    click.echo(f"note: {note}", err=True)


def called(wanted: Wanted) -> str:
    """The name of a cell; no other of the study has it."""
    studied, strategy, device = wanted
    return f"{studied.row.name}, {strategy.name}, {device}"


def _as_json(studied: Studied) -> dict[str, Any]:
    """A module that was read: its text as it was, where it was text; a snapshot with its arrays."""
    found, text = studied.found, studied.text
    inputs = studied.inputs()
    row = {**asdict(studied.row), "inputs": None if inputs is None else str(inputs.absolute())}
    same = {"name": found.name, "place": text.place, "row": row}
    if found.snapshot is not None:
        one = found.snapshot
        content = write_snapshot(found.module, one.inputs, one.results)
        return {**same, "bytes": base64.b64encode(content).decode()}
    is_as_read = found.name == text.name and not (text.path is not None and is_model(text.path))
    content = text.read() if is_as_read else b""
    if is_as_read and form_of(content, found.name) == "text":
        return {**same, "text": content.decode("utf-8", "surrogateescape")}
    return {**same, "text": found.module.to_text()}


def _settings(options: StudyOptions) -> Mapping[str, Any]:
    """What all cells depend on, by the options that users know."""
    given = {
        "--seed": options.seed,
        "--repeat": options.repeat,
        "--cost-model": options.cost_model,
        "--verify": options.verify,
        "--verify-limit": options.verify_limit,
        "--emulate-limit": options.emulate_limit,
        "--out": options.out,
    }
    for option, names in (
        ("--pass-file", options.passes.pass_file),
        ("--fusion-rule", options.passes.fusion_rule),
        ("--cost-model", [options.cost_model or ""]),
    ):
        for name in names:
            path = Path(name.partition(":")[0])
            if path.is_file():
                digest = blake2b(path.read_bytes(), digest_size=6).hexdigest()
                given[f"{option} {name}"] = f"of content {digest}"
    return given


def _content(path: Path) -> bytes:
    """The content of a file, or of all in a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return b"".join(one.name.encode() + one.read_bytes() for one in files if one.is_file())

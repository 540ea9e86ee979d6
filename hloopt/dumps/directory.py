"""The modules of a dump directory, put together from the names of its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.dumps.content import module_format, proto_counts, read_bytes, text_counts
from hloopt.dumps.names import DumpName, parse_name, side_kind

__all__ = ["Dump", "DumpFile", "DumpModule", "Stage", "counts", "read_dump"]

_ORDER = {"before": 0, "pass": 1, "other": 2, "after": 3, "snapshot": 4, "given": 5}


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file; ``size`` is in bytes, as it lies on disk, ``format`` as in ``DumpName``."""

    path: Path
    size: int
    format: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """A module at one point of the compilation.

    ``kind`` is before, pass, after, snapshot, other (a stage that has another name) or given (a file that
    is not called as XLA calls its own); ``step`` is the number of a pass, -1 without one.
    """

    kind: str
    label: str
    step: int
    files: tuple[DumpFile, ...]

    def file(self, format: str) -> DumpFile | None:
        """The first file of a format."""
        return next((entry for entry in self.files if entry.format == format), None)

    def paths(self) -> tuple[Path, Path | None]:
        """The file to read: the text unless it is empty; and what else holds the module, beside the text."""
        text = self.file("text") or self.file("mlir")
        other = self.file("proto") or self.file("snapshot")
        if text is not None and (text.size or other is None):
            return text.path, other.path if other else None
        assert other is not None, "a stage has a file"
        return other.path, None


@dataclass(frozen=True, slots=True)
class DumpModule:
    """A module: its stages in the order of compilation, its other files by kind."""

    prefix: str
    number: int | None
    name: str
    stages: tuple[Stage, ...]
    others: dict[str, tuple[DumpFile, ...]]

    @property
    def label(self) -> str:
        """How the names of the module's files begin: ``module_0001.jit_f``, with the prefix if any."""
        if self.number is None:
            return self.name
        parts = (self.prefix, f"module_{self.number:04d}", self.name)
        return ".".join(part for part in parts if part)

    @property
    def files(self) -> list[DumpFile]:
        """All files of the module."""
        found = [entry for stage in self.stages for entry in stage.files]
        return found + [entry for files in self.others.values() for entry in files]


@dataclass(frozen=True, slots=True)
class Dump:
    """A directory: modules by number, files that belong to none by kind, and other directories in it."""

    folder: Path
    modules: tuple[DumpModule, ...]
    others: dict[str, tuple[DumpFile, ...]]
    folders: tuple[str, ...]


def counts(stage: Stage) -> tuple[int, int] | None:
    """The numbers of instructions and computations, found without reading the module.

    None for a snapshot, and where no file of the stage can be read.
    """
    for format, count in (("text", text_counts), ("proto", proto_counts)):
        file = stage.file(format)
        try:
            if file is not None:
                return count(read_bytes(file.path))
        except (OSError, ValueError):
            continue
    return None


def read_dump(folder: Path) -> Dump:
    """What is in a directory, by the names of the files; of those with odd names the first bytes are read.

    Raises ``OSError`` when the directory cannot be read.
    """
    builder = _Builder()
    entries = [(entry, parse_name(entry.name)) for entry in sorted(folder.iterdir())]
    # A link to nothing is reported when it is read, and not passed over.
    files = [
        (parsed, entry)
        for entry, parsed in entries
        if entry.is_file() or (entry.is_symlink() and not entry.exists())
    ]
    folders = [(parsed, entry) for entry, parsed in entries if entry.is_dir()]
    for parsed, path in files:
        if parsed.kind:
            key = (parsed.prefix, parsed.number, parsed.name)
            builder.stage(key, parsed.kind, parsed.step, parsed.label, _file(path, parsed.format))
    for parsed, path in folders:
        if parsed.number is not None:  # where the frontend puts what it gave for a module
            key = builder.known(parsed) or (parsed.prefix, parsed.number, parsed.name)
            builder.know(key)
            for inner in sorted(path.iterdir()):
                if inner.is_file():
                    builder.other(key, _file(inner, ""))
    for parsed, path in files:
        if not parsed.kind:
            _place(builder, parsed, path)
    rest = tuple(path.name for parsed, path in folders if parsed.number is None)
    return Dump(folder, builder.modules(), builder.kinds(None), rest)


_Key = tuple[str, int | None, str]


class _Builder:
    """The modules of a directory while their files are found."""

    def __init__(self) -> None:
        self._stages: dict[_Key, dict[tuple[str, int, str], list[DumpFile]]] = {}
        self._others: dict[_Key | None, dict[str, list[DumpFile]]] = {}
        self._numbers: dict[int, set[_Key]] = {}

    def know(self, key: _Key) -> None:
        """There is a module of this prefix, number and name."""
        if key[1] is not None:
            self._numbers.setdefault(key[1], set()).add(key)

    def stage(self, key: _Key, kind: str, step: int, label: str, file: DumpFile) -> None:
        """A file holds the module."""
        self.know(key)
        self._stages.setdefault(key, {}).setdefault((kind, step, label), []).append(file)

    def other(self, key: _Key | None, file: DumpFile) -> None:
        """A file holds something else about the module; without a key it belongs to none."""
        if key is not None:
            self.know(key)
        name = file.path.name
        kind = side_kind(name) or ("protos" if ".pb" in name[-6:] else "unknown")
        self._others.setdefault(key, {}).setdefault(kind, []).append(file)

    def known(self, parsed: DumpName) -> _Key | None:
        """The module whose name begins a file's name; None where there is none, or several.

        Some of XLA's writers leave out the timestamp, some the name.
        """
        keys = self._numbers.get(parsed.number, set()) if parsed.number is not None else set()
        fitting = [
            key for key in keys if parsed.prefix in {"", key[0]} and _begins(parsed.name, key[2])
        ]
        if not fitting and parsed.name.startswith("metadata."):
            fitting = [key for key in keys if parsed.prefix in {"", key[0]}]
        longest = max((len(key[2]) for key in fitting), default=0)
        fitting = [key for key in fitting if len(key[2]) == longest]
        same = [key for key in fitting if key[0] == parsed.prefix]
        found = same or fitting
        return found[0] if len(found) == 1 else None

    def modules(self) -> tuple[DumpModule, ...]:
        """The modules by number, those without one last."""
        keys = {key for keys in self._numbers.values() for key in keys} | self._stages.keys()
        ordered = sorted(keys, key=lambda key: (key[1] is None, key[1] or 0, key[2], key[0]))
        return tuple(DumpModule(*key, self._ordered(key), self.kinds(key)) for key in ordered)

    def kinds(self, key: _Key | None) -> dict[str, tuple[DumpFile, ...]]:
        """The other files of a module by kind."""
        return {kind: tuple(files) for kind, files in sorted(self._others.get(key, {}).items())}

    def _ordered(self, key: _Key) -> tuple[Stage, ...]:
        rows = self._stages.get(key, {}) or self._program(key)
        ordered = sorted(rows, key=lambda row: (_ORDER[row[0]], *row[1:]))
        return tuple(
            Stage(kind, label, step, tuple(rows[kind, step, label]))
            for kind, step, label in ordered
        )

    def _program(self, key: _Key) -> dict[tuple[str, int, str], list[DumpFile]]:
        """The frontend's program as the first stage, where there is nothing else to read."""
        files = self._others.get(key, {}).get("MLIR", [])
        found = [file for file in files if file.path.name.removesuffix(".gz") == "module.mlir"]
        rows = [replace(file, format="mlir") for file in found]
        return {("before", -1, "stablehlo"): rows} if rows else {}


def _begins(name: str, start: str) -> bool:
    return not start or name == start or name.startswith(f"{start}.")


def _place(builder: _Builder, parsed: DumpName, path: Path) -> None:
    """Find out what a file is whose name says no stage."""
    format = module_format(path, parsed.format)
    if format == "mlir" and parsed.number is not None:
        format = ""  # what the compiler itself lowers to; no frontend's program is called so
    file = _file(path, format)
    if parsed.number is None:
        if format:
            builder.stage(("", None, path.name), "given", -1, "", file)
        else:
            builder.other(None, file)
        return
    first, _, rest = parsed.name.partition(".")
    key = builder.known(parsed)
    if key is None:
        key = (parsed.prefix, parsed.number, first)
    else:
        rest = parsed.name[len(key[2]) :].removeprefix(".")
    if format:
        kind = "snapshot" if format == "snapshot" else "other"
        builder.stage(key, kind, -1, rest or kind, file)
    else:
        builder.other(key, file)


def _file(path: Path, format: str) -> DumpFile:
    return DumpFile(path, path.stat().st_size if path.exists() else 0, format)

"""Where modules come from and where text goes.

Inputs are files, dump directories, ``-`` or nothing for standard input; gzipped text is read from each of them.
Outputs are written whole or not at all.
"""

from __future__ import annotations

import errno
import gzip
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hloopt.cli.messages import error_json, show_error, show_warnings
from hloopt.cli.options import STRICT
from hloopt.errors import HlooptError, ParseError, UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.text.encoding import decode

__all__ = [
    "Text",
    "check_output",
    "each_module",
    "open_texts",
    "progress",
    "read_module",
    "write_text",
]

_MODULES = (".hlo", ".hlo.gz")
_TEXTS = (".txt", ".txt.gz")
_HEAD = 65536
_GZIP = b"\x1f\x8b"
_STDIN = "<stdin>"
_BEFORE = ".before_optimizations"
_AFTER = "after_optimizations"


@dataclass(frozen=True, slots=True)
class Text:
    """A text to read; ``path`` is None for standard input."""

    name: str
    path: Path | None

    def read(self, *, strict: bool = False) -> str:
        """The text.  Raises ``ParseError`` when it cannot be one, ``UsageError`` when it is not there."""
        return decode(self.name, self._bytes(), strict=strict)

    def _bytes(self) -> bytes:
        try:
            content = sys.stdin.buffer.read() if self.path is None else self.path.read_bytes()
            return gzip.decompress(content) if content[:2] == _GZIP else content
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ParseError(f"this is not a whole .gz file: {error}", name=self.name) from error
        except OSError as error:
            raise UsageError(f"{self.name}: {error.strerror or error}") from error


def open_texts(arguments: Sequence[str]) -> list[Text]:
    """The texts that arguments name.

    A directory stands for the modules in it, each as it was before optimisation where it holds both forms.
    Raises ``UsageError`` for a path that does not exist, an empty directory, and where standard input would
    be read from a terminal.
    """
    if not arguments:
        if sys.stdin.isatty():
            context = click.get_current_context()
            click.echo(context.get_usage(), err=True)
            raise UsageError("no file given, and standard input is a terminal (try --help)")
        return [Text(_STDIN, None)]
    if arguments.count("-") > 1:
        raise UsageError("'-' is given more than once, but standard input can be read only once")
    texts: list[Text] = []
    for argument in arguments:
        path = Path(argument)
        if not argument:
            raise UsageError("the name of a file is empty")
        if argument == "-":
            texts.append(Text(_STDIN, None))
        elif path.is_dir():
            found = [Text(str(entry), entry) for entry in _modules_in(path)]
            if not found:
                raise UsageError(f"{argument}: no HLO modules in this directory")
            texts.extend(found)
        elif path.exists():
            texts.append(Text(argument, path))
        else:
            raise UsageError(f"{argument}: no such file or directory")
    return texts


def _modules_in(folder: Path) -> list[Path]:
    found = [entry for entry in sorted(folder.iterdir()) if _is_module(entry)]
    stems = {entry.name.split(_BEFORE)[0] for entry in found if _BEFORE in entry.name}
    return [
        entry
        for entry in found
        if _AFTER not in entry.name or not any(entry.name.startswith(f"{s}.") for s in stems)
    ]


def _is_module(path: Path) -> bool:
    """Whether a file of a dump directory is a module: XLA puts reports and IR beside them, as .txt."""
    if not path.name.endswith((*_MODULES, *_TEXTS)) or not path.is_file():
        return False
    if path.name.endswith(_MODULES):
        return True
    try:
        head = _head(path)
    except (OSError, zlib.error):
        return True  # so that it is reported, not passed over
    for line in head.split(b"\n"):
        if line.strip() and not line.lstrip().startswith(b"//"):
            return line.startswith(b"HloModule")
    return False


def _head(path: Path) -> bytes:
    """The first bytes of a text, as far as they go where the file has been cut off."""
    with path.open("rb") as stream:
        content = stream.read(_HEAD)
    return zlib.decompressobj(31).decompress(content, _HEAD) if content[:2] == _GZIP else content


def read_module(text: Text) -> Module:
    """Read a text as a module, as strictly as the command's ``--strict`` wants it."""
    from hloopt.text.parser import parse_module

    strict = click.get_current_context().meta.get(STRICT, False)
    return parse_module(text.read(strict=strict), text.name, strict=strict)


def each_module(
    arguments: Sequence[str], step: Callable[[Text, Module], dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """What ``step`` makes of each module that arguments name, in turn; and the exit code so far.

    A module that cannot be read, is not valid or fails in ``step`` is one message, and one row with its
    ``error``; the others are done all the same.  The code is the largest of the errors', 0 without any.
    """
    from hloopt.verify import verify_module

    rows: list[dict[str, Any]] = []
    code = 0
    for text in progress(open_texts(arguments)):
        row: dict[str, Any] = {"file": text.name}
        try:
            module = read_module(text)
            show_warnings(module)
            verify_module(module)
            row |= step(text, module)
        except (HlooptError, MemoryError) as caught:
            error = caught if isinstance(caught, HlooptError) else _out_of_memory(text, caught)
            show_error(error)
            row["error"] = error_json(error)
            code = max(code, error.exit_code)
        rows.append(row)
    return rows, code


def _out_of_memory(text: Text, error: MemoryError) -> HlooptError:
    return UnsupportedError(f"out of memory: {error or 'no more can be had'}", name=text.name)


def progress(texts: list[Text]) -> Iterator[Text]:
    """The texts, with a progress bar on stderr where that is a terminal and there are several."""
    if len(texts) < 2 or not sys.stderr.isatty():
        yield from texts
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("modules", total=len(texts))
        for text in texts:
            bar.update(task, description=Path(text.name).name[:40])
            yield text
            bar.advance(task)


def check_output(output: str | None, texts: Sequence[Text]) -> None:
    """Raise ``UsageError`` where several modules would be written into one file, or over an input."""
    if output == "":
        raise UsageError("the name given by -o is empty")
    if output in (None, "-"):
        return
    if not _is_folder(output):
        if len(texts) < 2:
            return
        raise UsageError(f"{output}: several modules need a directory (write {output}{os.sep})")
    names = Counter(_file_name(text.name) for text in texts)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UsageError(f"{output}: several of the modules would be written to {twice[0]}")
    for text in texts:
        target = Path(output) / _file_name(text.name)
        if text.path is not None and target.exists() and target.samefile(text.path):
            raise UsageError(f"{output}: {target} is one of the inputs; give another directory")


def _is_folder(output: str) -> bool:
    return output.endswith(os.sep) or Path(output).is_dir()


def write_text(output: str | None, text: str, name: str, *, heading: bool = False) -> None:
    """Write to ``output``: None or ``-`` is stdout; a directory gets one file per module.

    On stdout ``heading`` says which of several modules follows, as an HLO comment.  A file appears whole
    or not at all, compressed when it is called ``.gz``.  Raises ``UsageError`` when it cannot be written.
    """
    if output in (None, "-"):
        sys.stdout.write(f"// {name}\n{text}\n" if heading else text)
        return
    path = Path(output)
    if _is_folder(output):
        path /= _file_name(name)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device is written to, never replaced
            path.write_text(text, encoding="utf-8")
        else:
            _write_whole(path.resolve(), text)  # a link stays, and what it points to is written
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _write_whole(path: Path, text: str) -> None:
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is not a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    content = text.encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as stream:
        temporary = Path(stream.name)
        try:
            stream.write(content)
            stream.flush()
            temporary.chmod(mode)
            temporary.replace(path)
        except BaseException:
            temporary.unlink()
            raise


def _file_name(name: str) -> str:
    """The last part of an input's name, without what no file should be called."""
    stem = Path(name).name.removesuffix(".gz")
    return "stdin.hlo" if name == _STDIN else stem


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

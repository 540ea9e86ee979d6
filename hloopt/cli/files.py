"""Where modules come from and where text goes.

Inputs are files, dump directories, ``-`` or nothing for standard input; ``.gz`` is read.  Outputs are written
whole or not at all.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hloopt.errors import ParseError, UsageError
from hloopt.ir import Module

__all__ = ["Text", "modules", "open_texts", "read_module", "write_text"]

_SUFFIXES = (".txt", ".hlo", ".txt.gz", ".hlo.gz")
_HEAD = 65536


@dataclass(frozen=True, slots=True)
class Text:
    """A text to read; ``path`` is None for standard input."""

    name: str
    path: Path | None

    def read(self) -> str:
        """The text.  Raises ``ParseError`` when it cannot be one, ``UsageError`` when it is not there."""
        return _decode(self.name, self._bytes())

    def _bytes(self) -> bytes:
        if self.path is None:
            return sys.stdin.buffer.read()
        try:
            content = self.path.read_bytes()
            return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{self.name}: not a whole .gz file: {error}") from error
        except OSError as error:
            raise UsageError(f"{self.name}: {error.strerror or error}") from error


def _decode(name: str, content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ParseError("this is UTF-16 text; HLO text is ASCII or UTF-8", name=name)
    if b"\0" in content[:_HEAD]:
        raise ParseError("this is a binary file, not HLO text (a protobuf dump?)", name=name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ParseError(
            f"byte 0x{content[error.start]:02x} is not UTF-8 text",
            name=name,
            line=line,
            column=column,
        ) from error


def open_texts(arguments: Sequence[str]) -> list[Text]:
    """The texts that arguments name; a directory stands for the modules in it.

    Raises ``UsageError`` for a path that does not exist, an empty directory, and where standard input would
    be read from a terminal.
    """
    if not arguments:
        if sys.stdin.isatty():
            context = click.get_current_context()
            click.echo(context.get_usage(), err=True)
            raise UsageError("no file given, and standard input is a terminal (try --help)")
        return [Text("<stdin>", None)]
    texts: list[Text] = []
    for argument in arguments:
        path = Path(argument)
        if argument == "-":
            texts.append(Text("<stdin>", None))
        elif path.is_dir():
            found = [
                Text(str(entry), entry) for entry in sorted(path.iterdir()) if _is_module(entry)
            ]
            if not found:
                raise UsageError(f"{argument}: no HLO modules in this directory")
            texts.extend(found)
        elif path.exists():
            texts.append(Text(argument, path))
        else:
            raise UsageError(f"{argument}: no such file or directory")
    return texts


def _is_module(path: Path) -> bool:
    """Whether a file of a dump directory is a module: XLA puts reports and IR beside them."""
    if not path.name.endswith(_SUFFIXES) or not path.is_file():
        return False
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        for line in stream.read(_HEAD).split(b"\n"):
            if line.strip() and not line.lstrip().startswith(b"//"):
                return line.startswith(b"HloModule")
    return False


def read_module(text: Text) -> Module:
    """Read a text as a module."""
    from hloopt.text.parser import parse_module

    return parse_module(text.read(), text.name)


def modules(arguments: Sequence[str]) -> Iterator[tuple[Text, Module]]:
    """Each module in turn, with a progress bar on a terminal when there are several."""
    texts = open_texts(arguments)
    for text in progress(texts):
        yield text, read_module(text)


def progress(texts: list[Text]) -> Iterator[Text]:
    """The texts, with a progress bar on stderr where that is a terminal and there are several."""
    if len(texts) < 2 or not sys.stderr.isatty():
        yield from texts
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("modules", total=len(texts))
        for text in texts:
            bar.update(task, description=Path(text.name).name[:40])
            yield text
            bar.advance(task)


def write_text(output: str | None, text: str, name: str, *, several: bool = False) -> None:
    """Write to ``output``: None or ``-`` is stdout; a directory gets one file per module.

    A file appears whole or not at all.  Raises ``UsageError`` when it cannot be written, and when several
    modules would go into one file.
    """
    if output in (None, "-"):
        sys.stdout.write(text)
        return
    path = Path(str(output))
    if path.is_dir() or str(output).endswith(os.sep):
        path = path / _file_name(name)
    elif several:
        raise UsageError(f"{output}: several modules need a directory (write {output}{os.sep})")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as stream:
            temporary = Path(stream.name)
            try:
                stream.write(text)
            except BaseException:
                temporary.unlink()
                raise
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _file_name(name: str) -> str:
    """The last part of an input's name, without what no file should be called."""
    stem = Path(name).name.removesuffix(".gz")
    return "stdin.hlo" if name == "<stdin>" else stem


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

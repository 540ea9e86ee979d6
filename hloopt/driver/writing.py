"""Writing files: each appears whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import secrets
import shutil
import sys
from pathlib import Path

from hloopt.errors import UsageError
from hloopt.source import STDIN

__all__ = [
    "check_writable",
    "file_name",
    "form_named",
    "is_folder",
    "write_bytes",
    "write_file",
    "write_text",
]

_FORMATS = (
    *(".hlo_snapshot.pb", ".hlo_unoptimized_snapshot.pb", ".hlo.pb", ".pb", ".hlo", ".txt"),
    *(".mlir.bc", ".mlir"),
)
_ENDS = {
    "hlo": ".hlo",
    "proto": ".hlo.pb",
    "stablehlo": ".mlir",
    "mlir.bc": ".mlir.bc",
    "page": ".html",
}
"""The forms that modules are written in, and how the names of such files end."""


def is_folder(output: str) -> bool:
    """Whether files are to be written into a directory of this name."""
    return output.endswith(os.sep) or Path(output).is_dir()


def write_text(
    output: str | None, text: str, name: str, *, heading: bool = False, form: str = "hlo"
) -> None:
    """Write to ``output``: None or ``-`` is stdout; a directory gets one file per module.

    On stdout ``heading`` says which of several modules follows, as an HLO comment.  A file appears whole
    or not at all, compressed when it is called ``.gz``.  Raises ``UsageError`` when it cannot be written.
    """
    if output in (None, "-"):
        sys.stdout.write(f"// {name}\n{text}\n" if heading else text)
    else:
        _write(output, text.encode(), file_name(name, form))


def write_bytes(output: str | None, content: bytes, name: str, *, form: str = "proto") -> None:
    """Write a protocol buffer or another binary form, as ``write_text`` does a text."""
    if output in (None, "-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _write(output, content, file_name(name, form))


def write_file(output: str, made: Path) -> None:
    """Write a file that was made elsewhere, which may be large, as ``write_bytes`` does its content."""
    path = Path(output).resolve()
    try:
        _check_place(path)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        try:
            shutil.copyfile(made, temporary)
            shutil.copymode(path if path.exists() else made, temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def check_writable(output: str) -> None:
    """Raise ``UsageError`` where a file of this name cannot be written; nothing is left behind.

    For what takes long before it writes.
    """
    path = Path(output).resolve()
    folder = next(parent for parent in path.parents if parent.exists())
    temporary = folder / f".{path.name}.{secrets.token_hex(4)}"
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not path.exists() or path.is_file():
            temporary.open("xb").close()
            temporary.unlink()
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def _write(output: str, content: bytes, file_name: str) -> None:
    path = Path(output)
    if is_folder(output):
        path /= file_name
    try:
        if path.exists() and not path.is_file():  # a pipe or a device is written to, never replaced
            path.write_bytes(content)
        else:
            _write_whole(path.resolve(), content)  # a link stays, and what it points to is written
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _check_place(path: Path) -> None:
    """Make the folder of a file that may be written.  Raises ``OSError``."""
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is not a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _write_whole(path: Path, content: bytes) -> None:
    _check_place(path)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def form_named(name: str) -> str:
    """The form that a file's name means."""
    plain = name.removesuffix(".gz")
    if plain.endswith(".mlir.bc"):
        return "mlir.bc"
    return "stablehlo" if plain.endswith(".mlir") else "proto" if plain.endswith(".pb") else "hlo"


def file_name(name: str, form: str) -> str:
    """The last part of an input's name, with an end that says what is in the file."""
    plain = "stdin.hlo" if name == STDIN else Path(name).name.removesuffix(".gz")
    if form_named(plain) == form:
        return plain
    stem = next((plain.removesuffix(end) for end in _FORMATS if plain.endswith(end)), plain)
    return stem + _ENDS[form]

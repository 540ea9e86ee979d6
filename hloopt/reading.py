"""Modules from files of any form, for the command line and for Python.

The content of a file decides what it is, not its name: HLO text, a protocol buffer, a snapshot, StableHLO, each
of them perhaps gzipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, ParseError, UsageError
from hloopt.ir import Module
from hloopt.text.encoding import decode
from hloopt.text.parser import parse_module
from hloopt.types import DTYPES

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = [
    "ELIDED",
    "Input",
    "Sizes",
    "argument_sizes",
    "bytes_of",
    "decompressed",
    "form_of",
    "from_jax",
    "is_dump",
    "is_model",
    "read",
    "read_content",
    "read_file",
    "read_model_of",
]

Sizes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Element types and sizes of arguments, by name or number."""

ELIDED: Final = b"{...}"
"""What a text has in the place of a constant's values that it leaves out."""
_GIVEN: Final = re.compile(r"(.+)=(\w+)\[(\d*(?:,\d+)*)\]")
_MOST_LISTED: Final = 12


@dataclass(frozen=True, slots=True)
class Input:
    """A module and the name of what it was read from; ``snapshot`` where that holds arrays as well."""

    name: str
    module: Module
    snapshot: Snapshot | None = None


def read(
    source: str | Path | bytes,
    *,
    name: str | None = None,
    shapes: Mapping[str, str] | None = None,
    module: str | None = None,
    stage: str | None = None,
    strict: bool = False,
) -> Module:
    """The module in a file, a dump directory or a content; see ``hloopt.read``."""
    sizes = argument_sizes([f"{key}={shape}" for key, shape in (shapes or {}).items()])
    if isinstance(source, str) and "\n" in source:
        source = source.encode()
    if isinstance(source, bytes):
        return read_content(source, name or "<text>", strict=strict, sizes=sizes).module
    path, twin = Path(source), None
    if is_model(path):
        return read_model_of(path, sizes).module
    if path.is_dir():
        path, twin = _of_dump(path, module, stage)
    elif module is not None or stage is not None:
        raise UsageError(f"{source} is not a dump directory, of which module= and stage= pick")
    return read_file(path, twin, name=name, strict=strict, sizes=sizes).module


def from_jax(
    fun: Callable[..., Any], *args: Any, name: str | None = None, **keywords: Any
) -> Module:
    """The module that JAX compiles for ``fun(*args, **keywords)``, with the lines of the Python source.

    ``fun`` is a function, or what ``jax.jit`` made of one with its static and donated arguments; arguments are
    arrays, or ``jax.ShapeDtypeStruct``.  Nothing is compiled or run.  ``name`` is the module's in messages.

    Raises ``DeviceError`` where this Python has no JAX, and what ``fun`` raises while it is traced.
    """
    try:
        jax: Any = import_module("jax")
    except ImportError as error:
        raise DeviceError(f"from_jax needs JAX in this Python: {error}") from error
    staged = fun if hasattr(fun, "lower") else jax.jit(fun)
    text = staged.lower(*args, **keywords).as_text(debug_info=True)
    return read(text.encode(), name=name or getattr(fun, "__name__", "jax"))


def argument_sizes(given: Sequence[str]) -> Sizes:
    """What ``NAME=f32[8,16]`` says, for each.  Raises ``UsageError`` for another form."""
    found = {}
    for text in given:
        match = _GIVEN.fullmatch(text.replace(" ", ""))
        if match is None or match[2] not in DTYPES:
            raise UsageError(
                f"'{text}' is not the shape of an argument, such as x=f32[8,16] or 0=f32[8,16]"
            )
        found[match[1]] = (match[2], tuple(int(size) for size in match[3].split(",") if size))
    return found


def bytes_of(path: Path) -> bytes:
    """A file's content, decompressed.

    Raises ``ParseError`` where it is damaged, ``UsageError`` where it is not there.
    """
    try:
        return decompressed(path.read_bytes(), str(path))
    except OSError as error:
        if path.is_symlink() and not path.exists():
            what = f"{path} is a link to {path.readlink()}, which is not there"
            raise UsageError(what) from error
        raise UsageError(f"{path}: {error.strerror or error}") from error


def decompressed(content: bytes, name: str) -> bytes:
    """The content of a gzip file, any other as it is.  Raises ``ParseError`` where it is damaged."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    from hloopt.dumps import gunzip

    try:
        return gunzip(content)
    except ValueError as error:
        raise ParseError(str(error), name=name) from error


def read_file(
    path: Path,
    twin: Path | None = None,
    *,
    name: str | None = None,
    strict: bool = False,
    sizes: Sizes | None = None,
) -> Input:
    """What a file holds; ``twin`` is read where that leaves out values.  Raises what ``read_content`` does."""
    if is_model(path):
        return read_model_of(path, sizes)
    content = bytes_of(path)
    if twin is not None and ELIDED in content:
        path, content = twin, bytes_of(twin)
    return read_content(content, name or str(path), strict=strict, sizes=sizes)


def is_model(path: Path) -> bool:
    """Whether a path is a directory with a model and its weights."""
    if not path.is_dir():
        return False
    from hloopt.stablehlo import is_model_directory

    return is_model_directory(path)


def is_dump(path: Path) -> bool:
    """Whether a path is a directory, and not that of a model: a dump, whatever is in it."""
    return path.is_dir() and not is_model(path)


def read_model_of(folder: Path, sizes: Sizes | None = None) -> Input:
    """The module of a model directory with its weights; with a snapshot where it has examples of all inputs."""
    from hloopt.stablehlo.model_directory import read_model

    model = read_model(folder, sizes)
    return Input(str(folder), model.module, model.snapshot)


def read_content(
    content: bytes,
    name: str,
    *,
    place: str | None = None,
    strict: bool = False,
    sizes: Sizes | None = None,
) -> Input:
    """The module in the content of a file, not yet verified.

    ``name`` is the file's, ``place`` the name that belongs to its lines where that is another,
    since the text is part of a longer one.  ``sizes`` are for arguments of StableHLO whose own are open.

    Raises ``ParseError`` with the place of the first mistake, ``MissingReaderError`` for StableHLO where there
    is no jaxlib, and ``UsageError`` for sizes that have no use.
    """
    form = form_of(content, name) if place in {None, name} else "text"
    if form == "stablehlo":
        from hloopt.stablehlo.conversion import read_stablehlo

        return Input(name, read_stablehlo(content, name, sizes or {}))
    if sizes:
        raise UsageError(f"{name} is HLO, whose shapes are fixed: sizes are for StableHLO")
    if form == "proto":
        return _read_proto(content, name, strict)
    text = decode(place or name, content, strict=strict)
    del content
    return Input(name, parse_module(text, place or name, strict=strict))


def form_of(content: bytes, name: str) -> str:
    """The form of a file's content: text, proto or stablehlo; text where it is none of them."""
    if content.startswith(b"HloModule") or not content.strip():
        return "text"
    if not content.startswith(b"ML\xefR"):
        if name.endswith((".pb", ".pb.gz")):
            return "proto"
        if not b" " <= content[:1] < b"\x7f":
            from hloopt.proto import is_proto

            if is_proto(content) is not None:
                return "proto"
    from hloopt.stablehlo import is_stablehlo

    return "stablehlo" if is_stablehlo(content) else "text"


def _read_proto(content: bytes, name: str, strict: bool) -> Input:
    from hloopt.proto import is_proto, read_proto, read_snapshot

    if is_proto(content) == "snapshot":
        snapshot = read_snapshot(content, name)
        found = Input(name, snapshot.module, snapshot)
    else:
        found = Input(name, read_proto(content, name))
    if strict and found.module.warnings:
        _refuse_unknown(found)
    return found


def _refuse_unknown(found: Input) -> None:
    """Raise ``ParseError`` for an opcode that XLA does not have; what has no text form is not an error."""
    for instruction in found.module.instructions():
        if instruction.op.family == "unknown":
            message = f"%{instruction.name}: unknown opcode '{instruction.opcode}'"
            raise ParseError(message, name=found.name)


def _of_dump(folder: Path, module: str | None, stage: str | None) -> tuple[Path, Path | None]:
    """The file of the only module that is picked, and that of a protocol buffer of the same stage."""
    from hloopt.dumps import pick, read_dump

    found = pick(read_dump(folder), module, () if stage is None else (stage,))
    if len(found) > 1:
        names = [f"  {entry.label} {one.label}".rstrip() for entry, one in found]
        rest = [f"  and {len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
        raise UsageError(
            f"{folder} has {len(found)} of these; module= and stage= pick one of them\n"
            + "\n".join([*names[:_MOST_LISTED], *rest])
        )
    return found[0][1].paths()

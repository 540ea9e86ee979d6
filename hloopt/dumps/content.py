"""What is in the files of a dump, as far as that is known without reading the modules."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from pathlib import Path

__all__ = [
    "assigned_bytes",
    "gunzip",
    "is_fusion_log",
    "is_gzip",
    "module_format",
    "proto_counts",
    "read_bytes",
    "text_counts",
]

_HEAD = 65536
_GZIP = b"\x1f\x8b"
_LARGEST = 2 << 30  # bytes; no protocol buffer is larger, and no text of that size could be read

# XLA prints one instruction a line, and ends each computation with a brace in the first column.
_INSTRUCTION = re.compile(rb"\n[ \t]++(?:ROOT )?+[^\s=]++ = ")
_END = b"\n}"

# What a log of priority fusion consists of.
_LOG = re.compile(
    rb"(?:\s|#[^\n]*+\n)*+(?:fusion_steps|gpu_device_info|hlo_module_before_fusion)\s*[:{]"
)

# An allocation in the text of a buffer assignment, and what no run needs.
_ALLOCATION = re.compile(rb"^allocation \d+: size (\d+)(?:, |:)(.*)$", re.MULTILINE)
_NOT_OF_A_RUN = (b"thread-local", b"constant")

# Fields of XLA's messages: HloProto.hlo_module, HloModuleProto.computations,
# HloComputationProto.instructions.
_MODULE, _COMPUTATIONS, _INSTRUCTIONS = 1, 3, 2


def is_gzip(content: bytes) -> bool:
    """Whether bytes begin as a gzip file does."""
    return content[:2] == _GZIP


def gunzip(content: bytes) -> bytes:
    """The content of a gzip file.  Raises ``ValueError`` for one that is damaged or too large."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            plain = stream.read(_LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"this is not a whole .gz file: {error}") from error
    if len(plain) > _LARGEST:
        raise ValueError(f"more than {_LARGEST >> 20} MiB are compressed in it")
    return plain


def read_bytes(path: Path) -> bytes:
    """A file's content, decompressed where it is gzip.  Raises ``OSError`` and ``ValueError``."""
    content = path.read_bytes()
    return gunzip(content) if is_gzip(content) else content


def module_format(path: Path, named: str) -> str:
    """How a file holds a module: text, proto, snapshot or mlir; empty when it holds none.

    ``named`` is the format by the name.  What is called ``.hlo`` or ``.hlo.pb`` counts as a module, and so does
    what cannot be read: that is reported then, and not passed over.
    """
    plain = path.name.removesuffix(".gz")
    if plain.endswith((".mlir", ".mlir.bc")):
        return "mlir"
    if named == "text":
        return "text" if plain.endswith(".hlo") or _is_hlo_text(path) else ""
    if not named or plain.endswith((".hlo.pb", "snapshot.pb")):
        return named
    from hloopt.proto import is_proto

    try:
        found = is_proto(read_bytes(path))
    except (OSError, ValueError):
        return named
    return {"module": "proto", "hlo": "proto", "snapshot": "snapshot"}.get(found or "", "")


def is_fusion_log(path: Path) -> bool:
    """Whether a file begins as XLA's log of priority fusion does, whatever its name; False for no file."""
    try:
        return path.is_file() and _LOG.match(_head(path)) is not None
    except (OSError, zlib.error):
        return False  # who reads the file says what is wrong with it


def _head(path: Path) -> bytes:
    """The first bytes, decompressed.  Raises ``OSError`` and ``zlib.error``."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if is_gzip(head):  # as far as it goes: the file may have been cut off
        head = zlib.decompressobj(31).decompress(head, _HEAD)
    return head


def _is_hlo_text(path: Path) -> bool:
    try:
        head = _head(path)
    except (OSError, zlib.error):
        return True
    for line in head.split(b"\n"):
        if line.strip() and not line.lstrip().startswith(b"//"):
            return line.startswith(b"HloModule")
    return False


def text_counts(content: bytes) -> tuple[int, int]:
    """The numbers of instructions and computations of a text, counted by lines as XLA prints them."""
    return sum(1 for _ in _INSTRUCTION.finditer(content)), content.count(_END)


def proto_counts(content: bytes) -> tuple[int, int]:
    """The numbers of instructions and computations of a proto.  Raises ``ValueError`` where it is none."""
    from hloopt.proto import ProtoProblem, is_proto
    from hloopt.proto.wire import entries

    try:
        if is_proto(content) == "hlo":
            extents = (extent for number, _, extent in entries(content) if number == _MODULE)
            start, end = next(extents, (0, 0))
            content = content[start:end]
        instructions = computations = 0
        for number, _, (start, end) in entries(content):
            if number == _COMPUTATIONS:
                computations += 1
                instructions += sum(
                    1 for inner, _, _ in entries(content[start:end]) if inner == _INSTRUCTIONS
                )
    except ProtoProblem as problem:
        raise ValueError(str(problem)) from problem
    return instructions, computations


def assigned_bytes(stage: Path) -> int | None:
    """The bytes of a run of the module in ``stage``: parameters, results and temporaries.

    None where no ``-buffer-assignment.txt`` lies beside the text.
    """
    path = stage.with_name(
        f"{stage.name.removesuffix('.gz').removesuffix('.txt')}-buffer-assignment.txt"
    )
    if not path.is_file():
        return None
    return sum(
        int(found[1])
        for found in _ALLOCATION.finditer(read_bytes(path))
        if not found[2].startswith(_NOT_OF_A_RUN)
    )

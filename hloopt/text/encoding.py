"""Bytes to text, and what bytes are that are none."""

from __future__ import annotations

import codecs

from hloopt.errors import ParseError
from hloopt.source import Source

__all__ = ["decode"]

_BYTECODE = b"ML\xefR"
# The first bytes of files, what they are, and what to do about it.
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unzip it first"),
    (b"\x1f\x8b", "gzip data within gzip data", "gunzip it once"),
    (b"BZh", "bzip2 data", "bunzip2 it first; gzip data is read as it is"),
    (b"\xfd7zXZ\0", "xz data", "unxz it first; gzip data is read as it is"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "unzstd it first; gzip data is read as it is"),
    (b"\x04\x22\x4d\x18", "lz4 data", "unlz4 it first; gzip data is read as it is"),
    (_BYTECODE, "MLIR bytecode (StableHLO?)", ""),
    (b"BC\xc0\xde", "LLVM bitcode", ""),
    (b"\x7fELF", "an ELF binary (a cubin?)", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"\x89HDF", "an HDF5 file", ""),
    (b"\x89PNG", "a PNG image", ""),
    (b"%PDF", "a PDF document", ""),
    (b"SQLite format 3\0", "an SQLite database", ""),
    (b"\x80\x04\x95", "a Python pickle", ""),
    (b"\x80\x05\x95", "a Python pickle", ""),
)
# UTF-32 before UTF-16: their marks begin alike.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_HEAD = 65536
# A vector of a flatbuffer has its length before it, little-endian; signed offsets reach no further than this.
_LENGTH = 4
_LARGEST = 1 << 31
_MOST_CONTROLS = 0.02  # of the characters of a text; a binary file has many more


def decode(name: str, content: bytes, *, strict: bool = False) -> str:
    """The text of a file called ``name``.  UTF-16 and UTF-32 with a byte order mark are read unless ``strict``:
    XLA reads neither.

    Raises ``ParseError`` with the place of a byte that is not UTF-8, and with the kind of the file where it is
    no text.
    """
    if not content.strip():
        raise ParseError("there is no module in it: it is empty", name=name)
    for mark, codec, called in _MARKS:
        if content.startswith(mark):
            return _wide(name, content, codec, called, strict)
    for magic, what, note in _KINDS:
        if content.startswith(magic):
            notes = (note,) if note else ()
            raise ParseError(f"this is {what}, not HLO text", name=name, notes=notes)
    head = content[:_HEAD]
    if b"\0" in head:
        raise _binary(name, content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if _controls(head) > _MOST_CONTROLS:
            raise _binary(name, content) from None
        raise _not_utf8(name, content, error.start) from None


def _wide(name: str, content: bytes, codec: str, called: str, strict: bool) -> str:
    note = f"iconv -f {called} -t UTF-8 makes HLO text of it"
    if strict:
        raise ParseError(
            f"this is {called} text; HLO text is ASCII or UTF-8", name=name, notes=(note,)
        )
    try:
        return content.decode(codec)
    except UnicodeDecodeError as error:
        place = f"at byte {error.start} of {len(content)}"
        raise ParseError(
            f"this is damaged {called} text: {error.reason} {place}", name=name
        ) from None


def _controls(head: bytes) -> float:
    return sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head) / len(head)


def _binary(name: str, content: bytes) -> ParseError:
    head = content[:_HEAD]
    halves = head[::2], head[1::2]
    for high, low, order in zip(halves, halves[::-1], ("BE", "LE"), strict=True):
        if high.count(0) * 2 > len(high) and _controls(low) <= _MOST_CONTROLS:
            note = f"iconv -f UTF-16{order} -t UTF-8 makes HLO text of it"
            message = "this is UTF-16 text without a byte order mark; HLO text is ASCII or UTF-8"
            return ParseError(message, name=name, notes=(note,))
    cut = _cut_export(content)
    if cut is not None:
        message = "this is a file cut off within its MLIR bytecode (of jax.export?), not HLO text"
        return ParseError(message, name=name, notes=(cut,))
    if _is_proto(head):
        note = "those called HloModuleProto, HloProto and HloSnapshot are read; it is none of them"
        return ParseError("this is a protocol buffer, not HLO text", name=name, notes=(note,))
    return ParseError("this is a binary file, not HLO text", name=name)


def _cut_export(content: bytes) -> str | None:
    """What is missing of MLIR bytecode within other data, by the length before it; None where nothing is."""
    at = content.find(_BYTECODE)
    if at < _LENGTH:
        return None
    length, there = int.from_bytes(content[at - _LENGTH : at], "little"), len(content) - at
    if not there < length <= _LARGEST:
        return None
    return f"the bytecode has {length} bytes, of which {there} are there"


def _is_proto(head: bytes) -> bool:
    """Whether it begins with a field of messages or strings and a length, as serialised messages do."""
    return head[0] in range(0x0A, 0x7B, 8) and len(head) > 2


def _not_utf8(name: str, content: bytes, at: int) -> ParseError:
    before = content[:at].decode("utf-8-sig")
    source = Source(before + content[at : at + 200].decode("latin-1").split("\n")[0], name)
    byte = content[at]
    notes: tuple[str, ...] = ()
    if byte >= 0xA0:
        notes = (f"it is {chr(byte)!r} in Latin-1: iconv -f LATIN1 -t UTF-8 makes HLO text of it",)
    return source.error(
        ParseError, len(before), f"byte 0x{byte:02x} is not UTF-8 text", notes=notes
    )

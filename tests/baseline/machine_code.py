"""How many instructions each function of a cubin has: its section of machine code, without the filling behind it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["instruction_counts"]

_PREFIX = ".text."
_BYTES = 16  # of an instruction, from Volta (sm_70) on
_NOP = 0x918  # the lowest 12 bits of one that does nothing; the assembler fills a section up with these
_HEADER = struct.Struct("<IIQQQQ")  # of a section: name, type, flags, address, offset, size


def instruction_counts(image: bytes) -> dict[str, int]:
    """Function -> instructions, those of functions that it calls and that were not inlined included.

    Raises ``ValueError`` for what is no 64-bit ELF file.
    """
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    return {
        name.removeprefix(_PREFIX): _count(code)
        for name, code in _sections(image)
        if name.startswith(_PREFIX)
    }


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [_HEADER.unpack_from(image, start + number * size) for number in range(count)]
    for header in headers:
        at = headers[names][4] + header[0]
        name = image[at : image.index(b"\0", at)].decode()
        yield name, image[header[4] : header[4] + header[5]]


def _count(code: bytes) -> int:
    end = len(code)
    while end and int.from_bytes(code[end - _BYTES : end - _BYTES + 2], "little") & 0xFFF == _NOP:
        end -= _BYTES
    return end // _BYTES

"""Files that are no text, and text that is no UTF-8."""

from __future__ import annotations

import codecs
import gzip
import io
import struct
import zipfile

import pytest

from hloopt.errors import ParseError
from hloopt.text.encoding import decode

TEXT = "HloModule m\ne { ROOT a = f32[] parameter(0) }\n"


def refused(content: bytes, strict: bool = False) -> ParseError:
    with pytest.raises(ParseError) as caught:
        decode("m.hlo", content, strict=strict)
    return caught.value


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "marked"])
def test_utf8_is_read_with_a_mark_and_without(mark: bytes) -> None:
    """The mark is no part of the text."""
    assert decode("m.hlo", mark + TEXT.encode(), strict=True) == TEXT


@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    ],
)
def test_wide_text_with_a_mark_is_read_unless_strictly(mark: bytes, codec: str, name: str) -> None:
    """XLA does not read it, and the message says how to make it readable."""
    content = mark + TEXT.encode(codec)
    assert decode("m.hlo", content) == TEXT
    error = refused(content, strict=True)
    assert error.message == f"this is {name} text; HLO text is ASCII or UTF-8"
    assert error.notes == (f"iconv -f {name} -t UTF-8 makes HLO text of it",)


def test_damaged_wide_text() -> None:
    """Half a character at the end."""
    content = codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le")[:-1]
    assert refused(content).message.startswith(
        "this is damaged UTF-16 text: truncated data at byte "
    )


def test_wide_text_without_a_mark_is_called_by_its_name() -> None:
    """Which order its bytes have shows in where the zeros are."""
    message = "this is UTF-16 text without a byte order mark; HLO text is ASCII or UTF-8"
    for order in ("LE", "BE"):
        error = refused(TEXT.encode(f"utf-16-{order.lower()}"))
        assert error.message == message
        assert error.notes == (f"iconv -f UTF-16{order} -t UTF-8 makes HLO text of it",)


def test_a_byte_of_latin1_is_shown_in_its_line() -> None:
    """The column counts characters; the note says which character it would be."""
    error = refused('HloModule m\n// naïve "caf'.encode() + b'\xe9"\n')
    assert str(error).splitlines() == [
        "m.hlo:2:14: error: byte 0xe9 is not UTF-8 text",
        '// naïve "café"',
        "             ^",
        "note: it is 'é' in Latin-1: iconv -f LATIN1 -t UTF-8 makes HLO text of it",
    ]


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("m.hlo", TEXT)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there is no module in it: it is empty"),
        (b" \n\t\n", "there is no module in it: it is empty"),
        (zipped(), "this is a zip archive, not HLO text"),
        (gzip.compress(TEXT.encode(), mtime=0), "this is gzip data within gzip data, not HLO text"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "this is zstd data, not HLO text"),
        (b"ML\xefR\x01\x03", "this is MLIR bytecode (StableHLO?), not HLO text"),
        (b"BC\xc0\xde5\x14", "this is LLVM bitcode, not HLO text"),
        (b"\x7fELF\x02\x01", "this is an ELF binary (a cubin?), not HLO text"),
        (b"\x93NUMPY\x01\x00", "this is a NumPy array, not HLO text"),
        (b"\x0a\x05jit_f\x12\x00\x00", "this is a protocol buffer, not HLO text"),
        (b"\x00\x01\x02HloModule", "this is a binary file, not HLO text"),
        (b"\x0a\x05jit_f\x12\x01\x02\xff\x10", "this is a protocol buffer, not HLO text"),
    ],
)
def test_files_that_are_no_text(content: bytes, message: str) -> None:
    """What they are is in the message."""
    assert refused(content).message == message


def test_numbers_in_binary_files_are_not_utf16() -> None:
    """Tables of small numbers have a zero in every other byte as well, but no characters beside them."""
    for order in "<>":
        content = struct.pack(f"{order}600H", *[1, 4, 7, 16, 65, 200] * 100)
        assert refused(content).message.startswith("this is a ")
        assert "UTF-16" not in refused(content).message


def test_cut_off_bytecode_of_an_export_is_named_with_what_is_missing() -> None:
    """The length before it says how much there was; one that makes no sense says nothing."""
    bytecode = b"ML\xefR\rStableHLO_v1.15.0\0" + bytes(range(60))
    tables = b"".join(number.to_bytes(4, "little") for number in range(16, 120, 4))
    whole = tables + len(bytecode).to_bytes(4, "little") + bytecode
    for missing in (1, 40, len(bytecode) - 4):
        error = refused(whole[:-missing])
        message = "this is a file cut off within its MLIR bytecode (of jax.export?), not HLO text"
        assert error.message == message
        there = len(bytecode) - missing
        assert error.notes == (
            f"the bytecode has {len(bytecode)} bytes, of which {there} are there",
        )
    senseless = tables + b"\xff\xff\xff\xff" + bytecode
    assert refused(senseless).message == "this is a binary file, not HLO text"

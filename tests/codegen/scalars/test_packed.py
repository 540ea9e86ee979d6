"""Packed elements in memory, and the block functions of random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars import literal, pack, store
from hloopt.codegen.types import elements_per_byte
from hloopt.interpret.bitcast import from_bytes, packed_bytes
from hloopt.kernel_ir.expressions import Array
from hloopt.kernel_ir.statements import Set
from hloopt.kernel_ir.types import BYTE, SBYTE
from hloopt.types import DTYPES, DType
from tests.codegen.scalars.device_code import Compiled
from tests.codegen.scalars.packed_bodies import PACKED

NAMES = [kind.name for kind in PACKED]


def test_the_packed_types() -> None:
    """Types of 4, 2 and 1 bits are packed."""
    assert NAMES == ["s1", "s2", "s4", "u1", "u2", "u4", "f4e2m1fn"]


@pytest.mark.parametrize("kind", PACKED, ids=NAMES)
def test_elements_are_taken_out_of_any_byte(kind: DType, device: Compiled) -> None:
    """The first element is the lowest; registers hold signed ones sign-extended, others with zeros above."""
    raw = np.arange(256, dtype=np.uint8)
    count = raw.size * elements_per_byte(kind)
    got = np.zeros(count, kind.numpy)
    device.run_body(f"unpack_{kind.name}", [raw, got], count)
    want = from_bytes(raw, kind, count)
    if kind.kind == "signed":
        want = want.astype(np.int8)
        got = got.view(np.int8)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", PACKED, ids=NAMES)
def test_a_byte_is_made_of_its_elements(kind: DType, device: Compiled) -> None:
    """What was taken apart is put together again, whatever the registers have above the element."""
    want = np.arange(256, dtype=np.uint8)
    elements = from_bytes(want, kind, 256 * elements_per_byte(kind))
    assert packed_bytes(elements, kind).tobytes() == want.tobytes()
    got = np.zeros(256, np.uint8)
    device.run_body(f"pack_{kind.name}", [elements, got], 256)
    assert got.tobytes() == want.tobytes()
    if kind.kind == "signed":
        extended = elements.astype(np.int8)
        device.run_body(f"pack_{kind.name}", [extended, got], 256)
        assert got.tobytes() == want.tobytes()


def test_elements_that_share_a_byte_are_not_stored_one_by_one() -> None:
    """A store of one packed element, too many elements of a byte, and none of them are refused."""
    s4 = DTYPES["s4"]
    with pytest.raises(ValueError, match="an element of s4 shares its byte"):
        store(Array("p", BYTE, (), "global"), 0, literal(1, s4), s4, Uses())
    with pytest.raises(ValueError, match="3 elements of s4 in a byte"):
        pack([literal(1, s4)] * 3, s4, Uses())
    with pytest.raises(ValueError, match="0 elements of s4 in a byte"):
        pack([], s4, Uses())
    with pytest.raises(ValueError, match="1 elements of s8 in a byte"):
        pack([literal(1, s4)], DTYPES["s8"], Uses())
    p = Array("p", SBYTE, (), "global")
    assert store(p, 3, literal(1, s4), DTYPES["s8"], Uses()) == [Set(p[3], literal(1, s4))]


# Known answers of Random123 (kat_vectors): counter and key to output.
_THREEFRY = (
    ("00000000 00000000", "00000000 00000000", "6b200159 99ba4efe"),
    ("ffffffff ffffffff", "ffffffff ffffffff", "1cb996fc bb002be7"),
    ("243f6a88 85a308d3", "13198a2e 03707344", "c4923a9c 483df7a0"),
)
_PHILOX = (
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
)


@pytest.mark.parametrize(
    ("name", "answers"), [("threefry2x32", _THREEFRY), ("philox4x32", _PHILOX)]
)
def test_random_blocks_are_those_of_random123(
    name: str, answers: tuple[tuple[str, str, str], ...], device: Compiled
) -> None:
    """The block functions of a key and a counter give Random123's known answers."""
    words = np.zeros((len(answers), 6), np.uint32)
    for row, (counter, key, _) in zip(words, answers, strict=True):
        given = [int(word, 16) for word in (*key.split(), *counter.split())]
        row[: len(given)] = given
    got = np.zeros((len(answers), 4), np.uint32)
    device.run_body(name, [words, got], len(answers))
    for row, (_, _, answer) in zip(got, answers, strict=True):
        want = [int(word, 16) for word in answer.split()]
        assert row[: len(want)].tolist() == want

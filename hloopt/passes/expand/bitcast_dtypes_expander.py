"""Conversions of bits between element types of unequal width, by shifts."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer, plain
from hloopt.types import DTYPES, ArrayShape, DType

__all__ = ["BitcastDtypesExpander"]


@dataclass(frozen=True)
class BitcastDtypesExpander(Expander):
    """Write ``bitcast-convert`` between types of unequal width as shifts of unsigned integers.

    To a narrower type: each word is repeated along the new last dimension, shifted right by the index
    there times the width, and cut off.  To a wider type: each part is widened and shifted left, and the
    parts of a word are folded by ``or``.  The lowest bits come first.

    Left alone: complex numbers, and types without an unsigned integer of their width.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"bitcast-convert"})
    example: ClassVar[str] = """\
HloModule bytes

ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT y = u8[8,4]{1,0} bitcast-convert(x)
}
"""

    def is_candidate(self, instruction: Instruction) -> bool:
        """Conversions that change the width."""
        if instruction.opcode != "bitcast-convert":
            return False
        source, result = instruction.operands[0].shape, instruction.shape
        assert isinstance(source, ArrayShape)
        assert isinstance(result, ArrayShape)
        return source.dtype.bits != result.dtype.bits

    def obstacle(self, instruction: Instruction) -> str | None:
        """Types whose bits no unsigned integer holds."""
        for kind in (instruction.operands[0].array.dtype, instruction.array.dtype):
            if kind.is_complex or f"u{kind.bits}" not in DTYPES:
                return f"no unsigned integer has the bits of {kind.name}"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Take words apart, or put them together."""
        x, result = write.term(instruction.operands[0]), instruction.array
        if x.dtype.bits > result.dtype.bits:
            return _parts(x, result)
        return _words(x, result)


def _unsigned(kind: DType) -> DType:
    return DTYPES[f"u{kind.bits}"]


def _bits(x: Term) -> Term:
    return x.convert("u8") if x.dtype.is_pred else x.bits_as(_unsigned(x.dtype))


def _typed(bits: Term, kind: DType) -> Term:
    return bits.differs(0) if kind.is_pred else bits.bits_as(kind)


def _parts(x: Term, result: ArrayShape) -> Term:
    word, part = _unsigned(x.dtype), _unsigned(result.dtype)
    shape = plain(result, word)
    words = _bits(x).broadcast(shape, *range(len(x.dims)))
    places = x.writer.iota(shape, result.rank - 1) * part.bits
    return _typed((words >> places).convert(part), result.dtype)


def _words(x: Term, result: ArrayShape) -> Term:
    word, part = _unsigned(result.dtype), _unsigned(x.dtype)
    bits = _bits(x).convert(word)
    places = x.writer.iota(bits.shape, len(x.dims) - 1) * part.bits
    return _typed((bits << places).reduce("or", 0, len(x.dims) - 1), result.dtype)

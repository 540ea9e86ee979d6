"""Stable sorts as sorts whose comparator breaks ties by position."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.passes.call_inliner import inline_call
from hloopt.passes.expand.computations import region
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer, plain
from hloopt.types import TupleShape, array, dtype

__all__ = ["StableSortExpander"]

_S32 = dtype("s32")
_MOST = 2**31 - 1


@dataclass(frozen=True)
class StableSortExpander(Expander):
    """Sort positions along, and let them decide where the comparator finds no order.

    The positions are an s32 iota along the sorted dimension: one of the operands where there is one, else
    another operand, whose result is unused.  Elements stay in the order a stable sort has for them, so
    that results are the same to the last bit; the sort need not be stable any more.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"sort"})
    example: ClassVar[str] = """\
HloModule ties

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} sort(x), dimensions={0}, is_stable=true, to_apply=less
}
"""

    def is_candidate(self, instruction: Instruction) -> bool:
        """Sorts that are to be stable."""
        return instruction.opcode == "sort" and bool(instruction.attributes.get("is_stable"))

    def obstacle(self, instruction: Instruction) -> str | None:
        """More elements than s32 counts."""
        size = instruction.operands[0].array.dims[instruction.dimensions[0]]
        return f"s32 does not count to {size}" if size > _MOST else None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """The sort with positions."""
        axis = instruction.dimensions[0]
        operands = [write.term(operand) for operand in instruction.operands]
        count = len(operands)
        place = next((at for at, term in enumerate(operands) if _counts(term, axis)), count)
        if place == count:
            operands.append(write.iota(plain(operands[0].shape, _S32), axis))
        shapes = tuple(term.shape for term in operands)
        ordered = write.make(
            "sort",
            *operands,
            shape=TupleShape(shapes) if len(shapes) > 1 else shapes[0],
            dimensions=(axis,),
            to_apply=_with_ties(write, instruction.to_apply, operands, place),
        )
        if place < count:
            return ordered
        parts = [ordered.part(at) for at in range(count)]
        return write.pack(*parts) if count > 1 else parts[0]


def _counts(term: Term, axis: int) -> bool:
    made = term.instruction
    return made.opcode == "iota" and made.iota_dimension == axis and made.array.dtype is _S32


def _with_ties(
    write: Writer, comparator: Computation, operands: list[Term], place: int
) -> Computation:
    """A comparator that compares both ways round: what compares alike is in order of its positions."""
    scalars = [array(term.dtype) for term in operands for _ in range(2)]
    inner = region(write, comparator.name, *scalars)
    pairs = list(zip(inner.parameters[::2], inner.parameters[1::2], strict=True))
    asked = len(comparator.parameters) // 2
    before, after = (
        inner.make("call", *arguments, to_apply=comparator)
        for arguments in (
            [term for left, right in pairs[:asked] for term in (left, right)],
            [term for left, right in pairs[:asked] for term in (right, left)],
        )
    )
    left, right = pairs[place]
    made = inner.finish(before.equals(after).select(left < right, before))
    for call in (before, after):
        inline_call(call.instruction, write.module)
    return made

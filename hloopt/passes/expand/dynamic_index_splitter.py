"""Start indices as scalars."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["DynamicIndexSplitter"]

_FIRST_INDEX = {"dynamic-slice": 1, "dynamic-update-slice": 2}


@dataclass(frozen=True)
class DynamicIndexSplitter(Expander):
    """Give ``dynamic-slice`` and ``dynamic-update-slice`` a scalar start for each dimension.

    Older modules have one vector with all of them; its elements are sliced out.  An array without
    dimensions has no start: it is the slice, and the update the result.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset(_FIRST_INDEX)
    example: ClassVar[str] = """\
HloModule vector

ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  start = s32[2]{0} parameter(1)
  ROOT y = f32[1,8]{1,0} dynamic-slice(x, start), dynamic_slice_sizes={1,8}
}
"""

    def is_candidate(self, instruction: Instruction) -> bool:
        """Ops whose start is a vector."""
        first = _FIRST_INDEX.get(instruction.opcode)
        starts = instruction.operands[first:] if first is not None else ()
        return len(starts) == 1 and bool(starts[0].array.dims)

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """The same op, each start by itself."""
        first = _FIRST_INDEX[instruction.opcode]
        *inputs, starts = (write.term(operand) for operand in instruction.operands)
        count = starts.dims[0]
        if not count:
            return inputs[first - 1]
        scalars = [starts.element(index) for index in range(count)]
        return write.make(
            instruction.opcode,
            *inputs,
            *scalars,
            shape=instruction.shape,
            **_own(instruction),
        )


def _own(instruction: Instruction) -> dict[str, object]:
    sizes = instruction.attributes.get("dynamic_slice_sizes")
    return {} if sizes is None else {"dynamic_slice_sizes": sizes}

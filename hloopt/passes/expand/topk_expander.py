"""The k largest by sorting."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.interpret import custom_calls
from hloopt.ir import Computation, Instruction
from hloopt.passes.expand.computations import region
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer, plain
from hloopt.types import ArrayShape, DType, TupleShape, array, dtype

__all__ = ["TopkExpander"]

_S32 = dtype("s32")


@dataclass(frozen=True)
class TopkExpander(Expander):
    """Write ``topk`` and the custom call ``TopK`` as a stable sort of values and indices, and two slices.

    Floats are compared in their total order and equal elements stay in theirs, so that values and indices
    are the same to the last bit.  The call does not use its comparator: it is of the largest.  A call with
    side effects stays.

    library  whether to leave what XLA has a kernel for: at most 16 of 1,024 elements or more, of f32 or bf16,
             in one or two dimensions
    most     elements of a row: what is of longer ones stays; 0 for no limit
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"topk", "custom-call"})
    example: ClassVar[str] = """\
HloModule largest

ENTRY main {
  x = f32[4,9]{1,0} parameter(0)
  ROOT r = (f32[4,3]{1,0}, s32[4,3]{1,0}) topk(x), k=3, largest=true
}
"""

    library: bool = False
    most: int = 0

    def is_candidate(self, instruction: Instruction) -> bool:
        """The op, and calls of that target."""
        if not _is_topk(instruction) or (self.library and _has_kernel(instruction)):
            return False
        source = instruction.operands[0].shape if instruction.operands else None
        is_long = isinstance(source, ArrayShape) and source.rank > 0 and source.dims[-1] > self.most
        return not (self.most and is_long)

    def step(self, instruction: Instruction) -> str:
        """The op or the call."""
        return "expand TopK" if instruction.opcode == "custom-call" else "expand topk"

    def obstacle(self, instruction: Instruction) -> str | None:
        """Calls that do more, or something else; numbers without an order."""
        if instruction.opcode == "custom-call":
            if instruction.attributes.get("custom_call_has_side_effect"):
                return "the call has custom_call_has_side_effect"
            problem = custom_calls.CUSTOM_CHECKS["TopK"](instruction)
            if problem is not None:
                return problem
        if instruction.operands[0].array.dtype.is_complex:
            return "complex numbers have no order"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Sort along the last dimension, and keep the beginning."""
        x, result = write.term(instruction.operands[0]), instruction.shape
        assert isinstance(result, TupleShape)
        values, _ = result.elements
        assert isinstance(values, ArrayShape)
        axis, count = len(x.dims) - 1, values.dims[-1]
        places = write.iota(plain(x.shape, _S32), axis)
        largest = bool(instruction.attributes.get("largest", True))
        ordered = write.make(
            "sort",
            x,
            places,
            shape=TupleShape((plain(x.shape), places.shape)),
            dimensions=(axis,),
            is_stable=True,
            to_apply=_comparator(write, x.dtype, "GT" if largest else "LT"),
        )
        kept = [(0, size) for size in (*x.dims[:-1], count)]
        parts = (ordered.part(index).slice(*kept) for index in range(2))
        return write.pack(*map(write.fitted, parts, result.elements))


def _has_kernel(instruction: Instruction) -> bool:
    if len(instruction.operands) != 1:
        return False
    source, result = instruction.operands[0].shape, instruction.shape
    values = result.elements[0] if isinstance(result, TupleShape) and result.elements else None
    if not isinstance(source, ArrayShape) or not isinstance(values, ArrayShape):
        return False
    if source.dtype.name not in ("f32", "bf16") or not 1 <= values.rank == source.rank <= 2:
        return False
    return values.dims[-1] <= 16 and source.dims[-1] >= 1024


def _is_topk(instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.custom_call_target == "TopK"
    return instruction.opcode == "topk"


def _comparator(write: Writer, kind: DType, direction: str) -> Computation:
    """Whether the first of two values compares so with the second; their indices are ignored."""
    value, index = array(kind), array(_S32)
    inner = region(write, "comparator", value, value, index, index)
    first, second, *_ = inner.parameters
    order = {"type": "TOTALORDER"} if kind.is_float else {}
    return inner.finish(first.binary("compare", second, direction=direction, **order))

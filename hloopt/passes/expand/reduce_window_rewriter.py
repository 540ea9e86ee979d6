"""Running reductions in blocks."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import IDEMPOTENT
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.regions import is_exact, is_identity, named_combiner
from hloopt.types import RunningDim, Window, WindowDim

__all__ = ["ReduceWindowRewriter"]


@dataclass(frozen=True)
class ReduceWindowRewriter(Expander):
    """Compute a running sum, product, maximum ... in blocks: n * block steps instead of n * n.

    A ``reduce-window`` whose window is as long as the dimension and begins (or ends) at each element:

    1. pad the dimension of n elements to whole blocks, and reshape to [..., n / block, block];
    2. a running reduction within each block;
    3. the blocks' last elements, reduced in the same way (by this rule again where they are many);
    4. every element of a block combined with what the blocks before it come to; the padding cut off.

    f32[64] with blocks of 16: 64 * 16 + 4 * 4 + 64 steps instead of 64 * 64.  Sums and products of floats
    are added up in another order, which needs ``fast_math``; maxima, and all of integers, keep every bit.
    Left out: windows over several operands, and initial values that are not the identity of the reduction.

    block       elements of a block
    fast_math   whether to rewrite floating-point sums and products
    above       elements up to which a dimension is left as it is
    narrow      with ``fast_math``, whether to do so for floats narrower than f32: each block is rounded
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"reduce-window"})
    example: ClassVar[str] = """\
HloModule running

max { a = s32[] parameter(0) b = s32[] parameter(1) ROOT m = s32[] maximum(a, b) }

ENTRY main {
  x = s32[64] parameter(0)
  lowest = s32[] constant(-2147483648)
  ROOT r = s32[64] reduce-window(x, lowest), window={size=64 pad=63_0}, to_apply=max
}
"""

    block: int = 16
    fast_math: bool = False
    above: int = 0
    narrow: bool = True

    def __post_init__(self) -> None:
        if self.block < 2:
            raise UsageError(f"{self.name}{{block={self.block}}}: a block has at least 2 elements")

    def is_candidate(self, instruction: Instruction) -> bool:
        """Running reductions of one operand that are longer than a block."""
        if instruction.opcode != "reduce-window" or not instruction.is_array:
            return False
        found = _running(instruction)
        longest = max(self.block, self.above)
        return found is not None and instruction.array.dims[found.axis] > longest

    def step(self, instruction: Instruction) -> str:
        """The same for all."""
        return "reduce in blocks"

    def obstacle(self, instruction: Instruction) -> str | None:
        """A reduction that may not be regrouped, or an initial value that comes in more often."""
        opcode = named_combiner(instruction.to_apply)
        if not opcode:
            return "the region is not one associative op of its two parameters"
        shape = instruction.array
        if not is_exact(opcode, shape) and not self.fast_math:
            return f"{opcode} of {shape.dtype} rounds by its order, which needs fast_math"
        if not is_exact(opcode, shape) and shape.dtype.is_narrow_float and not self.narrow:
            return f"{opcode} of {shape.dtype} would round each block"
        if opcode not in IDEMPOTENT and not is_identity(opcode, instruction.operands[1]):
            return f"the initial value is not the identity of {opcode}, and would be combined once per block"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Write the blocks."""
        source, init = (write.term(operand) for operand in instruction.operands)
        region = instruction.to_apply
        found = _running(instruction)
        assert found is not None
        scan = _Scan(write, init, region, found.reverse, self.block)
        return scan.running(source, found.axis)


def _running(instruction: Instruction) -> RunningDim | None:
    """None for windows longer than the dimension, too, as in XLA."""
    dims, window = instruction.operands[0].array.dims, instruction.window
    found = window.running(dims)
    return found if found is not None and window.dims[found.axis].size == dims[found.axis] else None


@dataclass(frozen=True)
class _Scan:
    """Writes running reductions of one kind."""

    write: Writer
    init: Term
    region: Computation
    reverse: bool
    block: int

    def running(self, source: Term, dimension: int) -> Term:
        """The running reduction of ``source`` along a dimension."""
        length = source.dims[dimension]
        if length <= self.block:
            return self.window(source, dimension)
        count = -(-length // self.block)
        padded = self.padded(source, dimension, 0, count * self.block - length)
        before, after = source.dims[:dimension], source.dims[dimension + 1 :]
        within = self.window(padded.reshape(*before, count, self.block, *after), dimension + 1)
        last = 0 if self.reverse else self.block - 1
        totals = self.cut(within, dimension + 1, last, last + 1).reshape(*before, count, *after)
        others = self.shifted(self.running(totals, dimension), dimension)
        kept = [axis for axis in range(len(within.dims)) if axis != dimension + 1]
        whole = within.binary(
            named_combiner(self.region), others.broadcast(within.shape, *kept)
        ).reshape(*padded.dims)
        return self.cut(whole, dimension, 0, length)

    def shifted(self, totals: Term, dimension: int) -> Term:
        """What comes before each block: the totals moved on by one, the initial value at the open end."""
        count = totals.dims[dimension]
        if self.reverse:
            return self.padded(self.cut(totals, dimension, 1, count), dimension, 0, 1)
        return self.padded(self.cut(totals, dimension, 0, count - 1), dimension, 1, 0)

    def window(self, source: Term, dimension: int) -> Term:
        """One ``reduce-window`` over all of a dimension."""
        reach = source.dims[dimension] - 1
        low, high = (0, reach) if self.reverse else (reach, 0)
        dims = [WindowDim(1)] * len(source.dims)
        dims[dimension] = WindowDim(reach + 1, 1, low, high)
        return self.write.make(
            "reduce-window", source, self.init, window=Window(tuple(dims)), to_apply=self.region
        )

    def padded(self, source: Term, dimension: int, low: int, high: int) -> Term:
        """The initial value put before and behind."""
        if not low and not high:
            return source
        amounts = [(0, 0)] * len(source.dims)
        amounts[dimension] = (low, high)
        return source.pad(self.init, *amounts)

    def cut(self, source: Term, dimension: int, start: int, limit: int) -> Term:
        """From start to limit along one dimension."""
        ranges: list[tuple[int, int] | None] = [None] * len(source.dims)
        ranges[dimension] = (start, limit)
        return source.slice(*ranges)

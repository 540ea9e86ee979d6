"""Running reductions in blocks."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.reducer import reducer_of
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import IDEMPOTENT
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.regions import is_exact, is_identity, is_liftable, lifted, named_combiner
from hloopt.rewrite.site import Site
from hloopt.types import RunningDim, Window, WindowDim

__all__ = ["ReduceWindowRewriter"]

_NUMBERS: Final = (-37, -2, -1, 0, 1, 3, 20, 100)
"""Which initial values are combined with, to see whether they are neutral; they are those of every type."""


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
    Regions of several ops (``jax.lax.cumlogsumexp``) need it too.  Left out: windows over several operands, and
    initial values that are not the identity of the reduction.

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
        shape = instruction.array
        if not is_exact(opcode, shape) and shape.dtype.is_narrow_float and not self.narrow:
            return f"{opcode or 'a region'} of {shape.dtype} would round each block"
        if not opcode:
            return self._obstacle_of_region(instruction)
        if not is_exact(opcode, shape) and not self.fast_math:
            return f"{opcode} of {shape.dtype} rounds by its order, which needs fast_math"
        if opcode not in IDEMPOTENT and not is_identity(opcode, instruction.operands[1]):
            return f"the initial value is not the identity of {opcode}, and would be combined once per block"
        return None

    def _obstacle_of_region(self, instruction: Instruction) -> str | None:
        """Of a region of several ops, as logaddexp; of one that is not associative no result is defined."""
        if not self.fast_math or not is_liftable(instruction.to_apply, instruction.operands):
            return "the region is not one associative op of its two parameters"
        if not _is_neutral(instruction):
            return "the initial value may not be neutral, and would be combined once per block"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Write the blocks."""
        source, init = (write.term(operand) for operand in instruction.operands)
        region = instruction.to_apply
        found = _running(instruction)
        assert found is not None
        site = Site(instruction)
        scan = _Scan(write, site, init, region, found.reverse, self.block)
        return scan.running(source, found.axis)


def _is_neutral(instruction: Instruction) -> bool:
    """Whether a known initial value changes no number that it is combined with; some are tried."""
    init = instruction.operands[1].literal
    if init is None or init.array is None:
        return False
    numbers = np.array(_NUMBERS).astype(init.array.dtype)
    context = Interpreter(instruction.module, EVALUATORS)
    reducer = reducer_of(instruction.to_apply, context)
    first = np.broadcast_to(init.array, numbers.shape)
    with np.errstate(all="ignore"):
        (found,) = reducer.apply([first], [numbers])
    return bool(np.array_equal(found, numbers))


def _running(instruction: Instruction) -> RunningDim | None:
    """None for windows longer than the dimension, too, as in XLA."""
    dims, window = instruction.operands[0].array.dims, instruction.window
    found = window.running(dims)
    return found if found is not None and window.dims[found.axis].size == dims[found.axis] else None


@dataclass(frozen=True)
class _Scan:
    """Writes running reductions of one kind."""

    write: Writer
    site: Site
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
        whole = self.combined(others.broadcast(within.shape, *kept), within).reshape(*padded.dims)
        return self.cut(whole, dimension, 0, length)

    def combined(self, others: Term, within: Term) -> Term:
        """What the blocks before (or behind) come to with what is within a block, in the order of elements."""
        opcode = named_combiner(self.region)
        if opcode:
            return within.binary(opcode, others)
        pair = (within, others) if self.reverse else (others, within)
        operands = [one.instruction for one in pair]
        (made,) = lifted(self.region, operands, within.shape, self.site)
        self.write.made += self.site.created
        self.site.created.clear()
        return self.write.term(made)

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

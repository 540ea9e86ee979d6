"""Reductions over dimensions that lie apart, or of more than rows, one dimension after the other."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.reduction import is_unnested
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.passes.reductions import plain_reduces, regrouping_obstacle
from hloopt.rewrite import Pass, PassLog, own_attributes
from hloopt.rewrite.site import Site
from hloopt.targets import find_target
from hloopt.types import Dims

__all__ = ["ReductionSplitter"]

_STEP = "reduce one dimension first"
_ROWS = "reduce rows first"
_MOST_LOOKED_AT = 64


@dataclass(frozen=True)
class ReductionSplitter(Pass):
    """Reduce the largest dimension first where no tiled kernel reduces all at once.

        reduce(a[i,j,k,l]) over j and l    =>    reduce(reduce(a) over the larger), over the other

    A kernel by tiles takes rows, columns and batches of rows; other reductions are a loop for each result.
    As XLA does, for reductions of one array.  The elements are combined in another order: sums of floats
    need ``fast_math``.

    With ``rows`` also what is reduced of more than rows and computed from a reduction of the same rows, as in
    the mean of a cross-entropy: ``row-fusion`` then has all of a row in one kernel, and few numbers are left.

    fast_math   whether to cut sums and products of floats and complex numbers as well
    rows        whether to reduce rows first that are reduced before
    target      the device; one without blocks and threads has no such tiles, and is left alone
    """

    example: ClassVar[str] = """HloModule example

add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b)
}

ENTRY main {
  x = s32[4,64,3,48]{3,2,1,0} parameter(0)
  z = s32[] constant(0)
  ROOT r = s32[4,3]{1,0} reduce(x, z), dimensions={1,3}, to_apply=add
}
"""

    fast_math: bool = False
    rows: bool = False
    target: str = "h200"

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each reduce, and at what becomes of it."""
        changed = False
        if not find_target(self.target).has_threads:
            return changed
        for reduce in plain_reduces(module):
            rest = reduce
            while step := self.step(rest):
                name, first, why = step
                if words := regrouping_obstacle(rest, self.fast_math):
                    log.miss(name, rest, words)
                    break
                if not log.allows():
                    return changed
                log.hit(name, rest, why)
                rest = _split(rest, first)
                changed = True
        return changed

    def step(self, reduce: Instruction) -> tuple[str, Dims, str] | None:
        """What to do, the dimensions to reduce first, and why."""
        if self.wants(reduce):
            sizes = reduce.operands[0].array.dims
            largest = max(sorted(reduce.dimensions), key=lambda dim: sizes[dim])
            return _STEP, (largest,), f"dimension {largest} of {sizes[largest]} elements"
        if self.rows and len(reduce.operands) == 2 and (known := _reduced_rows(reduce)):
            dims = tuple(sorted(known.dimensions))
            return _ROWS, dims, f"{known.name} reduces the same rows"
        return None

    def wants(self, reduce: Instruction) -> bool:
        """Whether several dimensions of one array are reduced, by a loop for each result."""
        several = len(reduce.dimensions) > 1
        return several and len(reduce.operands) == 2 and not is_unnested(reduce)


def _reduced_rows(reduce: Instruction) -> Instruction | None:
    """A reduction of the last dimensions, and of no others, from which what is reduced here is computed."""
    whole = reduce.operands[0].array.dims
    pending, seen = [reduce.operands[0]], set[Instruction]()
    while pending and len(seen) < _MOST_LOOKED_AT:
        one = pending.pop()
        if one in seen or not one.is_array:
            continue
        seen.add(one)
        if one.op.is_elementwise or one.opcode == "broadcast":
            pending += one.operands
        elif one.opcode == "reduce" and one.operands[0].array.dims == whole:
            rows, rank = set(one.dimensions), len(whole)
            if rows < set(reduce.dimensions) and min(rows) == rank - len(rows):
                return one
    return None


def _split(reduce: Instruction, largest: Dims) -> Instruction:
    """Two reduces in the place of one, of some dimensions and of the others; the second of them."""
    source, init = reduce.operands
    site, attributes = Site(reduce), own_attributes(reduce)
    first = site.make("reduce", source, init, **(attributes | {"dimensions": largest}))
    rest = tuple(
        dim - sum(gone < dim for gone in largest)
        for dim in sorted(reduce.dimensions)
        if dim not in largest
    )
    second = site.make("reduce", first, init, **(attributes | {"dimensions": rest}))
    site.replace(second)
    return second

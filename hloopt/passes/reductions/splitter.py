"""Reductions over dimensions that lie apart, one dimension after the other."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.reduction import is_unnested
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.passes.reductions import plain_reduces, regrouping_obstacle
from hloopt.rewrite import Pass, PassLog, own_attributes
from hloopt.rewrite.site import Site
from hloopt.targets import find_target

__all__ = ["ReductionSplitter"]

_STEP = "reduce one dimension first"


@dataclass(frozen=True)
class ReductionSplitter(Pass):
    """Reduce the largest dimension first where no tiled kernel reduces all at once.

        reduce(a[i,j,k,l]) over j and l    =>    reduce(reduce(a) over the larger), over the other

    A kernel by tiles takes rows, columns and batches of rows; other reductions are a loop for each result.
    As XLA does, for reductions of one array.  The elements are combined in another order: sums of floats
    need ``fast_math``.

    fast_math   whether to cut sums and products of floats and complex numbers as well
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
    target: str = "h200"

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each reduce, and at what becomes of it."""
        changed = False
        if not find_target(self.target).has_threads:
            return changed
        for reduce in plain_reduces(module):
            rest: Instruction | None = reduce
            while rest is not None and self.wants(rest):
                if words := regrouping_obstacle(rest, self.fast_math):
                    log.miss(_STEP, rest, words)
                    break
                if not log.allows():
                    return changed
                rest = _split(rest, log)
                changed = True
        return changed

    def wants(self, reduce: Instruction) -> bool:
        """Whether several dimensions of one array are reduced, by a loop for each result."""
        several = len(reduce.dimensions) > 1
        return several and len(reduce.operands) == 2 and not is_unnested(reduce)


def _split(reduce: Instruction, log: PassLog) -> Instruction:
    """Two reduces in the place of one; the second of them."""
    source, init = reduce.operands
    dimensions = sorted(reduce.dimensions)
    largest = max(dimensions, key=lambda dim: source.array.dims[dim])
    log.hit(_STEP, reduce, f"dimension {largest} of {source.array.dims[largest]} elements")
    site, attributes = Site(reduce), own_attributes(reduce)
    first = site.make("reduce", source, init, **(attributes | {"dimensions": (largest,)}))
    rest = tuple(dim - (dim > largest) for dim in dimensions if dim != largest)
    second = site.make("reduce", first, init, **(attributes | {"dimensions": rest}))
    site.replace(second)
    return second

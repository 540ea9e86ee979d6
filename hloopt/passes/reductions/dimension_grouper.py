"""Reduced dimensions that lie side by side in memory as one."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, edit
from hloopt.passes.reductions import plain_reduces
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, SitePass, row_major

__all__ = ["ReductionDimensionGrouper"]


@dataclass(frozen=True)
class ReductionDimensionGrouper(SitePass):
    """Reduce neighbouring dimensions as one.

        reduce(a[..,m,n,..]), both reduced    =>    reduce(reshape(a)[..,m*n,..])

    What cuts reductions by sizes then sees those of memory.  Left alone: arrays that are not row-major,
    sizes known at run time only, and bodies of fusions.
    """

    example: ClassVar[str] = """HloModule example

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[4,6,8]{2,1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[4]{0} reduce(x, z), dimensions={1,2}, to_apply=add
}
"""

    def sites(self, module: Module) -> Iterable[Instruction]:
        """The reduces of row-major arrays."""
        return plain_reduces(module)

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Group the dimensions of one reduce."""
        dims = instruction.operands[0].array.dims
        runs = _runs(len(dims), frozenset(instruction.dimensions))
        if len(runs) == len(dims):
            return False
        log.hit("group reduced dimensions", instruction, f"{len(dims)} dimensions as {len(runs)}")
        _group(instruction, runs)
        return True


def _runs(rank: int, reduced: frozenset[int]) -> list[range]:
    """Dimensions that become one."""
    found: list[range] = []
    for dim in range(rank):
        if found and dim in reduced and dim - 1 in reduced:
            found[-1] = range(found[-1].start, dim + 1)
        else:
            found.append(range(dim, dim + 1))
    return found


def _group(reduce: Instruction, runs: list[range]) -> None:
    site = Site(reduce)
    for number in range(len(reduce.operands) // 2):
        shape = reduce.operands[number].array
        dims = tuple(prod(shape.dims[run.start : run.stop]) for run in runs)
        edit.set_operand(
            reduce, number, site.reshape(reduce.operands[number], row_major(shape, dims))
        )
    reduced = frozenset(reduce.dimensions)
    dimensions = tuple(at for at, run in enumerate(runs) if run.start in reduced)
    edit.set_attribute(reduce, "dimensions", dimensions)

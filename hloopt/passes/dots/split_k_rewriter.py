"""Long contractions of dots in parts."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.analysis.emitters.dots import accumulator_type, split_k
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite import PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.targets import find_target
from hloopt.types import Dims, DotDims, PaddingDim

__all__ = ["SplitKRewriter"]

_STEP = "dot => reduce(dot)"


@dataclass(frozen=True)
class SplitKRewriter(SitePass):
    """Contract a long dimension in parts, as a batch, and add them up.

        dot(a[m,k], b[k,n])    =>    reduce(dot(reshape(a)[m,s,k/s], reshape(b)[s,k/s,n])) over s

    A dot with few results and a long contraction keeps few cores of a device busy.  Cut into as many parts
    (a power of two) as XLA estimates best for the device, second kernel included; the dimension is padded
    with zeros so that each part is a multiple of 128 bits.  Parts of bf16, f16 and narrower floats are f32, and
    their sum is rounded once.  The products of floats are added in another order, which needs ``fast_math``.

    target      the device
    fast_math   whether to cut dots of floats and complex numbers as well
    """

    name: ClassVar[str] = "splitk-rewriter"
    opcode: ClassVar[str] = "dot"
    example: ClassVar[str] = """HloModule long_contraction

ENTRY main {
  a = s8[16,4096]{1,0} parameter(0)
  b = s8[4096,16]{1,0} parameter(1)
  ROOT r = s32[16,16]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    target: str = "h200"
    fast_math: bool = False

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Split one dot, where the device gains by it."""
        parts, padding = split_k(instruction, find_target(self.target))
        if parts == 1:
            return False
        kind = instruction.array.dtype
        if not kind.is_integer and not self.fast_math:
            log.miss(_STEP, instruction, f"sums of {kind.name} round by their order")
            return False
        log.hit(_STEP, instruction, f"in {parts} parts")
        _split(instruction, parts, padding)
        return True


def _split(dot: Instruction, parts: int, padding: int) -> None:
    site, dims = Site(dot), DotDims.of(dot.attributes)
    (left,), (right,) = dims.lhs_contracting, dims.rhs_contracting
    # The parts are a batch dimension at the place where the left side has them, in both.
    place = sum(dim < left for dim in dims.lhs_batch)
    new = replace(
        dims,
        lhs_batch=_with(dims.lhs_batch, left, place),
        rhs_batch=_with(dims.rhs_batch, right, place),
        lhs_contracting=(left + 1,),
        rhs_contracting=(right + 1,),
    )
    sides = tuple(
        _cut(site, operand, dim, parts, padding)
        for operand, dim in zip(dot.operands, (left, right), strict=True)
    )
    result = dot.array
    kind = accumulator_type(dot)
    shape = row_major(result.with_dtype(kind), (*result.dims[:place], parts, *result.dims[place:]))
    computed = site.make("dot", *sides, shape=shape, **dot_attributes(dot, new))
    region = combiner_computation(dot.module, "add", kind.name)
    zero = site.scalar(kind.name, 0)
    reduced = site.make("reduce", computed, zero, dimensions=(place,), to_apply=region)
    if kind is not result.dtype:
        reduced = site.make("convert", reduced, shape=result)
    site.replace(reduced)


def _with(batch: Dims, cut: int, place: int) -> Dims:
    """The batch dimensions of a side whose dimension ``cut`` has become two, the first of them included."""
    moved = [dim + (dim > cut) for dim in batch]
    return (*moved[:place], cut, *moved[place:])


def _cut(site: Site, operand: Instruction, dim: int, parts: int, padding: int) -> Instruction:
    """``dim`` as so many parts and their length, padded with zeros."""
    dims = list(operand.array.dims)
    if padding:
        dims[dim] += padding
        amounts = tuple(PaddingDim(0, padding * (at == dim)) for at in range(len(dims)))
        zero = site.scalar(operand.array.dtype.name, 0)
        shape = row_major(operand.array, tuple(dims))
        operand = site.make("pad", operand, zero, shape=shape, padding=amounts)
    dims[dim : dim + 1] = [parts, dims[dim] // parts]
    return site.reshape(operand, row_major(operand.array, tuple(dims)))

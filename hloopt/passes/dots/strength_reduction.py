"""Dots of vectors as products and sums."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.rewrite import PassLog
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.targets import find_target
from hloopt.types import DTYPES, ArrayShape, DotDims, DType

__all__ = ["DotStrengthReduction", "as_reduction"]

_RULE = "dot => reduce(multiply)"


@dataclass(frozen=True)
class DotStrengthReduction(SitePass):
    """Compute dots with a vector on a side by multiply and reduce, which fuse with what is around them.

        dot(a, v)    =>    reduce(multiply(a, broadcast(v)), 0), to_apply=add

    A side is a vector when it has batch and contracting dimensions alone.  Taken are dots of two vectors,
    and those whose (M + N) * K is at most ``max_work``; and every dot that contracts nothing, whose
    elements are single products.  Integers come out the same.  The sums of a dot of floats begin with +0
    and are made in an order and a precision of the executor's choice: those need ``fast_math``.  Narrow
    floats are multiplied and added in f32 and rounded once.

    fast_math   whether to take dots of floats and complex numbers as well
    max_work    the most (M + N) * K of a dot with one vector
    target      the device; dots for one without blocks and threads, which run in a library, stay as they are
    """

    opcode: ClassVar[str] = "dot"
    example: ClassVar[str] = """HloModule matrix_times_vector

ENTRY main {
  a = s32[8,16]{1,0} parameter(0)
  v = s32[16]{0} parameter(1)
  ROOT r = s32[8]{0} dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    fast_math: bool = False
    max_work: int = 10_000_000
    target: str = "h200"

    def __post_init__(self) -> None:
        if self.max_work < 0:
            raise UsageError(f"{self.name}: max_work must be non-negative, got {self.max_work}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each dot once."""
        return find_target(self.target).has_threads and super().run(module, log)

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Replace one dot that is small and exact enough."""
        if not self.takes(instruction, log):
            return False
        reason, otherwise = self.why(instruction)
        log.hit(_RULE, instruction, reason, otherwise=otherwise)
        as_reduction(instruction)
        return True

    def takes(self, dot: Instruction, log: PassLog) -> bool:
        """Whether the dot is small and exact enough."""
        dims = DotDims.of(dot.attributes)
        left, right = _vectors(dot, dims)
        if dims.lhs_contracting and not (left or right):
            return False
        work = _work(dot, dims)
        if dims.lhs_contracting and not (left and right) and work > self.max_work:
            log.miss(
                _RULE,
                dot,
                f"(M + N) * K = {work} is more than max_work={self.max_work}",
            )
            return False
        if not dot.array.dtype.is_integer and not self.fast_math:
            log.miss(_RULE, dot, f"sums of {dot.array.dtype.name} round")
            return False
        return dot.array.dtype.kind != "pred" and _reaches(dot)

    def why(self, dot: Instruction) -> tuple[str, tuple[str, ...]]:
        """Why a dot was taken, and which options would have left it."""
        dims = DotDims.of(dot.attributes)
        left, right = _vectors(dot, dims)
        exact = dot.array.dtype.is_integer
        otherwise = () if exact else ("fast_math=false",)
        if not dims.lhs_contracting:
            return "it contracts nothing", otherwise
        if left and right:
            return "both sides are vectors", otherwise
        work = _work(dot, dims)
        reason = f"one side is a vector, (M + N) * K = {work} is at most max_work={self.max_work}"
        return reason, ((f"max_work={work - 1}",) if work else ()) + otherwise


def _vectors(dot: Instruction, dims: DotDims) -> tuple[bool, bool]:
    """Whether each side has batch and contracting dimensions alone, but for some of one element."""
    lhs, rhs = (operand.array for operand in dot.operands)
    left = dims.lhs_free(lhs.rank)
    right = dims.rhs_free(rhs.rank)
    return all(lhs.dims[dim] == 1 for dim in left), all(rhs.dims[dim] == 1 for dim in right)


def _work(dot: Instruction, dims: DotDims) -> int:
    """``(M + N) * K``."""
    lhs, rhs = (operand.array for operand in dot.operands)
    rows = prod(lhs.dims[dim] for dim in dims.lhs_free(lhs.rank))
    columns = prod(rhs.dims[dim] for dim in dims.rhs_free(rhs.rank))
    return (rows + columns) * prod(lhs.dims[dim] for dim in dims.lhs_contracting)


def _reaches(dot: Instruction) -> bool:
    """Whether the result's type can stand for the type the sums are made in."""
    result = dot.array.dtype
    sources = [operand.array.dtype for operand in dot.operands]
    if result.is_integer:
        return all(source.is_integer and source.bits <= result.bits for source in sources)
    return all(source.kind == result.kind and source.bits <= result.bits for source in sources)


def as_reduction(dot: Instruction, *, as_written: bool = False) -> None:
    """Replace a dot by a multiply and a reduce; narrow floats are multiplied and added in f32, then rounded.

    The product is ``[batch, left, right, contracted]``, as XLA has it; ``as_written`` by users it has the
    dimensions of the right operand in their order: ``(a[..., None] * b).sum(1)``, ``(a[:, None] * b).sum(-1)``.
    """
    module = dot.module
    site, dims = Site(dot), DotDims.of(dot.attributes)
    kind = _sum_type(dot.array.dtype)
    lhs, rhs = (_converted(site, operand, kind) for operand in dot.operands)
    left = dims.lhs_free(lhs.array.rank)
    right = dims.rhs_free(rhs.array.rank)
    batch, summed = len(dims.lhs_batch), len(dims.lhs_contracting)
    from_left = batch + len(left)
    is_between = as_written and min(dims.rhs_contracting, default=0) < min(right, default=0)
    from_right = from_left + (summed if is_between else 0)
    from_summed = from_left + (0 if is_between else len(right))
    depth = tuple(lhs.array.dims[dim] for dim in dims.lhs_contracting)
    kept = dot.array.dims
    sizes = (*kept[:from_summed], *depth, *kept[from_summed:])
    shape = ArrayShape(kind, sizes, row_major(dot.array, sizes).layout)
    place = {dim: at for at, dim in enumerate(dims.lhs_batch)}
    place |= {dim: batch + at for at, dim in enumerate(left)}
    place |= {dim: from_summed + at for at, dim in enumerate(dims.lhs_contracting)}
    other = {dim: at for at, dim in enumerate(dims.rhs_batch)}
    other |= {dim: from_right + at for at, dim in enumerate(right)}
    other |= {dim: from_summed + at for at, dim in enumerate(dims.rhs_contracting)}
    a, b = _spread(site, lhs, place, shape), _spread(site, rhs, other, shape)
    value = site.make("multiply", a, b, shape=shape)
    if dims.lhs_contracting:
        zero = site.scalar(kind.name, 0)
        region = combiner_computation(module, "add", kind.name)
        value = site.make(
            "reduce",
            value,
            zero,
            shape=ArrayShape(kind, dot.array.dims, dot.array.layout),
            dimensions=tuple(range(from_summed, from_summed + summed)),
            to_apply=region,
        )
    site.replace(_converted(site, value, dot.array.dtype))


def _sum_type(result: DType) -> DType:
    return DTYPES["f32"] if result.is_narrow_float else result


def _converted(site: Site, operand: Instruction, kind: DType) -> Instruction:
    if operand.array.dtype is kind:
        return operand
    shape = row_major(operand.array, operand.array.dims)
    return site.make("convert", operand, shape=ArrayShape(kind, shape.dims, shape.layout))


def _spread(
    site: Site, operand: Instruction, place: dict[int, int], shape: ArrayShape
) -> Instruction:
    """The operand with its dimensions at their places, transposed first where their order changes."""
    order = tuple(sorted(place, key=place.__getitem__))
    value = site.transpose(operand, order)
    dims = tuple(place[dim] for dim in order)
    if dims == tuple(range(shape.rank)):
        return value
    return site.make("broadcast", value, shape=shape, dimensions=dims)

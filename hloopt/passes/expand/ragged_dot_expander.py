"""Products with groups of rows, by masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.regions import combiner_computation
from hloopt.types import ArrayShape, DotDims, Window, WindowDim, array, dtype, inverse_permutation

__all__ = ["RaggedDotExpander"]

_S64 = dtype("s64")
_KEPT = ("operand_precision", "algorithm")


@dataclass(frozen=True)
class RaggedDotExpander(Expander):
    """Write ``ragged-dot`` as one ``dot`` and masks of the groups.

    A group is the positions from the sum of the sizes before it on, a negative size being 0; after the last
    group all is 0.

    1. A free ragged dimension: a dot with the rhs of every group; each row keeps that of its own group.
    2. A contracting one: both operands once for each group, cleared outside of it; the groups are a batch
       dimension of the dot.
    3. A batch one: a plain dot, cleared after the last group.

    No number of another group is multiplied with a zero, so that infinities stay where they are, as they do
    not when XLA masks the lhs alone.  The arithmetic is that of as many dots as there are groups.  Equal
    within rounding; a zero may lose its sign.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"ragged-dot"})
    example: ClassVar[str] = """\
HloModule gradient

ENTRY main {
  x = f32[4,8] parameter(0)
  y = f32[8,3] parameter(1)
  n = s32[2] parameter(2)
  ROOT z = ragged-dot(x, y, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}
}
"""

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """The dot of the kind that the ragged dimension has."""
        dims = DotDims.of(instruction.attributes)
        (ragged,) = instruction.attributes["lhs_ragged_dims"]
        lhs, rhs, sizes = (write.term(operand) for operand in instruction.operands)
        if not sizes.dims[-1] or not instruction.array.elements:
            return write.splat(instruction.array, 0)
        ragged_dot = _RaggedDot(instruction, lhs, rhs, sizes, dims, ragged)
        if ragged in dims.lhs_contracting:
            return ragged_dot.contracting()
        if ragged in dims.lhs_batch:
            return ragged_dot.batch()
        return ragged_dot.free(*instruction.attributes["rhs_group_dims"])


class _RaggedDot:
    """The operands, and which dimensions play which part.

    outer    dimensions of lhs that the dot's result has, in its order
    before   those dimensions of lhs for whose indices the groups differ
    """

    def __init__(
        self,
        instruction: Instruction,
        lhs: Term,
        rhs: Term,
        sizes: Term,
        dims: DotDims,
        ragged: int,
    ) -> None:
        self.element = instruction.array.dtype
        self.attributes = {
            name: instruction.attributes[name] for name in _KEPT if name in instruction.attributes
        }
        self.lhs, self.rhs, self.sizes, self.dims, self.ragged = lhs, rhs, sizes, dims, ragged
        self.outer = [*dims.lhs_batch, *dims.lhs_free(len(lhs.dims))]
        self.before = self._before() if len(sizes.dims) > 1 else []

    def _before(self) -> list[int]:
        batch, contracting, ragged = self.dims.lhs_batch, self.dims.lhs_contracting, self.ragged
        if ragged in batch:
            return [*batch[: batch.index(ragged)]]
        if ragged in contracting:
            return [*batch, *contracting[: contracting.index(ragged)]]
        return [*batch, *(dim for dim in self.outer[len(batch) :] if dim < ragged)]

    def free(self, group: int) -> Term:
        """Each row keeps the product with the rhs of its group."""
        total = self.dot(self.lhs, self.rhs, self.dims)
        place = len(self.outer) + self.dims.rhs_free(len(self.rhs.dims)).index(group)
        where = [*map(self.outer.index, self.before), place, self.outer.index(self.ragged)]
        own = _spread(self.mask(), total.shape, where).select(total, 0)
        return own.reduce("or" if own.dtype.is_pred else "add", 0, place)

    def contracting(self) -> Term:
        """The groups are a batch dimension; both sides are cleared outside of their group."""
        partner = dict(zip(self.dims.lhs_contracting, self.dims.rhs_contracting, strict=True))
        partner |= dict(zip(self.dims.lhs_batch, self.dims.rhs_batch, strict=True))
        own = [*self.before, self.ragged]
        lhs = self.grouped(self.lhs, own)
        rhs = self.grouped(self.rhs, [partner[dim] for dim in own])
        dims = DotDims(
            _shifted(self.dims.lhs_contracting),
            _shifted(self.dims.rhs_contracting),
            (0, *_shifted(self.dims.lhs_batch)),
            (0, *_shifted(self.dims.rhs_batch)),
        )
        return self.dot(lhs, rhs, dims)

    def batch(self) -> Term:
        """What follows the last group is 0."""
        total = self.dot(self.lhs, self.rhs, self.dims)
        mask = self.mask()
        inside = mask.reduce("or", 0, len(mask.dims) - 2)
        where = [*map(self.outer.index, self.before), self.outer.index(self.ragged)]
        return _spread(inside, total.shape, where).select(total, 0)

    def grouped(self, operand: Term, own: list[int]) -> Term:
        """The operand for each group, in a new first dimension, cleared outside of it."""
        shape = array(operand.dtype, (self.sizes.dims[-1], *operand.dims))
        repeated = operand.broadcast(shape, *range(1, len(shape.dims)))
        *before, ragged = _shifted(own)
        return _spread(self.mask(), shape, [*before, 0, ragged]).select(repeated, 0)

    def mask(self) -> Term:
        """Whether a position is in a group: ``before``, then the groups, then the positions."""
        write, size = self.lhs.writer, self.lhs.dims[self.ragged]
        zero, most = write.scalar(_S64, 0), write.scalar(_S64, size)
        sizes = write.make("clamp", zero, self.sizes.convert(_S64), most)
        ends = write.make("clamp", zero, _running_sum(sizes), most)
        last = len(ends.dims) - 1
        starts = ends.pad(zero, *[(0, 0)] * last, (1, -1))
        shape = array(_S64, (*ends.dims, size))
        kept, positions = range(last + 1), write.iota(shape, last + 1)
        return (positions >= starts.broadcast(shape, *kept)) & (
            positions < ends.broadcast(shape, *kept)
        )

    def dot(self, lhs: Term, rhs: Term, dims: DotDims) -> Term:
        """The dot of the op's result type and precision."""
        sizes = (
            *(lhs.dims[dim] for dim in dims.lhs_batch),
            *(lhs.dims[dim] for dim in dims.lhs_free(len(lhs.dims))),
            *(rhs.dims[dim] for dim in dims.rhs_free(len(rhs.dims))),
        )
        attributes: dict[str, Any] = {
            "lhs_contracting_dims": dims.lhs_contracting,
            "rhs_contracting_dims": dims.rhs_contracting,
            **self.attributes,
        }
        if dims.lhs_batch:
            attributes |= {"lhs_batch_dims": dims.lhs_batch, "rhs_batch_dims": dims.rhs_batch}
        return lhs.writer.make("dot", lhs, rhs, shape=array(self.element, sizes), **attributes)


def _shifted(dims: Sequence[int]) -> tuple[int, ...]:
    """The dimensions behind a new first one."""
    return tuple(dim + 1 for dim in dims)


def _running_sum(values: Term) -> Term:
    """Sums along the last dimension, each of all values up to its place."""
    *outer, count = values.dims
    write = values.writer
    dims = [WindowDim(1)] * len(outer) + [WindowDim(count, pad_low=count - 1)]
    return write.make(
        "reduce-window",
        values,
        write.scalar(values.dtype, 0),
        window=Window(tuple(dims)),
        to_apply=combiner_computation(write.module, "add", values.dtype.name),
    )


def _spread(mask: Term, target: ArrayShape, where: Sequence[int]) -> Term:
    """A mask whose dimensions are those of the target named, in any order, at all of its elements."""
    order = inverse_permutation(where)
    return mask.transpose(*order).broadcast(target, *(where[dim] for dim in order))

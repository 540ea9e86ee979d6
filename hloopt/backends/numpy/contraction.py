"""The batch, free and contracting dimensions of a product, and the product written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hloopt.backends.numpy.plan import Dims
from hloopt.dataclass import dataclass
from hloopt.types import DotDims

__all__ = ["ProductDims"]


@dataclass(frozen=True, slots=True)
class ProductDims:
    """How dimensions of two operands correspond: ``[*batch, m, k]`` times ``[*batch, k, n]``.

    ``left`` and ``right`` are the operands' dimensions in the order of batch, free and contracting ones, and
    of batch, contracting and free ones.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    batch: Dims
    left_free: Dims
    right_free: Dims
    contracted: Dims

    @staticmethod
    def of(left: Sequence[int], right: Sequence[int], dims: DotDims) -> ProductDims:
        """Of operands with these dimensions."""
        left_free = dims.lhs_free(len(left))
        right_free = dims.rhs_free(len(right))
        return ProductDims(
            (*dims.lhs_batch, *left_free, *dims.lhs_contracting),
            (*dims.rhs_batch, *dims.rhs_contracting, *right_free),
            tuple(left[axis] for axis in dims.lhs_batch),
            tuple(left[axis] for axis in left_free),
            tuple(right[axis] for axis in right_free),
            tuple(left[axis] for axis in dims.lhs_contracting),
        )

    @property
    def work(self) -> int:
        """Multiplications."""
        sizes = (*self.batch, *self.left_free, *self.right_free, *self.contracted)
        return prod(sizes)

    @property
    def sizes(self) -> tuple[int, int]:
        """Elements of the operands."""
        batch, count = prod(self.batch), prod(self.contracted)
        return batch * prod(self.left_free) * count, batch * prod(self.right_free) * count

    @property
    def result(self) -> Dims:
        """Dimensions of the result."""
        return (*self.batch, *self.left_free, *self.right_free)

    @property
    def is_plain(self) -> bool:
        """Whether no dimensions are merged: views lay the operands out, however they lie in memory."""
        return all(len(part) == 1 for part in (self.left_free, self.contracted, self.right_free))

    def text(self) -> str:
        """The product of ``{0}`` and ``{1}`` in Python, every operand laid out by views or copies."""
        sizes = [prod(part) for part in (self.left_free, self.contracted, self.right_free)]
        parts = (self.left_free, self.contracted, self.right_free)
        if not self.batch and all(len(part) <= 1 for part in parts) and self.contracted:
            # With vectors NumPy's own rules give the result its dimensions.
            left = "{0}.T" if self.left == (1, 0) else "{0}"
            right = "{1}.T" if self.right == (1, 0) else "{1}"
            if all(size > 1 for size in (*self.left_free, *self.right_free)):
                return f"{left}.dot({right})"  # BLAS, as for matmul, called in half the time
            return f"{{matmul}}({left}, {right})"
        left_dims = (*self.batch, *self.left_free, *self.contracted)
        right_dims = (*self.batch, *self.contracted, *self.right_free)
        left = "{0}" + _laid(self.left, left_dims, (*self.batch, sizes[0], sizes[1]))
        right = "{1}" + _laid(self.right, right_dims, (*self.batch, sizes[1], sizes[2]))
        plain = not self.batch and sizes[0] > 1 and sizes[2] > 1
        total = f"{left}.dot({right})" if plain else f"{{matmul}}({left}, {right})"
        same = self.result == (*self.batch, sizes[0], sizes[2])
        return total if same else f"{total}.reshape({self.result})"


def _laid(order: tuple[int, ...], dims: Dims, shape: Dims) -> str:
    moved = "" if order == tuple(sorted(order)) else f".transpose({order})"
    return moved if dims == shape else f"{moved}.reshape({shape})"

"""Stacks of matrices: what the expanders of factorisations and solvers share.

The matrices are the last two dimensions of a term.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import ArrayShape, Verbatim, descending, dtype

__all__ = [
    "adjoint",
    "at",
    "blocks",
    "check_block",
    "conjugate",
    "joined",
    "kept",
    "part",
    "place",
    "product",
    "stretched",
    "taken",
    "transposed",
]

_S32 = dtype("s32")


def check_block(name: str, block: int) -> None:
    """Raise ``UsageError`` unless a block has a row."""
    if block < 1:
        raise UsageError(f"{name}: block must be at least 1, got {block}")


def kept(name: str, result: ArrayShape, size: int, above: int) -> str | None:
    """Why a system of ``size`` rows stays: it has no more than ``above``."""
    if above and result.elements and size <= above:
        return f"it has {size} rows; {name}{{above={above}}} leaves up to {above}"
    return None


def blocks(size: int, block: int) -> list[tuple[int, int]]:
    """The rows of each block, from first to last."""
    return list(pairwise([*range(0, size, block), size]))


def taken(write: Writer, instruction: Instruction) -> Term:
    """An operand in row-major layout, floats narrower than f32 widened."""
    term = write.term(instruction)
    shape = term.shape
    row_major = ArrayShape(shape.dtype, shape.dims, descending(shape.rank))
    return write.fitted(term, row_major).wide()


def conjugate(matrix: Term) -> Term:
    """Complex conjugates; real numbers as they are."""
    if not matrix.dtype.is_complex:
        return matrix
    real, imaginary = matrix.unary("real"), matrix.unary("imag")
    return matrix.writer.make("complex", real, -imaginary)


def transposed(matrix: Term) -> Term:
    """Each matrix transposed."""
    rank = len(matrix.dims)
    return matrix.transpose(*range(rank - 2), rank - 1, rank - 2)


def adjoint(matrix: Term) -> Term:
    """Each matrix transposed and conjugated."""
    return conjugate(transposed(matrix))


def product(left: Term, right: Term) -> Term:
    """Each matrix times its counterpart, in full precision."""
    rank = len(left.dims)
    attributes: dict[str, Any] = {
        "lhs_contracting_dims": (rank - 1,),
        "rhs_contracting_dims": (rank - 2,),
        "operand_precision": Verbatim("{highest,highest}", ("highest", "highest")),
    }
    if rank > 2:
        batch = tuple(range(rank - 2))
        attributes |= {"lhs_batch_dims": batch, "rhs_batch_dims": batch}
    return left.writer.make("dot", left, right, **attributes)


def part(matrix: Term, rows: tuple[int, int] | None, columns: tuple[int, int] | None) -> Term:
    """From row to row and from column to column of each matrix; None takes all."""
    return matrix.slice(*(None,) * (len(matrix.dims) - 2), rows, columns)


def at(matrix: Term, row: Term | None, column: Term | None) -> tuple[list[Term], list[int]]:
    """Starts and sizes of one row, one column, or one element of each matrix; None takes all of it."""
    write, rank = matrix.writer, len(matrix.dims)
    zero = write.scalar(_S32, 0)
    starts = [zero] * (rank - 2) + [zero if one is None else one for one in (row, column)]
    sizes = [*matrix.dims[:-2]]
    sizes += [
        size if one is None else 1
        for one, size in zip((row, column), matrix.dims[-2:], strict=True)
    ]
    return starts, sizes


def place(like: Term, dimension: int) -> Term:
    """The place of each element along a dimension (-1 is the last), as s32."""
    rank = len(like.dims)
    return like.writer.iota(ArrayShape(_S32, like.dims, descending(rank)), rank + dimension)


def stretched(term: Term, like: Term) -> Term:
    """Dimensions of size 1 repeated to the sizes of an array of the same rank."""
    if term.dims == like.dims:
        return term
    kept = [dim for dim, size in enumerate(term.dims) if size != 1]
    return term.reshape(*(term.dims[dim] for dim in kept)).broadcast(like.shape, *kept)


def joined(parts: Sequence[Term], dimension: int) -> Term:
    """Parts one after another along a dimension (-1 is the last)."""
    first = parts[0]
    return first.writer.concatenate(len(first.dims) + dimension, *parts)

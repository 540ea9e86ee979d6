"""What the expanders of factorisations and solvers share: rows and columns of stacks of matrices in loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import ArrayShape, descending, dtype

__all__ = ["at", "blocks", "check_block", "joined", "place", "stretched", "taken"]

_S32 = dtype("s32")


def check_block(name: str, block: int) -> None:
    """Raise ``UsageError`` unless a block has a row."""
    if block < 1:
        raise UsageError(f"{name}: block={block} counts rows and is at least 1")


def blocks(size: int, block: int) -> list[tuple[int, int]]:
    """The rows of each block, from first to last."""
    return list(pairwise([*range(0, size, block), size]))


def taken(write: Writer, instruction: Instruction) -> Term:
    """An operand in row-major layout, floats narrower than f32 widened."""
    term = write.term(instruction)
    shape = term.shape
    row_major = ArrayShape(shape.dtype, shape.dims, descending(shape.rank))
    return write.fitted(term, row_major).wide()


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

"""Factorisations, solutions and transforms, whose options are read when the line is made.

cholesky, alone and as LAPACK's ``potrf``, has the interpreter's arithmetic without asking at each column
whether the matrix is positive definite; where one is not, the interpreter does it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.values import Slots
from hloopt.interpret import linalg
from hloopt.interpret.context import Array
from hloopt.interpret.fft import fft
from hloopt.interpret.lapack import call_options
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, TupleShape, array, without_layout

__all__ = ["EMITTERS", "cholesky_in_place", "potrf"]


def cholesky_in_place(matrices: Array, *, lower: bool) -> tuple[Array, Array]:
    """As ``linalg.cholesky_in_place``, to the bit."""
    result = linalg.wide(matrices).copy()
    work = result if lower else np.swapaxes(result, -1, -2).conj().copy()
    size = work.shape[-1]
    pivots = np.empty(work.shape[:-1])
    for column in range(size):
        below = work[..., column + 1 :, column]
        pivot = work[..., column, column].real
        if column:
            row = work[..., column, :column]
            turned = row.conj()
            pivot = pivot - (row * turned).real.sum(axis=-1)
            below = below - (work[..., column + 1 :, :column] @ turned[..., None])[..., 0]
        pivots[..., column] = pivot
        root = np.sqrt(pivot)
        work[..., column, column] = root
        work[..., column + 1 :, column] = below / root[..., None]
    if not (pivots > 0).all():
        return linalg.cholesky_in_place(matrices, lower=lower)
    info = np.zeros(work.shape[:-2], np.int32)
    if lower:
        return work, info
    return np.triu(np.swapaxes(work, -1, -2).conj()) + np.tril(result, -1), info


def _cholesky(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots:
    lower = bool(instruction.attributes.get("lower", False))
    kind, context = instruction.array.dtype, builder.context
    size = instruction.array.dims[-1]
    triangle = np.tri(size, dtype=np.bool_)
    kept = triangle if lower else triangle.T

    def factors(matrices: Any) -> Any:
        found, info = cholesky_in_place(matrices, lower=lower)
        found = np.where(kept, found, found.dtype.type(0))
        if info.any():
            found[info != 0] = np.nan
        return context.round(found, kind)

    return builder.applied(instruction, operands, factors)


def _triangular_solve(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots:
    attributes, context = instruction.attributes, builder.context
    kind = instruction.array.dtype
    flags = {
        name: bool(attributes.get(name, False)) for name in ("left_side", "lower", "unit_diagonal")
    }
    transpose = str(attributes["transpose_a"])

    def solution(a: Any, b: Any) -> Any:
        return context.round(linalg.triangular_solve(a, b, transpose_a=transpose, **flags), kind)

    return builder.applied(instruction, operands, solution)


def _fft(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots:
    target, context = instruction.array, builder.context
    kind = target.dtype
    if not target.elements or not instruction.operands[0].array.elements:
        return builder.constant(np.zeros(target.dims, context.carrier(kind)))
    transform = str(instruction.attributes["fft_type"])
    lengths = tuple(instruction.attributes["fft_length"])

    def transformed(array: Any) -> Any:
        return context.round(fft(array, transform, lengths), kind)

    return builder.applied(instruction, operands, transformed)


def potrf(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots | None:
    """A call of ``lapack_<type>potrf_ffi``; None where its shapes are not those of the routine."""
    given, shape, context = instruction.operands[0].array, instruction.shape, builder.context
    wanted = TupleShape((given, array("s32", given.dims[:-2])))
    if given.rank < 2 or without_layout(shape) != without_layout(wanted):
        return None
    assert isinstance(shape, TupleShape)
    assert isinstance(shape.elements[0], ArrayShape)
    kind = shape.elements[0].dtype
    lower = chr(call_options(instruction)["uplo"]) == "L"

    def factors(matrices: Any) -> tuple[Array, Array]:
        found, info = cholesky_in_place(matrices, lower=lower)
        return context.round(found, kind), info

    return builder.applied(instruction, operands, factors)


EMITTERS: Mapping[str, Emitter] = {
    "cholesky": _cholesky,
    "fft": _fft,
    "triangular-solve": _triangular_solve,
}

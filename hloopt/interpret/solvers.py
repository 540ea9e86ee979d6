"""Linear algebra of JAX on GPUs as custom calls: cuSOLVER, cuSPARSE, hipSOLVER, and XLA's own of cuSOLVER.

As for LAPACK's routines matrices are the last two dimensions of stacks of them, and ``info`` is 0, or what
LAPACK would say.  Eigenvectors and singular vectors are determined up to factors of modulus 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from hloopt.interpret import lapack, linalg
from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.lapack import COMMON, FLAG, Choices, Options, RoutineResults, RoutineRow
from hloopt.interpret.library_calls import config
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, TupleShape, leaves

__all__ = ["CHECKS", "EVALUATORS"]


def _svd(operands: Sequence[Array], options: Options, *, v: bool) -> RoutineResults:
    """The operand, singular values, U, Vᴴ (or V), info; the operand turned has U and Vᴴ change places."""
    full = bool(options["full_matrices"])
    values, left, right, info = linalg.svd(operands[0], full_matrices=full)
    if v:
        right = np.swapaxes(right, -1, -2).conj()
    if not options["compute_uv"]:
        return operands[0], values, None, None, info
    if options.get("transposed", 0):
        left, right = right, left
    return operands[0], values, left, right, info


def _syrk(operands: Sequence[Array], options: Options) -> RoutineResults:
    """A Aᵀ or Aᵀ A times alpha, and C times beta."""
    a, c, alpha, beta = (linalg.wide(operand) for operand in operands)
    turned = np.swapaxes(a, -1, -2)
    product = turned @ a if options["transpose"] else a @ turned
    return (np.asarray(alpha * product + beta * c),)


_SVD: dict[str, Choices] = {"compute_uv": FLAG, "full_matrices": FLAG}
_GESVD = RoutineRow(partial(_svd, v=False), {**_SVD, "transposed": FLAG}, 1, (5,))
_GESVDJ = RoutineRow(partial(_svd, v=True), _SVD, 1, (5,))

_ROWS: dict[str, RoutineRow] = {
    "solver_potrf_ffi": RoutineRow(COMMON["potrf"], {"lower": FLAG}, 1, (2,)),
    "solver_getrf_ffi": RoutineRow(COMMON["getrf"], {}, 1, (3,)),
    "solver_geqrf_ffi": RoutineRow(COMMON["geqrf"], {}, 1, (2,)),
    "solver_orgqr_ffi": RoutineRow(COMMON["orgqr"], {}, 2, (1,)),
    "solver_ormqr_ffi": RoutineRow(COMMON["ormqr"], {"left": FLAG, "transpose": FLAG}, 3, (1,)),
    "solver_syevd_ffi": RoutineRow(COMMON["syevd"], {"lower": FLAG}, 1, (3,)),
    "solver_sytrd_ffi": RoutineRow(COMMON["sytrd"], {"lower": FLAG}, 1, (5,)),
    "solver_gesvd_ffi": _GESVD,
    "solver_gesdd_ffi": _GESVD,
    "solver_gesvdj_ffi": _GESVDJ,
    "solver_gesvdp_ffi": _GESVDJ,
    "solver_syrk_ffi": RoutineRow(_syrk, {"transpose": FLAG}, 4, (1,)),
    "sparse_gtsv2_ffi": RoutineRow(
        lambda given, _: linalg.tridiagonal_solve(*given)[3:4], {}, 4, (1,)
    ),
}
"""A target's name without the prefix ``cu`` or ``hip``."""


def _lu_permutation(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    """The order of rows that swapping row i with row pivots[i] (0-based), one i after the other, leads to."""
    pivots = array_of(operands[0])
    result = np.zeros(instruction.array.dims, np.int32)
    result[...] = np.arange(result.shape[-1])
    for step in range(pivots.shape[-1]):
        chosen = pivots[..., step, None].astype(np.int64)
        there = np.take_along_axis(result, chosen, axis=-1)
        np.put_along_axis(result, chosen, result[..., step, None], axis=-1)
        result[..., step] = there[..., 0]
    return context.round(result, instruction.array.dtype)


def _check_lu_permutation(instruction: Instruction) -> str | None:
    shapes = [*(operand.shape for operand in instruction.operands), instruction.shape]
    if len(shapes) == 2 and all(isinstance(s, ArrayShape) and s.rank for s in shapes):
        return None
    return f"{instruction.custom_call_target} is not one array of pivots to one of rows"


def _lower(instruction: Instruction) -> bool:
    """Raises ``ValueError`` where the options do not say."""
    # Protocol buffers leave out what is false.
    lower = config(instruction, "cholesky_options").get("lower", False)
    if not isinstance(lower, bool):
        raise ValueError("no options of a factorisation")  # noqa: TRY004 - wrong text, not a wrong type
    return lower


def _cholesky(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The factor, scratch space, info: XLA's own call."""
    factor, info = linalg.cholesky_in_place(array_of(operands[0]), lower=_lower(instruction))
    shapes = [shape for shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]
    results = (
        factor.reshape(shapes[0].dims),
        np.zeros(shapes[1].dims),
        info.reshape(shapes[2].dims),
    )
    return tuple(
        context.round(array, shape.dtype) for array, shape in zip(results, shapes, strict=True)
    )


def _check_cholesky(instruction: Instruction) -> str | None:
    try:
        _lower(instruction)
    except ValueError:
        return f"{instruction.custom_call_target} without options that say which triangle is read"
    shape = instruction.shape
    parts = shape.elements if isinstance(shape, TupleShape) else ()
    parts = (*(operand.shape for operand in instruction.operands), *parts)
    arrays = [part for part in parts if isinstance(part, ArrayShape)]
    if len(instruction.operands) == 1 and len(parts) == len(arrays) == 4:
        matrix, factor, _, info = arrays
        if factor.elements == matrix.elements and info.elements == prod(matrix.dims[:-2]):
            return None
    return f"{instruction.custom_call_target} does not give a factor, scratch space and info"


EVALUATORS: dict[str, Evaluator] = {
    "__cusolver$cholesky": _cholesky,
    **{f"{p}_lu_pivots_to_permutation": _lu_permutation for p in ("cu", "hip")},
    **{
        p + name: lapack.evaluator(row.routine)
        for p in ("cu", "hip")
        for name, row in _ROWS.items()
    },
}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {
    "__cusolver$cholesky": _check_cholesky,
    **{f"{p}_lu_pivots_to_permutation": _check_lu_permutation for p in ("cu", "hip")},
    **{p + name: lapack.checker(row) for p in ("cu", "hip") for name, row in _ROWS.items()},
}
"""Why a call cannot be evaluated, or None."""

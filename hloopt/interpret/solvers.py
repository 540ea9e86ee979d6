"""Linear algebra of JAX on GPUs as custom calls: cuSOLVER, cuSPARSE, hipSOLVER, and XLA's own of cuSOLVER.

As for LAPACK's routines matrices are the last two dimensions of stacks of them, and ``info`` is 0, or what
LAPACK would say.  Eigenvectors and singular vectors are determined up to factors of modulus 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod

import numpy as np

from hloopt.interpret import lapack, linalg, reflectors
from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.lapack import Choices, Options, Results, Row
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, TupleShape

__all__ = ["CHECKS", "EVALUATORS"]

_FLAG: Choices = (0, 1)


def _no_info(matrices: Array) -> Array:
    return np.zeros(matrices.shape[:-2], np.int32)


def _potrf(operands: Sequence[Array], options: Options) -> Results:
    return linalg.cholesky_in_place(operands[0], lower=bool(options["lower"]))


def _getrf(operands: Sequence[Array], options: Options) -> Results:
    return linalg.lu(operands[0])


def _geqrf(operands: Sequence[Array], options: Options) -> Results:
    return linalg.qr_raw(operands[0])


def _orgqr(operands: Sequence[Array], options: Options) -> Results:
    return (linalg.householder_product(operands[0], operands[1]),)


def _ormqr(operands: Sequence[Array], options: Options) -> Results:
    product = reflectors.apply_reflections(
        *operands, left=bool(options["left"]), adjoint=bool(options["transpose"])
    )
    return (product,)


def _syevd(operands: Sequence[Array], options: Options) -> Results:
    return linalg.eigh(operands[0], lower=bool(options["lower"]))


def _sytrd(operands: Sequence[Array], options: Options) -> Results:
    form = reflectors.tridiagonal_form(operands[0], lower=bool(options["lower"]))
    return (*form, _no_info(operands[0]))


def _svd(operands: Sequence[Array], options: Options, *, v: bool) -> Results:
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


def _gesvd(operands: Sequence[Array], options: Options) -> Results:
    return _svd(operands, options, v=False)


def _gesvdj(operands: Sequence[Array], options: Options) -> Results:
    return _svd(operands, options, v=True)


def _syrk(operands: Sequence[Array], options: Options) -> Results:
    """A Aᵀ or Aᵀ A times alpha, and C times beta."""
    a, c, alpha, beta = (linalg.wide(operand) for operand in operands)
    turned = np.swapaxes(a, -1, -2)
    product = turned @ a if options["transpose"] else a @ turned
    return (np.asarray(alpha * product + beta * c),)


def _gtsv2(operands: Sequence[Array], options: Options) -> Results:
    return (linalg.tridiagonal_solve(*operands)[3],)


_SVD: dict[str, Choices] = {"compute_uv": _FLAG, "full_matrices": _FLAG}

_ROWS: dict[str, Row] = {
    "solver_potrf_ffi": Row(_potrf, {"lower": _FLAG}, 1, (2,)),
    "solver_getrf_ffi": Row(_getrf, {}, 1, (3,)),
    "solver_geqrf_ffi": Row(_geqrf, {}, 1, (2,)),
    "solver_orgqr_ffi": Row(_orgqr, {}, 2, (1,)),
    "solver_ormqr_ffi": Row(_ormqr, {"left": _FLAG, "transpose": _FLAG}, 3, (1,)),
    "solver_syevd_ffi": Row(_syevd, {"lower": _FLAG}, 1, (3,)),
    "solver_sytrd_ffi": Row(_sytrd, {"lower": _FLAG}, 1, (5,)),
    "solver_gesvd_ffi": Row(_gesvd, {**_SVD, "transposed": _FLAG}, 1, (5,)),
    "solver_gesdd_ffi": Row(_gesvd, {**_SVD, "transposed": _FLAG}, 1, (5,)),
    "solver_gesvdj_ffi": Row(_gesvdj, _SVD, 1, (5,)),
    "solver_gesvdp_ffi": Row(_gesvdj, _SVD, 1, (5,)),
    "solver_syrk_ffi": Row(_syrk, {"transpose": _FLAG}, 4, (1,)),
    "sparse_gtsv2_ffi": Row(_gtsv2, {}, 4, (1,)),
}
"""Without the ``cu`` or ``hip`` before it."""


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
    try:
        found = json.loads(str(instruction.attributes.get("backend_config", "{}")))
    except RecursionError as error:
        raise ValueError("the options are nested too deeply") from error
    if isinstance(found, dict):
        found = found.get("cholesky_options", found)
    # Protocol buffers leave out what is false.
    if not isinstance(found, dict) or not isinstance(found.get("lower", False), bool):
        raise ValueError("no options of a factorisation")  # noqa: TRY004 - wrong text, not a wrong type
    return bool(found.get("lower", False))


def _cholesky(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The factor, scratch space, info: XLA's own call."""
    factor, info = linalg.cholesky_in_place(array_of(operands[0]), lower=_lower(instruction))
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    results: list[Value] = []
    for part, array in zip(shape.elements, (factor, None, info), strict=True):
        assert isinstance(part, ArrayShape)
        if array is None:
            results.append(np.zeros(part.dims, part.dtype.numpy))
        else:
            results.append(context.round(array.reshape(part.dims), part.dtype))
    return tuple(results)


def _check_cholesky(instruction: Instruction) -> str | None:
    try:
        _lower(instruction)
    except ValueError:
        return f"{instruction.custom_call_target} without options that say which triangle is read"
    shape = instruction.shape
    parts = shape.elements if isinstance(shape, TupleShape) else ()
    operands = [operand.shape for operand in instruction.operands]
    if (
        len(parts) == 3
        and len(operands) == 1
        and all(isinstance(part, ArrayShape) for part in (*parts, *operands))
    ):
        matrix = instruction.operands[0].array
        sizes = [part.elements for part in parts if isinstance(part, ArrayShape)]
        if sizes[0] == matrix.elements and sizes[2] == prod(matrix.dims[:-2]):
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

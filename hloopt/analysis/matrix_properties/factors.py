"""Factorisations and solutions: triangles, and vectors that are orthonormal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from hloopt.analysis.matrix_properties.moves import Lookup
from hloopt.analysis.matrix_properties.properties import NOTHING, MatrixProperties, whole_band
from hloopt.analysis.matrix_properties.zeros import EMPTY, band_of
from hloopt.interpret.lapack import call_options
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Dims

__all__ = ["called", "cholesky", "triangular_solved"]


def cholesky(value: Instruction) -> MatrixProperties:
    """A triangle; all NaN where the matrix cannot be factored."""
    return _triangle(value.array.dims, lower=bool(value.attributes.get("lower", False)))


def _triangle(dims: Dims, *, lower: bool) -> MatrixProperties:
    rank = len(dims)
    low, high = whole_band(dims, (rank - 2, rank - 1))
    band = (low, 0) if lower else (0, high)
    return MatrixProperties(bands={(rank - 2, rank - 1): band}, is_clean=False)


def triangular_solved(value: Instruction, of: Lookup) -> MatrixProperties:
    """A triangle has a triangle as its inverse, whose band is added to that of the right sides."""
    attributes = value.attributes
    lower = bool(attributes.get("lower", False))
    if attributes.get("transpose_a", "NO_TRANSPOSE") != "NO_TRANSPOSE":
        lower = not lower
    left_side = bool(attributes.get("left_side", False))
    return _solved(value.array.dims, of(value.operands[1]), lower=lower, left_side=left_side)


def _solved(
    dims: Dims, right: MatrixProperties, *, lower: bool, left_side: bool
) -> MatrixProperties:
    rank = len(dims)
    pair = rank - 2, rank - 1
    low, high = band_of(right, pair, dims)
    size = dims[-2] if left_side else dims[-1]
    if low > high:
        return MatrixProperties(bands={pair: EMPTY}, is_clean=False)
    band = (low - size + 1, high) if lower else (low, high + size - 1)
    return MatrixProperties(bands={pair: band}, is_clean=False)


def called(call: Instruction, index: int, of: Lookup) -> MatrixProperties:
    """Of the result of a library's routine, of several the one at ``index``."""
    found = _ROUTINE.fullmatch(call.custom_call_target)
    shape = call.elements[index] if call.is_tuple else call.shape
    if found is None or not isinstance(shape, ArrayShape) or len(shape.dims) < 2:
        return NOTHING
    try:
        options = call_options(call)
    except ValueError:
        # An unknown routine, or a damaged text, which stops where it is run.
        return NOTHING
    rule = _ROUTINES.get(found[1])
    return NOTHING if rule is None else rule(call, index, shape.dims, options, of)


_Rule: TypeAlias = Callable[[Instruction, int, Dims, Mapping[str, int], Lookup], MatrixProperties]


def _letter(options: Mapping[str, int], name: str) -> str:
    return chr(options.get(name, 0))


def _orthonormal(dims: Dims, *, columns: bool) -> MatrixProperties:
    row, column = len(dims) - 2, len(dims) - 1
    return MatrixProperties(orthonormal=frozenset({(row, column) if columns else (column, row)}))


def _reflected(
    call: Instruction, _: int, dims: Dims, __: Mapping[str, int], of: Lookup
) -> MatrixProperties:
    """Q of reflections that a routine made: those of any other numbers may be none."""
    vectors, factors = call.operands
    if {vectors.opcode, factors.opcode} != {"get-tuple-element"}:
        return NOTHING
    made = vectors.operands[0]
    is_one = made is factors.operands[0] and (vectors.tuple_index, factors.tuple_index) == (0, 1)
    if not is_one or made.opcode != "custom-call":
        return NOTHING
    is_made = _REFLECTING.fullmatch(made.custom_call_target) is not None
    return _orthonormal(dims, columns=True) if is_made else NOTHING


def _eigenvectors(
    _: Instruction, index: int, dims: Dims, options: Mapping[str, int], __: Lookup
) -> MatrixProperties:
    is_asked = index == 0 and _letter(options, "mode") in ("V", "\0")
    return _orthonormal(dims, columns=True) if is_asked else NOTHING


def _singular_vectors(
    call: Instruction, index: int, dims: Dims, options: Mapping[str, int], _: Lookup
) -> MatrixProperties:
    is_asked = index in (2, 3) and _letter(options, "mode") in ("A", "S")
    if not is_asked or not call.custom_call_target.startswith("lapack"):
        return NOTHING
    return _orthonormal(dims, columns=index == 2)


def _system(
    call: Instruction, _: int, dims: Dims, options: Mapping[str, int], of: Lookup
) -> MatrixProperties:
    lower = (_letter(options, "uplo") == "L") == (_letter(options, "trans_x") == "N")
    right = of(call.operands[1])
    return _solved(dims, right, lower=lower, left_side=_letter(options, "side") == "L")


_ROUTINE: Final = re.compile(
    r"(?:lapack_[sd]|cusolver_|hipsolver_)(orgqr|syevd|trsm|gesdd|gesvd)_ffi"
)
_REFLECTING: Final = re.compile(r"(?:lapack_[sd]|cusolver_|hipsolver_)geqrf_ffi")
_ROUTINES: Final[Mapping[str, _Rule]] = {
    "gesdd": _singular_vectors,
    "gesvd": _singular_vectors,
    "orgqr": _reflected,
    "syevd": _eigenvectors,
    "trsm": _system,
}
"""Of real numbers."""

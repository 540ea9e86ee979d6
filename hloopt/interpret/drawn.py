"""Random arrays for inputs that are not given: small integers, standard normal floats."""

from __future__ import annotations

import numpy as np
from ml_dtypes import finfo

from hloopt.dataclass import dataclass
from hloopt.types import Array, ArrayShape, DType

__all__ = ["InputRole", "drawn"]

_SMALL = 4  # integers that are not indices: -4 .. 4, so that products and powers stay in range
_AT_ONCE = 1 << 20  # elements drawn in the type of the draw, which may be wider than the array's


@dataclass(slots=True)
class InputRole:
    """What an array is used for; the defaults constrain nothing.

    limit     indices below this number
    fan_in    products summed into each element of a result of which this is the weight
    positive  a square root, a logarithm or the like is taken of it, or it bounds a loop
    definite  matrices to be factored or solved with
    bound     the size of a dynamic dimension of this bound; 0: none
    bits      random bits: the key or the state of a generator
    """

    limit: int | None = None
    fan_in: int = 1
    positive: bool = False
    definite: bool = False
    bound: int = 0
    bits: bool = False


_ANY = InputRole()


def drawn(rng: np.random.Generator, shape: ArrayShape, role: InputRole = _ANY) -> Array:
    """An array of a shape, in its storage type.

    Floats are standard normal: weights divided by the square root of ``fan_in``, positive ones uniform in
    [0.5, 1.5).  Integers are from -4 to 4, unsigned ones from 0; positive ones from 1; indices from 0 to
    ``limit`` - 1.  pred is a fair coin.
    """
    kind, dims = shape.dtype, shape.dims
    if kind.is_pred:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if kind.is_integer:
        low, high = _integer_range(kind, role)
        own = np.uint64 if high >= 1 << 63 else np.int64
        return np.asarray(rng.integers(low, high, dims, own, endpoint=True)).astype(kind.numpy)
    if kind.name == "f8e8m0fnu":
        return np.asarray(np.exp2(rng.integers(-4, 5, dims))).astype(kind.numpy)
    if role.definite and len(dims) > 1 and dims[-1] == dims[-2] and not kind.is_narrow_float:
        return _definite(rng, kind, dims)
    return _numbers(rng, kind, dims, role)


def _numbers(
    rng: np.random.Generator, kind: DType, dims: tuple[int, ...], role: InputRole
) -> Array:
    part = np.dtype(f"f{kind.compute.itemsize // 2}") if kind.is_complex else kind.compute
    scale = part.type(_deviation(kind, role))
    array = np.empty(dims, kind.numpy)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _AT_ONCE):
        piece = flat[start : start + _AT_ONCE]
        if kind.is_complex:
            piece.real = rng.standard_normal(piece.size, part) * scale
            piece.imag = rng.standard_normal(piece.size, part) * scale
        elif role.positive:
            piece[...] = rng.random(piece.size, part) + part.type(0.5)
        else:
            piece[...] = rng.standard_normal(piece.size, part) * scale
    return array


def _deviation(kind: DType, role: InputRole) -> float:
    """The standard deviation: of a type of few bits not below its smallest normal number."""
    deviation: float = role.fan_in**-0.5
    if kind.is_float:
        least = finfo(kind.numpy).smallest_normal  # type: ignore[no-untyped-call]
        return max(deviation, float(least))
    return deviation


def _definite(rng: np.random.Generator, kind: DType, dims: tuple[int, ...]) -> Array:
    """Symmetric (Hermitian) matrices of eigenvalues from 1 to about 5 (9)."""
    root = rng.standard_normal(dims).astype(kind.numpy)
    if kind.is_complex:
        root += (1j * rng.standard_normal(dims)).astype(kind.numpy)
    square = np.matmul(root, root.conj().swapaxes(-1, -2)) / kind.numpy.type(dims[-1])
    return np.asarray(square + np.eye(dims[-1], dtype=kind.numpy))


def _integer_range(kind: DType, role: InputRole) -> tuple[int, int]:
    """The smallest and the largest number."""
    least, most = kind.limits
    if role.limit is not None:
        return 0, max(0, min(role.limit - 1, most))
    if role.bits and kind.kind == "unsigned":
        return 0, most
    if role.positive:
        return min(1, most), min(_SMALL, most)
    return max(-_SMALL, least), min(_SMALL, most)

"""Element types of HLO and their NumPy storage.

``DTYPES`` is the table; ``dtype("bf16")`` looks a name up.  Sub-byte and 8-bit types are stored one
element a byte through ml_dtypes.  Types narrower than 32 bits of float compute in float32 and round
once per op (``compute``), as XLA's evaluator does.
"""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass

__all__ = ["DTYPES", "DType", "dtype", "in_numpy", "of_numpy", "rounded"]

Kind = Literal["pred", "signed", "unsigned", "float", "complex", "token", "opaque"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: one object per name, so identity is equality.

    ``bits`` is the width XLA gives the element on a device (pred is one byte), ``numpy`` the storage
    type, ``compute`` the type in which arithmetic is done before rounding to ``numpy``.
    """

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]
    compute: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Of an element, where nothing is packed."""
        return max(1, self.bits // 8)

    @property
    def is_pred(self) -> bool:
        """Whether this is ``pred``."""
        return self.kind == "pred"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer (pred is not)."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_float(self) -> bool:
        """Whether this is a real floating-point type."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """Whether this is c64 or c128."""
        return self.kind == "complex"

    @property
    def is_array(self) -> bool:
        """Whether values of this type have elements (token and opaque have none)."""
        return self.kind not in ("token", "opaque")

    @property
    def is_narrow_float(self) -> bool:
        """Whether arithmetic is done in a wider type and rounded (f16, bf16, f8*, f4*, f6*)."""
        return self.kind == "float" and self.numpy is not self.compute

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type or pred."""
        if self.is_pred:
            return 0, 1
        sign = self.kind == "signed"
        return -sign << self.bits - 1, (1 << self.bits - sign) - 1

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)


def _row(name: str, kind: Kind, bits: int, numpy: object, compute: object = None) -> DType:
    storage = np.dtype(numpy)  # type: ignore[call-overload]
    return DType(name, kind, bits, storage, storage if compute is None else np.dtype(compute))  # type: ignore[call-overload]


_F32 = np.float32

DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        _row("pred", "pred", 8, np.bool_),
        _row("s1", "signed", 1, ml_dtypes.int1),
        _row("s2", "signed", 2, ml_dtypes.int2),
        _row("s4", "signed", 4, ml_dtypes.int4),
        _row("s8", "signed", 8, np.int8),
        _row("s16", "signed", 16, np.int16),
        _row("s32", "signed", 32, np.int32),
        _row("s64", "signed", 64, np.int64),
        _row("u1", "unsigned", 1, ml_dtypes.uint1),
        _row("u2", "unsigned", 2, ml_dtypes.uint2),
        _row("u4", "unsigned", 4, ml_dtypes.uint4),
        _row("u8", "unsigned", 8, np.uint8),
        _row("u16", "unsigned", 16, np.uint16),
        _row("u32", "unsigned", 32, np.uint32),
        _row("u64", "unsigned", 64, np.uint64),
        _row("f16", "float", 16, np.float16, _F32),
        _row("bf16", "float", 16, ml_dtypes.bfloat16, _F32),
        _row("f32", "float", 32, np.float32),
        _row("f64", "float", 64, np.float64),
        _row("c64", "complex", 64, np.complex64),
        _row("c128", "complex", 128, np.complex128),
        _row("f8e5m2", "float", 8, ml_dtypes.float8_e5m2, _F32),
        _row("f8e4m3", "float", 8, ml_dtypes.float8_e4m3, _F32),
        _row("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn, _F32),
        _row("f8e4m3b11fnuz", "float", 8, ml_dtypes.float8_e4m3b11fnuz, _F32),
        _row("f8e3m4", "float", 8, ml_dtypes.float8_e3m4, _F32),
        _row("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz, _F32),
        _row("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz, _F32),
        _row("f8e8m0fnu", "float", 8, ml_dtypes.float8_e8m0fnu, _F32),
        _row("f4e2m1fn", "float", 4, ml_dtypes.float4_e2m1fn, _F32),
        _row("f6e3m2fn", "float", 6, ml_dtypes.float6_e3m2fn, _F32),
        _row("f6e2m3fn", "float", 6, ml_dtypes.float6_e2m3fn, _F32),
        _row("token", "token", 0, np.bool_),
        _row("opaque", "opaque", 0, np.bool_),
    )
}

_WITHOUT_NAN = frozenset(DTYPES[name].numpy for name in ("f4e2m1fn", "f6e3m2fn", "f6e2m3fn"))

_BY_NUMPY: dict[np.dtype[Any], DType] = {row.numpy: row for row in DTYPES.values() if row.is_array}


def dtype(name: str) -> DType:
    """The element type called ``name`` in HLO text; raises ``KeyError`` when there is none."""
    return DTYPES[name]


def of_numpy(storage: np.dtype[Any]) -> DType:
    """The element type stored as ``storage``; raises ``KeyError`` when there is none."""
    return _BY_NUMPY[np.dtype(storage)]


def in_numpy(storage: np.dtype[Any]) -> bool:
    """Whether NumPy itself has a storage type, so that its files do.

    Arrays from other processes bring copies of their types, which NumPy does not call built in.
    """
    return _BY_NUMPY[np.dtype(storage)].numpy.isbuiltin == 1


def rounded(array: np.ndarray[Any, Any], storage: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The array in a storage type: floats to nearest even, without a copy where it has that type.

    A NaN of any sign becomes -0 in a type that has none, as in XLA; ml_dtypes turns its sign over.
    """
    if array.dtype is storage:
        return array
    if storage in _WITHOUT_NAN and array.dtype != storage:
        array = np.where(np.isnan(array), np.abs(array), array)
    return array.astype(storage, copy=False)

"""Values of a type at which functions tend to differ."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hloopt.types import DType

__all__ = ["edges"]


def edges(kind: DType) -> np.ndarray[Any, Any]:
    """Values of a type at which functions tend to differ."""
    if kind.is_pred:
        return np.array([False, True])
    if kind.is_integer:
        info = np.iinfo(kind.numpy)
        numbers = {info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max}
        return np.array(sorted(numbers | ({-1, -2} if info.min else set())), kind.numpy)
    limit = np.finfo(kind.numpy)
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 100.0, -745.0]
    parts += [float(limit.max), float(limit.tiny), float(limit.smallest_subnormal), np.pi]
    if not kind.is_complex:
        return np.array(parts, kind.numpy)
    return np.array([complex(*pair) for pair in product(parts, parts)], kind.numpy)

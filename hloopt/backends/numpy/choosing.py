"""select between arrays: by NumPy's function, or by bits where there are many elements.

``np.where`` branches on each element: where the predicate follows no pattern it takes 4 ns an element,
blending bits 0.4 (Zen 5, 65,536 elements of 4 bytes).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Code, Function
from hloopt.types import Array

__all__ = ["MANY", "mask_code", "select_code", "where"]

# Without the search for overrides by other array types, a quarter of what it costs for a small array.
where: Function = getattr(np.where, "_implementation", np.where)

MANY: Final = 512
"""Elements from which on blending takes less time than branches that are predicted half of the time."""

_MASK: Final = "{negative}({0}.view({byte}))"
_BLENDED: Final = (
    "{u} = {xor}({1}.view({bits}), {2}.view({bits}))\n"
    "{u} = {both}({u}, {t})\n"
    "{r} = {xor}({u}, {2}.view({bits})).view({kind})"
)

_BLENDED_IN_PLACE: Final = (
    "{u} = {xor}({1}.view({bits}), {2}.view({bits}))\n"
    "{both}({u}, {t}, {u})\n"
    "{r} = {xor}({u}, {2}.view({bits}), {u}).view({kind})"
)

_CHANGED: Final = "{u} = {both}({t}, {change})\n{r} = {xor}({u}, {other}, {u}).view({kind})"
_CHANGED_NOTHING: Final = "{r} = {both}({t}, {change}).view({kind})"


def select_code(
    kind: np.dtype[Any],
    elements: int,
    left: Array | None,
    right: Array | None,
    *,
    whole: bool = False,
    masked: bool = False,
) -> Code | None:
    """A select of arrays of a type, of which those that are constants are known; None for ``where``.

    ``whole``: the arrays alone have all elements of the result, to which the predicate may be stretched;
    ``masked``: the first operand is what ``mask_code`` makes of the predicate.
    """
    if elements < MANY or kind.itemsize > 8:
        return None
    bits = np.dtype(f"i{kind.itemsize}")
    bound: dict[str, Any] = {
        "bits": bits,
        "both": np.bitwise_and,
        "kind": kind,
        "xor": np.bitwise_xor,
    }
    if not masked:
        bound |= {"byte": np.dtype("i1"), "negative": np.negative}
    mask = "" if masked else f"{{t}} = {_mask(kind)}\n"
    if left is None or right is None or left.ndim or right.ndim:
        text = _BLENDED_IN_PLACE if whole else _BLENDED
    else:
        change = np.asarray(left.view(bits) ^ right.view(bits))
        bound |= {"other": right.view(bits), "change": change}
        text = _CHANGED if right.view(bits).any() else _CHANGED_NOTHING
    return Code(mask + (text.replace("{t}", "{0}") if masked else text), bound=bound)


def mask_code(kind: np.dtype[Any]) -> Code:
    """Of a predicate an integer as wide as ``kind`` for each element: all bits where it holds, else none."""
    bits = np.dtype(f"i{kind.itemsize}")
    bound = {"bits": bits, "byte": np.dtype("i1"), "negative": np.negative}
    return Code(f"{{r}} = {_mask(kind)}", bound=bound)


def _mask(kind: np.dtype[Any]) -> str:
    return _MASK if kind.itemsize == 1 else f"{_MASK}.astype({{bits}})"

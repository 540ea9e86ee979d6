"""select between arrays: by NumPy's function, or by bits where there are many elements.

``np.where`` branches on each element: where the predicate follows no pattern it takes 4 ns an element,
blending bits 0.4 (Zen 5, 65,536 elements of 4 bytes).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hloopt.runtime.numpy.plan import Code, Function

__all__ = ["MANY", "select_code", "where"]

# Without the search for overrides by other array types, a quarter of what it costs for a small array.
where: Function = getattr(np.where, "_implementation", np.where)

MANY: Final = 512
"""Elements from which on blending takes less time than branches that are predicted half of the time."""

_MASK: Final = "{t} = {negative}({0}.view({byte}))"
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


def select_code(
    kind: np.dtype[Any],
    elements: int,
    left: np.ndarray[Any, Any] | None,
    right: np.ndarray[Any, Any] | None,
    *,
    whole: bool = False,
) -> Code | None:
    """A select of arrays of a type, of which those that are constants are known; None for ``where``.

    ``whole``: the arrays alone have all elements of the result, to which the predicate may be stretched.
    """
    if elements < MANY or kind.itemsize > 8:
        return None
    bits = np.dtype(f"i{kind.itemsize}")
    bound: dict[str, Any] = {
        "bits": bits,
        "both": np.bitwise_and,
        "byte": np.dtype("i1"),
        "kind": kind,
        "negative": np.negative,
        "xor": np.bitwise_xor,
    }
    mask = _MASK if kind.itemsize == 1 else f"{_MASK}.astype({{bits}})"
    if left is None or right is None or left.ndim or right.ndim:
        return Code(f"{mask}\n{_BLENDED_IN_PLACE if whole else _BLENDED}", bound=bound)
    bound |= {"other": right.view(bits), "change": np.asarray(left.view(bits) ^ right.view(bits))}
    text = "{u} = {both}({t}, {change})\n{r} = {xor}({u}, {other}).view({kind})"
    return Code(f"{mask}\n{text}", bound=bound)

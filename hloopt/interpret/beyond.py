"""What lies beyond the sizes of an array, as far as it is known.

Setting a larger size brings elements to light.  XLA keeps arrays at their bounds, so that a smaller size hides
elements and a larger one shows them again; here an array has its sizes only.  ``set-dimension-size`` and
``dynamic-update-slice`` therefore remember the array that they cut; other ops compute nothing beyond the sizes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hloopt.interpret.context import Context
    from hloopt.types import Array

__all__ = ["known", "remember"]

_KEY = ("beyond",)


def remember(context: Context, array: Array, whole: Array) -> Array:
    """The array, of which ``whole``, at least as large in each dimension, is known to go on."""
    if array.shape != whole.shape:
        table: dict[int, Any] = context.memory.setdefault(_KEY, {})
        key = id(array)
        table[key] = (weakref.ref(array, lambda _: table.pop(key, None)), whole)
    return array


def known(context: Context, array: Array) -> Array:
    """What is known of the array and beyond its sizes: the array itself, or a larger one."""
    entry = context.memory.get(_KEY, {}).get(id(array))
    if entry is None or entry[0]() is not array:
        return array
    whole: Array = entry[1]
    return whole

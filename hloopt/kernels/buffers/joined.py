"""Arrays that a loop's kernel writes right where a concatenate would put them.

What a loop carries is often split for it (``concat-removal``) and put together again afterwards::

    r = concatenate(get-tuple-element(loop_fusion), ...)

Where the parts of the result lie one behind the other in memory, the kernel writes them there, and nothing is
left to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from hloopt.analysis.aliasing import Aliasing, BufferValue, analyze_aliasing
from hloopt.analysis.layout import is_descending
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, walk

__all__ = ["Joined", "joined_in_place"]

_ALIGNMENT: Final = 16
"""Bytes: what kernels read and write at once at most."""


@dataclass(frozen=True)
class Joined:
    """Concatenates that no kernel runs; ``places`` has for each part, by the number of its value, the number of
    the whole's value and the byte at which it begins there.
    """

    concatenates: frozenset[Instruction]
    places: Mapping[int, tuple[int, int]]


def joined_in_place(module: Module, aliasing: Aliasing | None = None) -> Joined:
    """The concatenates of a module whose operands may be parts of their result.

    Each operand is another result of a loop's kernel, not aligned worse than what kernels read at once, that
    shares its memory with nothing and is not a result of the module; the result shares its memory with nothing.
    ``aliasing`` is that of the module, where it is known.
    """
    found = [
        entry
        for computation in walk.top_level_computations(module)
        for entry in computation
        if entry.opcode == "concatenate" and _is_split(entry)
    ]
    if not found:
        return Joined(frozenset(), {})
    aliasing = aliasing or analyze_aliasing(module)
    places: dict[int, tuple[int, int]] = {}
    joined: set[Instruction] = set()
    for whole in found:
        rows = _places(whole, aliasing, module)
        if rows and places.keys().isdisjoint(rows):
            places |= rows
            joined.add(whole)
    return Joined(frozenset(joined), places)


def _is_split(whole: Instruction) -> bool:
    """Whether the operands lie one behind the other in the result, and aligned."""
    (along,) = whole.attributes["dimensions"]
    if prod(whole.array.dims[:along]) != 1 or whole.array.dtype.bits % 8:
        return False
    at = 0
    for part in whole.operands:
        if not is_descending(part.array) or not part.array.elements:
            return False
        if at % _ALIGNMENT and part.array.elements > 1:
            return False
        at += part.array.byte_size
    return is_descending(whole.array) and at == whole.array.byte_size


def _places(
    whole: Instruction, aliasing: Aliasing, module: Module
) -> dict[int, tuple[int, int]] | None:
    result = aliasing.value(whole)
    if not _is_alone(result, aliasing):
        return None
    rows: dict[int, tuple[int, int]] = {}
    at = 0
    for part in whole.operands:
        value = aliasing.value(part)
        made = value.defined.instruction
        if not _is_alone(value, aliasing) or value.number in rows or fused_loop(made) is None:
            return None
        is_result = any(place.instruction is module.entry.root for place in value.positions)
        if made.computation is not whole.computation or is_result:
            return None
        rows[value.number] = result.number, at
        at += part.array.byte_size
    return rows


def _is_alone(value: BufferValue, aliasing: Aliasing) -> bool:
    return value.kind == "temporary" and len(aliasing.alias_set(value).values) == 1

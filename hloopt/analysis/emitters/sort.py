"""The bitonic sort's order of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = ["THREAD_ELEMENTS", "SortPass", "sort_masks", "sort_passes"]


THREAD_ELEMENTS: Final = 4
"""Adjacent ones that a thread of a kernel with shared memory has."""


@dataclass(frozen=True, slots=True)
class SortPass:
    """One launch.

    masks    elements ``i`` and ``i ^ mask`` are compared where ``i`` is the smaller and the other is inside
    tile     elements of a line in one block's shared memory; 0 where the kernel works on global memory, with
             one mask and a thread for each pair
    threads  of a block (0 for global memory: the launch is a loop's over the pairs)
    blocks   for each line
    """

    masks: tuple[int, ...]
    tile: int
    threads: int
    blocks: int


def sort_masks(size: int) -> tuple[int, ...]:
    """The masks that sort a line of ``size`` elements, whatever size is.

    Stage s, of ``ceil(log2 size)``, mirrors within blocks of ``2^(s+1)`` elements and then merges at the
    distances ``2^(s-1)`` .. 1.  A pair is swapped where the comparator is true of (element at the larger index,
    element at the smaller index); pairs that reach past the end are left out.
    """
    masks: list[int] = []
    for stage in range(_stages(size)):
        masks.append((2 << stage) - 1)
        masks.extend(1 << distance for distance in range(stage - 1, -1, -1))
    return tuple(masks)


def sort_passes(size: int, bits: Sequence[int], target: Target) -> tuple[SortPass, ...]:
    """The launches that sort lines of ``size`` elements; ``bits`` are the widths of the operands' elements.

    Masks that stay within a tile follow one another in one kernel.
    """
    tile = _tile(size, bits, target)
    passes: list[SortPass] = []
    within: list[int] = []

    def flush() -> None:
        if within:
            threads = max(1, tile // THREAD_ELEMENTS)
            passes.append(SortPass(tuple(within), tile, threads, -(-size // tile)))
            within.clear()

    for mask in sort_masks(size):
        if mask < tile:
            within.append(mask)
        else:
            flush()
            pairs = 1 << (_stages(size) - 1)
            passes.append(SortPass((mask,), 0, 0, pairs))
    flush()
    return tuple(passes)


def _stages(size: int) -> int:
    return max(0, size - 1).bit_length()


def _tile(size: int, bits: Sequence[int], target: Target) -> int:
    """The largest power of two of elements that threads and shared memory of a block allow."""
    bytes_each = sum(-(-width // 8) for width in bits) or 1
    most = min(
        target.threads_per_block * THREAD_ELEMENTS,
        target.shared_per_block // bytes_each,
        1 << _stages(size),
    )
    return 1 << (max(1, most).bit_length() - 1)

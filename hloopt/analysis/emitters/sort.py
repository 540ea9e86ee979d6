"""The bitonic sort's order of comparisons, and when XLA calls a library instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = [
    "LIBRARY_SORTS",
    "LibrarySort",
    "SortOptions",
    "SortPass",
    "library_sorts",
    "sort_masks",
    "sort_passes",
]


@dataclass(frozen=True)
class SortOptions:
    """``elements`` adjacent ones that a thread of a kernel with shared memory has (XLA: 4)."""

    elements: int = 4


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
    element at the smaller index); pairs that reach beyond the end are left out.
    """
    masks: list[int] = []
    for stage in range(_stages(size)):
        masks.append((2 << stage) - 1)
        masks.extend(1 << distance for distance in range(stage - 1, -1, -1))
    return tuple(masks)


def sort_passes(
    size: int, bits: Sequence[int], target: Target, options: SortOptions | None = None
) -> tuple[SortPass, ...]:
    """The launches that sort lines of ``size`` elements; ``bits`` are the widths of the operands' elements.

    Masks that stay within a tile follow one another in one kernel.
    """
    options = options or SortOptions()
    tile = _tile(size, bits, target, options)
    passes: list[SortPass] = []
    within: list[int] = []

    def flush() -> None:
        if within:
            threads = max(1, tile // options.elements)
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


def _tile(size: int, bits: Sequence[int], target: Target, options: SortOptions) -> int:
    """The largest power of two of elements that threads and shared memory of a block allow."""
    bytes_each = sum(-(-width // 8) for width in bits) or 1
    most = min(
        target.threads_per_block * options.elements,
        target.shared_per_block // bytes_each,
        1 << _stages(size),
    )
    return 1 << (max(1, most).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class LibrarySort:
    """A range of sizes where the library is quicker: lines and elements of a line, bounds included.

    ``lines_per_core``: no more lines than so many for each core, where not 0.
    """

    least_lines: int = 1
    most_lines: int | None = None
    least_elements: int = 1
    most_elements: int | None = None
    lines_per_core: int = 0

    def holds(self, lines: int, elements: int, cores: int) -> bool:
        """Whether a sort is in the range."""
        return (
            self.least_lines <= lines
            and (self.most_lines is None or lines <= self.most_lines)
            and self.least_elements <= elements
            and (self.most_elements is None or elements <= self.most_elements)
            and (not self.lines_per_core or lines <= self.lines_per_core * cores)
        )


def _single(above: int) -> LibrarySort:
    return LibrarySort(most_lines=1, least_elements=above + 1)


def _many(*above: tuple[int, int]) -> tuple[LibrarySort, ...]:
    """More lines than the first number with more elements than two to the power of the second."""
    return tuple(
        LibrarySort(least_lines=lines + 1, least_elements=(1 << power) + 1)
        for lines, power in above
    )


_HOPPER_8 = (
    _single(0),
    LibrarySort(least_lines=9, least_elements=1301),
    LibrarySort(least_elements=1301, most_elements=25999),
)
_FROM_4096 = LibrarySort(least_elements=4096)

Generation: TypeAlias = Literal["ampere", "hopper", "blackwell"]

LIBRARY_SORTS: Mapping[Generation, Mapping[int, tuple[LibrarySort, ...]]] = {
    "hopper": {
        8: _HOPPER_8,
        16: (
            _single(512),
            *_many((12, 16), (14, 15), (16, 14), (18, 13), (33, 12), (66, 11)),
        ),
        32: (
            _single(22000),
            *_many((26, 17), (31, 16), (38, 15), (44, 14), (52, 13)),
            LibrarySort(least_lines=89, least_elements=4097, lines_per_core=1),
        ),
        64: (
            _single(1 << 17),
            *_many((55, 17), (70, 16), (92, 15), (354, 14)),
            LibrarySort(least_lines=161, least_elements=(1 << 14) + 1, lines_per_core=2),
        ),
    },
    "ampere": {
        8: (
            _single(0),
            LibrarySort(least_lines=6, least_elements=1001),
            LibrarySort(least_elements=1001, most_elements=42999),
        ),
        16: (_single(1 << 16), *_many((9, 17), (13, 13), (27, 12), (54, 11))),
        32: (
            _single(1 << 15),
            *_many((24, 17), (30, 16), (36, 15), (39, 14), (52, 13), (144, 12)),
        ),
        64: (
            _single(1 << 16),
            *_many((46, 17), (55, 16), (72, 15), (289, 14)),
            LibrarySort(least_lines=139, least_elements=(1 << 14) + 1, lines_per_core=2),
        ),
    },
    "blackwell": {
        8: tuple(
            LibrarySort(
                entry.least_lines,
                entry.most_lines,
                max(1025, entry.least_elements),
                entry.most_elements,
            )
            for entry in _HOPPER_8
        ),
        16: (_FROM_4096,),
        32: (
            LibrarySort(most_lines=1, least_elements=4096),
            LibrarySort(least_lines=27, least_elements=1 << 17),
            LibrarySort(least_lines=32, least_elements=1 << 16),
            LibrarySort(least_lines=39, least_elements=1 << 15),
            LibrarySort(least_lines=45, least_elements=1 << 14),
            LibrarySort(least_lines=53, least_elements=1 << 13),
            LibrarySort(least_lines=89, most_lines=127, least_elements=1 << 12),
        ),
        64: (LibrarySort(least_elements=1 << 14),),
    },
}
"""By generation and by the bits of the first operand's elements: where XLA's measurements favour CUB."""

_OTHERS_ABOVE = 16384


def library_sorts(
    lines: int, elements: int, bits: int, target: Target, *, has_values: bool = False
) -> bool:
    """Whether XLA would have a library sort ``lines`` lines of ``elements`` elements of ``bits`` bits.

    Asks the sizes only: comparator and types have to suit the library as well.  ``has_values``: a second
    operand travels along, which on Blackwell rules out keys of 64 bits.
    """
    if elements < 1:
        return False
    generation = _generation(target)
    if generation is None:
        return lines * elements > _OTHERS_ABOVE
    if generation == "blackwell" and bits == 64 and has_values:
        return False
    ranges = LIBRARY_SORTS[generation].get(bits, ())
    return any(entry.holds(lines, elements, target.cores) for entry in ranges)


def _generation(target: Target) -> Generation | None:
    major = target.capability[0] if target.kind == "cuda" else 0
    if major >= 10:
        return "blackwell"
    if major == 9:
        return "hopper"
    return "ampere" if major == 8 else None

"""The four reduction kernels: which one a reduce gets, and what each thread reads.

A reduce is three merged dimensions (``analysis/reduction.py``): a row reduction is (major reduced, kept, minor
reduced), a column reduction (major kept, reduced, minor kept).  All four kernels are free of atomics: one block
finishes each result.  Longer ones are split beforehand (``tree_split.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from hloopt.analysis.emitters.launch import LaunchDimensions, tiled_launch
from hloopt.analysis.hero import is_real_reduction_hero
from hloopt.analysis.reduction import WARP_SIZE, ReductionDims
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape

__all__ = [
    "ReductionForm",
    "ReductionTiling",
    "Widths",
    "column_tiling",
    "multi_row_tiling",
    "reduction_groups",
    "reduction_tiling",
    "reduction_widths",
    "row_tiling",
    "small_column_tiling",
    "vector_size",
]


ReductionForm: TypeAlias = Literal["row", "multi-row", "column", "small-column"]


# XLA's figures.
_ROW_ELEMENTS: Final = 16
"""Of the minor dimension a thread of a row kernel reads, at most."""
_ROW_THREADS: Final = 1024
"""On one row, at most."""
_ROW_BLOCK: Final = 256
"""Threads of a block that short rows are gathered to fill."""
_MULTI_ROW_BITS: Final = 64
"""That a thread of a multi-row kernel reads at once."""
_MULTI_ROW_WIDE_BITS: Final = 128
"""The same where inputs or outputs have 32 bits or more."""
_SMALL_COLUMN_THREADS: Final = 128
"""Of a small-column kernel's block."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Bits of the narrowest input and output of a kernel; ``smallest_input`` is None where it has no input.

    ``is_complex``: an operand of a reduce has complex elements, which are never read several at once.
    ``is_variadic``: a reduce has several results.
    """

    smallest_input: int | None
    smallest_output: int
    is_complex: bool = False
    is_variadic: bool = False


@dataclass(frozen=True, slots=True)
class ReductionTiling:
    """How blocks and threads share a reduction.  With ``t`` the thread's number and ``s``, ``v`` loop counters:

    row           threads (kept, reduced), blocks (of kept, of minor reduced), per_thread (major, m, vector);
                  element ``[s0, b0 * threads[0] + t // threads[1],
                  ((b1 * m + s1) * threads[1] + t % threads[1]) * vector + v]``
    multi-row     threads (kept, reduced), blocks (of kept, 1), per_thread (major, 1, vector); element
                  ``[s0, b0 * threads[0] + t // threads[1], (t % threads[1]) * vector + v]``
    column        threads (warps, lanes), blocks (major kept, of minor kept), per_thread (1, strip, vector);
                  element ``[b0, t // lanes + warps * s1, (b1 * lanes + t % lanes) * vector + v]``
    small-column  threads (1, n), blocks (major kept, 1), per_thread (1, loop, vector); the element of
                  ``[b0]`` at ``(s1 * n + t) * vector + v``, counted over (reduced, minor kept)

    Elements outside ``dims`` do not exist.  Blocks are numbered ``b0 * blocks[1] + b1``.

    dims       the merged dimensions
    vector     neighbouring elements a thread reads at once; divides the minor dimension (small-column: the
               product of the last two)
    shared     (rows, columns, padding of a row) of the tile each operand has in shared memory; (0, 0, 0) where
               warps exchange everything by shuffles.  Row: [threads[0]][warps of a row].  Column: written at
               [lane][warp * vector + v], read at [warp][lane * vector + v].  Small column: written at
               divmod(t * vector + v, minor kept), read at divmod(t + v * n, rows) swapped
    distance   the first distance of the last tree of shuffles; lane 0 of its lanes writes
    """

    form: ReductionForm
    dims: tuple[int, int, int]
    threads: tuple[int, int]
    blocks: tuple[int, int]
    per_thread: tuple[int, int, int]
    shared: tuple[int, int, int]
    distance: int

    @property
    def vector(self) -> int:
        """Neighbouring elements a thread reads at once."""
        return self.per_thread[2]

    @property
    def threads_per_block(self) -> int:
        """Threads of a block."""
        return self.threads[0] * self.threads[1]

    @property
    def block_count(self) -> int:
        """Blocks, for one group of reductions."""
        return self.blocks[0] * self.blocks[1]

    @property
    def shared_elements(self) -> int:
        """Elements of the tile in shared memory that each operand has."""
        rows, columns, padding = self.shared
        return rows * (columns + padding)

    def shared_bytes(self, bits: Iterable[int]) -> int:
        """Bytes of shared memory for operands with elements of these widths in bits."""
        return sum(self.shared_elements * -(-width // 8) for width in bits)

    def launch(self, target: Target, groups: int = 1) -> LaunchDimensions:
        """Grid and block; each group of reductions has its own z."""
        return tiled_launch(self.block_count, self.threads_per_block, target, groups)


def reduction_widths(region: Region, heroes: Iterable[Instruction]) -> Widths:
    """The widths that decide about vectors in a reduction kernel of these heroes."""
    inputs = [shape.dtype.bits for shape in region.operands]
    outputs = [result.shape.dtype.bits for result in region.results]
    reduces = tuple(heroes)
    shapes = [operand.shape for reduce in reduces for operand in reduce.operands]
    return Widths(
        min(inputs, default=None),
        min(outputs, default=8),
        any(isinstance(shape, ArrayShape) and shape.dtype.is_complex for shape in shapes),
        any(len(reduce.operands) > 2 for reduce in reduces),
    )


def reduction_tiling(form: ReductionDims, widths: Widths, target: Target) -> ReductionTiling:
    """The kernel XLA gives a reduce: several rows a warp before one, small columns before large ones.

    Reduces of several results have one row a warp at least.
    Raises ``ValueError`` for a dimension of size 0: there is nothing to reduce.
    """
    if 0 in form.dims:
        raise ValueError(f"a reduction of {form.dims} has no elements")
    if form.is_row:
        if not widths.is_variadic:
            several = multi_row_tiling(form.dims, widths, target)
            if several is not None:
                return several
        return row_tiling(form.dims, widths)
    if WARP_SIZE % form.dims[2] == 0:
        return small_column_tiling(form.dims, widths)
    return column_tiling(form.dims, widths)


def vector_size(minor: int, threads: int, widths: Widths) -> int:
    """Neighbouring elements a thread of a row or column kernel reads at once: 1, 2 or 4.

    ``minor`` is the size of the dimension that ``threads`` threads share; each must still have work.
    """
    bits = widths.smallest_input
    if minor % 2 or 2 * threads > minor or widths.is_complex or bits is None or bits >= 64:
        return 1
    if bits >= 32 or 4 * threads > minor:
        return 2
    return 4 if minor % 4 == 0 else 2


def row_tiling(dims: tuple[int, int, int], widths: Widths) -> ReductionTiling:
    """One or more warps a row; rows of few threads share a block."""
    major, kept, minor = dims
    reduced = min(_ROW_THREADS, -(-minor // (_ROW_ELEMENTS * WARP_SIZE)) * WARP_SIZE)
    rows = _rows_of_block(kept, reduced) if 2 * reduced <= _ROW_BLOCK else 1
    vector = vector_size(minor, reduced, widths)
    vectors = minor // vector
    steps = min(_ROW_ELEMENTS // vector, -(-vectors // reduced))
    warps = -(-reduced // WARP_SIZE)
    shared = (rows, warps, int(warps % WARP_SIZE == 0)) if warps > 1 else (0, 0, 0)
    blocks = (-(-kept // rows), -(-vectors // (steps * reduced)))
    return ReductionTiling(
        "row", dims, (rows, reduced), blocks, (major, steps, vector), shared, WARP_SIZE // 2
    )


def multi_row_tiling(
    dims: tuple[int, int, int], widths: Widths, target: Target
) -> ReductionTiling | None:
    """Several short rows a warp; None where a row is not a power of two or does not fit into one."""
    major, kept, minor = dims
    if minor < 1 or minor & (minor - 1):
        return None
    bits = [width for width in (widths.smallest_input, widths.smallest_output) if width is not None]
    vector = min(minor, max(1, _MULTI_ROW_BITS // min(bits)))
    if max(bits) >= 32:
        vector = min(vector, max(1, _MULTI_ROW_WIDE_BITS // max(bits)))
    if minor > WARP_SIZE * vector:
        return None
    while vector > 1 and -(-kept // _rows_of_block(kept, minor // vector)) < target.cores:
        vector //= 2
    if minor > WARP_SIZE * vector:
        return None
    reduced = minor // vector
    rows = _rows_of_block(kept, reduced)
    blocks = (-(-kept // rows), 1)
    return ReductionTiling(
        "multi-row", dims, (rows, reduced), blocks, (major, 1, vector), (0, 0, 0), reduced // 2
    )


def column_tiling(dims: tuple[int, int, int], widths: Widths) -> ReductionTiling:
    """A warp's lanes stand on neighbouring columns, its warps on rows; partial sums turn in shared memory."""
    major, reduced, minor = dims
    vector = vector_size(minor, WARP_SIZE, widths)
    blocks = (major, -(-minor // (WARP_SIZE * vector)))
    strip = -(-reduced // WARP_SIZE)
    shared = (WARP_SIZE, WARP_SIZE * vector, 1)
    return ReductionTiling(
        "column", dims, (WARP_SIZE, WARP_SIZE), blocks, (1, strip, vector), shared, WARP_SIZE // 2
    )


def small_column_tiling(dims: tuple[int, int, int], widths: Widths) -> ReductionTiling:
    """A block reads the (reduced, minor kept) elements of one major index in order.

    As the minor dimension divides a warp, a thread sees the same columns in every step.  Raises ``ValueError``
    where it does not.
    """
    major, reduced, minor = dims
    if minor < 1 or WARP_SIZE % minor:
        raise ValueError(f"a minor dimension of {minor} does not divide a warp of {WARP_SIZE}")
    vector = vector_size(reduced * minor, WARP_SIZE, widths)
    threads = _SMALL_COLUMN_THREADS
    while vector > 1 and vector * threads // minor > WARP_SIZE:
        vector //= 2
    threads = min(threads, WARP_SIZE * minor // vector)
    rows = vector * threads // minor
    loop = -(-reduced * minor // (vector * threads))
    padding = 0 if threads == WARP_SIZE and vector == 1 else -(-minor // (threads * vector))
    shared = (rows, minor, padding)
    return ReductionTiling(
        "small-column", dims, (1, threads), (major, 1), (1, loop, vector), shared, rows // 2
    )


def _rows_of_block(kept: int, reduced: int) -> int:
    """Rows that fill a block of ``row_block`` threads with ``reduced`` threads each."""
    if kept * reduced <= _ROW_BLOCK:
        return kept
    return max(1, _ROW_BLOCK // reduced)


def reduction_groups(
    region: Region, roots: Sequence[Instruction], heroes: Sequence[Instruction]
) -> tuple[tuple[int, ...], ...]:
    """The numbers of the roots, grouped; each group has its own z in the grid.

    Roots that are computed from a common value are one group.  Values of one element, constants and their
    broadcasts do not join reductions, as every group can have its own; all roots that are not reductions are in
    one group.
    """
    classes = UnionFind[int]()
    reductions = {
        number
        for number, pair in enumerate(zip(roots, heroes, strict=True))
        if is_real_reduction_hero(*pair)
    }
    classes.join(*(number for number in range(len(roots)) if number not in reductions))
    for instruction, reached in _reached(region, roots).items():
        numbers = sorted(reached)
        if _is_cheap(instruction):
            first = [number for number in numbers if number in reductions][:1]
            numbers = sorted([*first, *(number for number in numbers if number not in reductions)])
        classes.join(*numbers)
    groups: dict[int, list[int]] = {}
    for number in range(len(roots)):
        groups.setdefault(classes.find(number), []).append(number)
    return tuple(map(tuple, groups.values()))


def _reached(region: Region, roots: Sequence[Instruction]) -> dict[Instruction, set[int]]:
    """For each value in the kernel, inputs too, the numbers of the roots computed from it."""
    reached: dict[Instruction, set[int]] = {}
    for number, root in enumerate(roots):
        reached.setdefault(root, set()).add(number)
    for instruction in reversed(region.body):
        for operand in instruction.operands:
            reached.setdefault(operand, set()).update(reached.get(instruction, ()))
    return reached


def _is_cheap(instruction: Instruction) -> bool:
    """A constant, a value of rank 0, or a broadcast of either."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" or getattr(instruction.shape, "dims", None) == ()

"""How long a fusion takes that goes over whole rows, as the kernel ``whole-row`` does.

A block has rows: it reads each operand once, computes each op of the body once an element, and writes the
results.  What later passes over a row need again stays in registers, where a block has room for the row;
longer rows are read, and what is not kept is computed, again for each pass.  XLA's model of Triton kernels
counts reads and writes the same way (``block_level``); arithmetic is that of the code which we write
(``instructions.issued_ns``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.cost import elements_demanded
from hloopt.analysis.online_sums import merged_with_next
from hloopt.analysis.reduction import WARP_SIZE, reduction_dims
from hloopt.cost_models.device_times import L2_SPEEDUP, LAUNCH_NS, DeviceTimes
from hloopt.cost_models.instructions import FOLDS_RUNNING, issued_ns
from hloopt.cost_models.model import RunTime
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, elements_of, leaves

__all__ = [
    "RESIDENT",
    "RUNNING",
    "WHOLE_ROW",
    "RowBlocks",
    "fused_rows_run_time",
    "launches_of_rows",
    "row_blocks",
    "rows_run_time",
]

WHOLE_ROW: Final = "whole-row"
"""The name of the kernel, in the configuration of such a fusion."""

RUNNING: Final = "running-reduction"
"""The same of a running reduction along rows, which is priced alike."""

_BLOCK: Final = 256
_MOST_THREADS: Final = 1024
_VECTOR_BITS: Final = 128
RESIDENT: Final = 768
"""Threads that a core has at once where columns are added up: its blocks go from row to row, and more of them
leave more partial results."""
_KEPT: Final = 32
"""Elements of a row that a thread keeps at most."""


class RowBlocks(NamedTuple):
    """Rows that a block has at once, threads of a row, and neighbours that a thread reads at once."""

    rows: int
    threads: int
    vector: int


def row_blocks(rows: int, minor: int, arrays: Iterable[ArrayShape], cores: int) -> RowBlocks:
    """How blocks take so many rows, of so many elements each: no core is without one while there are rows.

    A thread reads as many neighbours as 16 bytes hold of the widest of the ``arrays`` that have an element a
    place, and has 16 elements of a row, or 4 where there are fewer rows than cores.
    """
    bits = [shape.dtype.bits for shape in arrays if shape.elements == rows * minor]
    vector = max(1, _VECTOR_BITS // max(bits, default=32))
    while minor % vector:
        vector //= 2
    vector = min(vector, 8)
    vectors, elements = minor // vector, 16 if rows >= cores else 4
    if vectors <= WARP_SIZE // 2:
        threads = 1 << (vectors - 1).bit_length()
    else:
        threads = min(_MOST_THREADS, -(-minor // (elements * WARP_SIZE)) * WARP_SIZE)
    several = max(1, _BLOCK // threads)
    several = min(several, -(-rows * threads // WARP_SIZE) * WARP_SIZE // threads)
    while several * threads > WARP_SIZE and several > 1 and -(-rows // several) < cores:
        several = max(several // 2, WARP_SIZE // threads, 1)
    several = max(1, -(-several * threads // WARP_SIZE) * WARP_SIZE // threads)
    return RowBlocks(several, threads, vector)


def fused_rows_run_time(
    fusion: Instruction, usage: UsageAnalysis, times: DeviceTimes
) -> RunTime | None:
    """As ``CostModel.run_time`` has it; None for every other instruction."""
    if fusion.opcode != "fusion" or custom_name(fusion) not in (WHOLE_ROW, RUNNING):
        return None
    return rows_run_time(fusion, usage, times)


def rows_run_time(fusion: Instruction, usage: UsageAnalysis, times: DeviceTimes) -> RunTime | None:
    """The time of a fusion as such a kernel, whatever its configuration says; None where no row is reduced."""
    body = fusion.attributes["calls"]
    rows, minor = _rows_of(body)
    if not minor:
        return None
    shapes = (leaf for one in (*fusion.operands, fusion) for leaf in leaves(one.shape))
    arrays = (leaf for leaf in shapes if isinstance(leaf, ArrayShape))
    tile = row_blocks(rows, minor, arrays, times.target.cores)
    blocks, threads = max(1, -(-rows // tile.rows)), tile.rows * tile.threads
    kept = minor <= _KEPT * _MOST_THREADS
    phases, needs = _phases(body, rows * minor, online=not kept), elements_demanded(body)
    again = 0 if kept else len(set().union(*phases.values())) - 1
    at_once = min(rows, min(blocks, times.target.cores) * tile.rows)
    total, read = _reading(
        _read_once(fusion, needs), (rows, minor), (again, at_once), (blocks, times)
    )
    written = sum(leaf.byte_size for leaf in leaves(fusion.shape))
    write = times.write(written)
    resident = times.target.cores * max(1, RESIDENT // threads)
    partial = 4 * minor * _columns(body, rows, minor) * min(blocks, resident)
    if partial:
        # Written by the blocks, and read by a second launch.
        write += 2 * times.write(partial) + LAUNCH_NS
        total, written = total + partial, written + partial
    often = [
        (op, share * (len(phases.get(op, "1")) if again else 1))
        for op in body
        if (share := needs.get(op, 0) / max(1, elements_of(op.shape)))
    ]
    flops = int(sum(_flops(op, usage) * count for op, count in often))
    issued = issued_ns(often, times.target)
    compute = times.compute(flops, blocks, threads) if issued is None else issued
    return RunTime(
        flops,
        int(total),
        written,
        read,
        write,
        compute,
        times.together(compute, read + write),
        blocks,
        threads,
    )


def _reading(
    needed: Mapping[Instruction, int],
    form: tuple[int, int],
    repeats: tuple[int, int],
    device: tuple[int, DeviceTimes],
) -> tuple[int, float]:
    """Bytes and nanoseconds of reading ``needed`` bytes of the operands, by rows and elements of each.

    ``repeats`` are how often a row is read once more, and how many rows all cores have at once; ``device`` the
    blocks and its times.
    """
    (rows, minor), (again, at_once), (blocks, times) = form, repeats, device
    each = sum(size for size in needed.values() if size >= rows * minor)
    # Each pass goes back the way the one before came: what was read last is in the second-level cache.
    cached = min(1.0, times.target.l2_size / max(1, each // rows * at_once))
    total, read = 0, 0.0
    for operand, size in needed.items():
        elements = operand.array.elements if isinstance(operand.shape, ArrayShape) else 0
        repeated = 0
        if 1 < elements < rows * minor and elements != rows:
            # One for each place of a row: the blocks read it again and again.
            repeated = rows * minor * size // elements - size
        elif elements == rows * minor:
            repeated = again * size
        total += size + repeated
        read += times.read(operand.shape, size, blocks, coalesced=True)
        if repeated and elements == rows * minor:
            slowness = cached / L2_SPEEDUP + 1 - cached
            read += repeated * slowness / times.target.memory_bandwidth * 1e9
        elif repeated:
            every = times.read(operand.shape, size + repeated, blocks, coalesced=True)
            read += every - times.read(operand.shape, size, blocks, coalesced=True)
    return total, read


def _read_once(fusion: Instruction, needs: Mapping[Instruction, int]) -> dict[Instruction, int]:
    """Bytes of each operand that are needed; of one that occurs twice what both parameters need."""
    found: dict[Instruction, int] = {}
    for operand, parameter in zip(fusion.operands, fusion.calls.parameters, strict=True):
        size, elements = operand.shape.byte_size, max(1, elements_of(operand.shape))
        read = size * needs.get(parameter, 0) // elements
        found[operand] = min(size, found.get(operand, 0) + read)
    return found


def launches_of_rows(fusion: Instruction) -> int:
    """How many launches such a fusion has: a second one adds up columns."""
    body = fusion.attributes["calls"]
    rows, minor = _rows_of(body)
    return 2 if minor and _columns(body, rows, minor) else 1


def _flops(op: Instruction, usage: UsageAnalysis) -> int:
    return FOLDS_RUNNING * op.array.elements if op.opcode == "reduce-window" else usage.op(op).flops


def _rows_of(body: Iterable[Instruction]) -> tuple[int, int]:
    for inner in body:
        if inner.opcode == "reduce":
            form = reduction_dims(inner)
            if form is not None and form.is_row and form.dims[0] == 1:
                return form.dims[1:]
        elif inner.opcode == "topk":
            minor = inner.operands[0].array.dims[-1]
            return inner.operands[0].array.elements // minor, minor
        elif inner.opcode == "reduce-window":
            minor = inner.array.dims[-1]
            return inner.array.elements // max(1, minor), minor
    return 0, 0


def _columns(body: Computation, rows: int, minor: int) -> int:
    """Sums over the rows, with a value a place."""
    found = 0
    for inner in body:
        if inner.opcode == "reduce" and isinstance(inner.shape, ArrayShape):
            form = reduction_dims(inner)
            found += form is not None and not form.is_row and form.dims == (1, rows, minor)
    return found


def _merge_levels(levels: dict[Instruction, int]) -> None:
    """Let sums that are made together with their rows' maxima have these ones' level."""
    heroes: list[list[Instruction]] = [[] for _ in range(max(levels.values(), default=0))]
    for inner, level in levels.items():
        if inner.opcode == "reduce":
            heroes[level - 1].append(inner)
    earlier = [0, 0, *accumulate(merged_with_next(heroes))]
    for inner, level in levels.items():
        levels[inner] = level - earlier[level]


def _phases(body: Computation, full: int, *, online: bool) -> dict[Instruction, set[int]]:
    """The passes over a row in which an op with an element a place is needed: for reductions, for results.

    ``online`` where rows are read again in each.
    """
    levels: dict[Instruction, int] = {}
    for inner in body:
        above = max((levels[operand] for operand in inner.operands), default=0)
        levels[inner] = above + (inner.opcode == "reduce")
    if online:
        _merge_levels(levels)
    last = max(levels.values(), default=0)
    root = body.root
    written = set(root.operands if root.opcode == "tuple" else (root,))
    found: dict[Instruction, set[int]] = {}
    for inner in reversed(list(body)):
        if not isinstance(inner.shape, ArrayShape) or inner.shape.elements != full:
            continue
        own = found.setdefault(inner, set())
        for user in inner.users:
            if user.opcode == "reduce":
                own.add(levels[user] - 1)
            own |= found.get(user, set())
        if inner in written:
            own.add(last)
    return found

"""How long a reduction takes whose results are shared by blocks, as the kernel ``split-reduction`` does.

XLA cuts such a reduction in two before it fuses; here it stays one instruction, and its kernel has two
launches: the blocks of the first leave ``parts`` partial results for each result in memory, and the second
folds those.  The number of parts is the kernel's own (``split_parts``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hloopt.analysis.emitters.tree_split import SPLIT_STEPS, split_parts
from hloopt.analysis.reduction import (
    WARP_SIZE,
    ReductionDims,
    is_race_free,
    is_unnested,
    reduction_dims,
)
from hloopt.cost_models.device_times import LAUNCH_NS, DeviceTimes
from hloopt.cost_models.model import RunTime
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import elements_of, parts_of

__all__ = ["parts_of_reduction", "split_run_time"]

_Reading: TypeAlias = Callable[[int], float]
"""Nanoseconds to read the operands with so many blocks."""


def parts_of_reduction(
    heroes: Sequence[Instruction], kernel: RunTime, target: Target, *, by_cores: bool
) -> int:
    """Blocks that share a result of a reduction; 1 where a block finishes each by itself.

    Blocks share what is too long for one, and ``by_cores`` what leaves half of the cores without a block.
    """
    if not heroes or not kernel.blocks:
        return 1
    form = reduction_dims(heroes[0])
    if form is None or not all(map(is_unnested, heroes)):
        return 1
    steps = _steps(form, kernel)
    is_idle = by_cores and 2 * kernel.blocks <= target.cores and steps >= SPLIT_STEPS
    if all(map(is_race_free, heroes)) and not is_idle:
        return 1
    return split_parts(target, kernel.blocks, kernel.threads, steps)


def _steps(form: ReductionDims, kernel: RunTime) -> int:
    """Elements of a result that a thread folds one after the other."""
    major, middle, minor = form.dims
    if not form.is_row:
        return -(-middle // max(1, kernel.threads // WARP_SIZE))
    rows = max(1, middle // kernel.blocks)
    return major * -(-minor // max(1, kernel.threads // rows))


def split_run_time(
    whole: RunTime, heroes: Sequence[Instruction], parts: int, reading: _Reading, times: DeviceTimes
) -> RunTime:
    """Both launches of a reduction that takes ``whole`` with a block for each result."""
    blocks = whole.blocks * parts
    results = [leaf for hero in heroes for leaf in parts_of(hero.shape)]
    elements = sum(map(elements_of, results))
    partial = sum(shape.byte_size for shape in results)
    read, write = reading(blocks), times.write(partial * parts)
    compute = times.compute(whole.flops, blocks, whole.threads)
    second = -(-elements * min(WARP_SIZE, parts) // whole.threads)
    folding = times.read(heroes[0].shape, partial * parts, second, coalesced=True)
    last = times.together(
        times.compute(elements * parts, second, whole.threads), folding + whole.write_ns
    )
    return RunTime(
        whole.flops + elements * parts,
        whole.bytes_read + partial * parts,
        whole.bytes_written + partial * parts,
        read + folding,
        write + whole.write_ns,
        compute,
        times.together(compute, read + write) + LAUNCH_NS + last,
        blocks,
        whole.threads,
        whole.coalesced,
        launches=2,
    )

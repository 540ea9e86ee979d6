"""What cost models return for a fusion that is a whole loop: the times of ``loop_time`` in their own form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.cost_models.model import RunTime
from hloopt.ir import Instruction
from hloopt.targets import Target

if TYPE_CHECKING:
    from hloopt.analysis.parallel_loop import LoopMapping
    from hloopt.cost_models.loop_time import LoopTime

__all__ = ["fused_loop_run_time", "fused_loop_time", "loop_run_time"]

_KINDS = {"while-per-thread": "thread", "while-per-block": "block"}


def fused_loop_time(fusion: Instruction, target: Target) -> tuple[LoopMapping, LoopTime] | None:
    """The time of a fusion that is a loop, by the kernel its backend_config names, else by the better one.

    None for every other instruction, and on devices whose instructions were not measured (all but NVIDIA's).
    """
    inner = fused_loop(fusion)
    if inner is None:
        return None
    # Few modules have such a fusion, and what prices it is large.
    from hloopt.analysis.backend_config import custom_name
    from hloopt.analysis.parallel_loop import gpu_mappings
    from hloopt.cost_models.loop_time import better_mapping, is_priced, loop_time

    if not is_priced(target):
        return None
    found = gpu_mappings(inner.loop, target)
    kind = _KINDS.get(custom_name(fusion))
    for mapping in found:
        if mapping.kind == kind:
            return mapping, loop_time(mapping, target)
    return better_mapping(found, target) or (found[0], loop_time(found[0], target))


def fused_loop_run_time(fusion: Instruction, target: Target) -> RunTime | None:
    """As ``CostModel.run_time`` has it; None as ``fused_loop_time``."""
    found = fused_loop_time(fusion, target)
    return None if found is None else loop_run_time(fusion, found[1])


def loop_run_time(fusion: Instruction, time: LoopTime) -> RunTime:
    """A loop's time as that of a kernel: computing is whatever an iteration waits for other than memory.

    Launches after the first are part of it.
    """
    cost = instruction_cost(fusion)
    runs = time.waves * time.iterations
    computing = runs * max(time.chain_ns, time.issue_ns)
    moving = time.ends_ns + runs * time.memory_ns
    read, written = cost.bytes_read, cost.bytes_written
    share = read / (read + written) if read + written else 0.0
    return RunTime(
        cost.flops + cost.transcendentals,
        read,
        written,
        moving * share,
        moving * (1 - share),
        computing,
        time.exec_ns + time.more_launches_ns,
        time.blocks,
        time.threads,
    )

"""The two mappings of a ``while`` to a kernel: a thread for each work item, or a block."""

from __future__ import annotations

from hloopt.analysis.parallel_loop.block_mapping import block_mapping
from hloopt.analysis.parallel_loop.model import LoopMapping
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["gpu_mappings"]


def gpu_mappings(loop: Instruction, target: Target) -> tuple[LoopMapping, LoopMapping]:
    """How a ``while`` would run by a thread for each work item, and by a block for each work item."""
    return thread_mapping(loop, target), block_mapping(loop, target)

"""The two ways to run a ``while`` as one kernel: a thread for each unit, or a block."""

from __future__ import annotations

from hloopt.analysis.parallel_loop.block_way import block_way
from hloopt.analysis.parallel_loop.model import LoopMapping
from hloopt.analysis.parallel_loop.thread_way import thread_way
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["ways"]


def ways(loop: Instruction, target: Target) -> tuple[LoopMapping, LoopMapping]:
    """How a ``while`` would run by a thread for each unit, and by a block for each unit."""
    return thread_way(loop, target), block_way(loop, target)

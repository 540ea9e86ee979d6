"""A thread for each unit: does it fit, and what does it take?"""

from __future__ import annotations

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import Way
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["thread_way"]


def thread_way(loop: Instruction, target: Target) -> Way:
    """How a ``while`` would run by a thread for each unit."""
    parallel = parallel_loop(loop, collect=True)
    problem = parallel.obstacle.words if parallel.obstacle is not None else ""
    return Way("thread", parallel, problem)

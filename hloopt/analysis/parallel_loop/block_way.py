"""A block for each unit: does it fit, and what does it take?"""

from __future__ import annotations

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import Way
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["block_way"]


def block_way(loop: Instruction, target: Target) -> Way:
    """How a ``while`` would run by a block for each unit."""
    parallel = parallel_loop(loop, collect=False)
    problem = parallel.obstacle.words if parallel.obstacle is not None else ""
    return Way("block", parallel, problem)

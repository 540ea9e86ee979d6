"""A thread for each work item: does it fit, and what does it need?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import LoopMapping
from hloopt.analysis.parallel_loop.thread_code import (
    code_problem,
    kernel_problem,
    not_elemental,
    part_bytes,
    size_problem,
    thread_plan,
)
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["MOST_LOCAL_BYTES", "MOST_PART_BYTES", "MOST_REGISTERS", "thread_mapping"]

MOST_REGISTERS: Final = 240
"""Estimated registers of a thread: it has 255, and what does not fit goes to memory in each iteration."""

MOST_LOCAL_BYTES: Final = 4096
"""Of the arrays of a thread that are not in registers: 64 threads' fill a core's first-level cache."""

MOST_PART_BYTES: Final = 1 << 30
"""Of what the warps leave of collected reduces until the loop is done."""


def thread_mapping(loop: Instruction, target: Target) -> LoopMapping:
    """How a ``while`` would run by a thread for each work item."""
    parallel = parallel_loop(loop, collect=True)
    mapping = LoopMapping("thread", parallel)
    problem = kernel_problem(parallel, not_elemental, ", a thread has one")
    if problem:
        return replace(mapping, **problem)
    plan = thread_plan(parallel)
    size = "a work item takes {} bytes in private arrays, a thread has {} at most"
    registers = "a work item takes {} registers, as estimated, a thread has {} at most"
    parts = "its warps leave {} bytes of reduces over work items, {} at most"
    left = part_bytes(parallel, -(-parallel.work_items // WARP_SIZE))
    problem = (
        size_problem(
            parallel,
            (plan.local_bytes, MOST_LOCAL_BYTES, size),
            (plan.registers, MOST_REGISTERS, registers),
        )
        or code_problem(plan)
        or size_problem(parallel, (left, MOST_PART_BYTES, parts))
    )
    stored = tuple((value, 0) for value in plan.stored)
    return replace(mapping, registers=plan.registers, stored=stored, **problem)

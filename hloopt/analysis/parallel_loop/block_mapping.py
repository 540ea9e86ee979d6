"""A block for each work item: does it fit, and what does it need?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hloopt.analysis.parallel_loop.block_plan import block_plan
from hloopt.analysis.parallel_loop.block_stages import BlockPlan, StagedIteration
from hloopt.analysis.parallel_loop.edges import LoopValue, graph_of
from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.parallel_loop.model import Axes, LoopMapping, ParallelLoop, Termination
from hloopt.analysis.parallel_loop.thread_code import kernel_problem, too_long
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.ir import Instruction
from hloopt.ops.traits import LIBRARY
from hloopt.targets import Target

__all__ = ["block_loop", "block_mapping", "block_threads", "shared_limit"]

_FINE: Final = 256
"""From so many threads on a block has a power of two of them: warps fold what each of them found."""

_LONG_BODY: Final = 500
"""Threads of loops with so many instructions need more registers than 1024 of them could have."""

_UNABLE = LIBRARY | {"scan", "topk"}


def block_mapping(loop: Instruction, target: Target) -> LoopMapping:
    """How a ``while`` would run by a block for each work item."""
    parallel = block_loop(loop)
    problem = kernel_problem(parallel, _op_problem, ", a block has one")
    if problem:
        return LoopMapping("block", parallel, **problem)
    if target.threads_per_block < WARP_SIZE:
        return LoopMapping("block", parallel, f"{target.name} has no blocks of threads", code="op")
    threads = block_threads(parallel, target)
    plan = block_plan(parallel, threads)
    stored = tuple(
        (value.instruction, value.leaf) for item in _items(plan.iteration) for value in item
    )
    mapping = LoopMapping(
        "block", parallel, shared_bytes=plan.shared_bytes, threads=threads, stored=stored
    )
    limit = shared_limit(target)
    if plan.shared_bytes <= limit:
        return replace(mapping, **too_long(loop, plan.code_bytes))
    code = "mixes" if parallel.mixing else "state-too-large"
    return replace(
        mapping, problem=_too_large(plan, limit), code=code, limit=limit, actual=plan.shared_bytes
    )


def block_loop(loop: Instruction) -> ParallelLoop:
    """The axes whose work items have a block each; none where all that work items own is streamed.

    Blocks would then all compute the same state, to write a part of the results each.
    """
    parallel = parallel_loop(loop, collect=False)
    if not parallel.sizes or any(carried.role == "owned" for carried in parallel.carried):
        return parallel
    carried = []
    for one in parallel.carried:
        nowhere: Axes = (None,) * one.shape.rank
        carried.append(replace(one, axes=nowhere))
    iterations = parallel.iterations
    if iterations.kind == "element":
        iterations = Termination("scalar", iterations.count, iterations.most)
    return replace(parallel, sizes=(), owned={}, carried=tuple(carried), iterations=iterations)


def shared_limit(target: Target) -> int:
    """Bytes of shared memory that a block may have."""
    return max(target.shared_per_block, target.shared_per_block_optin)


def block_threads(parallel: ParallelLoop, target: Target) -> int:
    """Threads of a block: one for each element of the largest array that they go over, if there are so many."""
    flow = Flow(parallel.loop, parallel.owned)
    path = ((parallel.loop, 1),)
    most, instructions = 1, 0
    for carried in parallel.carried:
        if carried.role in ("owned", "uniform"):
            most = max(most, carried.local_elements)
        if carried.update is not None:
            update = flow.resolve(path, carried.update.operands[1])
            most = max(most, flow.elements(update))
    for instruction in parallel.loop.body:
        instructions += 1
        if instruction.opcode in ("reduce", "dot", "sort"):
            for operand in (instruction, *instruction.operands[:2]):
                value = flow.resolve(path, operand)
                if value.path:
                    most = max(most, flow.elements(value))
    top = min(target.threads_per_block, 1024)
    if instructions > _LONG_BODY:
        top = _FINE
    threads = min(top, -(-most // WARP_SIZE) * WARP_SIZE)
    if threads > _FINE:
        threads = 1 << (threads - 1).bit_length()
    return min(threads, top)


def _op_problem(loop: Instruction) -> str:
    for instruction in graph_of(loop).ops:
        if instruction.opcode in _UNABLE:
            return f"{instruction.opcode} {instruction.name} has a separate kernel or none"
        for shape in (instruction, *instruction.operands):
            if any(size == 0 for size in getattr(shape.shape, "dims", ())):
                return f"{shape.name} has no elements"
    return ""


def _items(iteration: StagedIteration) -> Iterator[tuple[LoopValue, ...]]:
    for item in iteration.items:
        yield item.values
        if item.inner is not None:
            yield from _items(item.inner)


def _too_large(plan: BlockPlan, limit: int) -> str:
    parallel = plan.parallel
    assert plan.largest is not None
    if parallel.mixing:
        what = parallel.mixing[0].words
    else:
        what = f"{plan.largest.instruction.name} has {plan.flow.elements(plan.largest)} elements a work item"
    return f"{what}; a block would hold {plan.shared_bytes} bytes, it has {limit}"

"""How long an elementwise fusion takes whose threads go along a dimension, as the kernel ``loop-along`` does.

Each operand is read once, each result written once; values that do not have the dimension are computed once a
thread (``analysis/along.py``).  Arithmetic is that of the code which we write (``instructions.issued_ns``).
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.along import loop_along_of, repetitions
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.region import region_of
from hloopt.cost_models.device_times import PARALLELISM, DeviceTimes
from hloopt.cost_models.instructions import issued_ns, sorted_ns
from hloopt.cost_models.model import CostModel, RunTime
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.ir import Instruction
from hloopt.types import elements_of, leaves

__all__ = ["LOOP_ALONG", "fused_along_run_time", "own_ns"]

LOOP_ALONG: Final = "loop-along"
"""The name of the kernel, in the configuration of such a fusion."""

_THREADS: Final = 128


def fused_along_run_time(
    fusion: Instruction, usage: UsageAnalysis, times: DeviceTimes
) -> RunTime | None:
    """As ``CostModel.run_time`` has it; None for every other instruction."""
    if fusion.opcode != "fusion" or custom_name(fusion) != LOOP_ALONG:
        return None
    region = region_of(fusion)
    found = loop_along_of(region)
    if isinstance(found, str):
        return None
    cores = times.target.cores
    often = repetitions(region, found, cores)
    ops = [(op, often[op] / max(1, elements_of(op.shape))) for op in region.body if op in often]
    elements = region.results[0].shape.elements
    threads = elements // (found.parts * found.vector * found.steps(cores))
    blocks = -(-threads // _THREADS)
    flops = int(sum(usage.op(op).flops * count for op, count in ops))
    issued = issued_ns(ops, times.target)
    compute = times.compute(flops, blocks, _THREADS) if issued is None else issued
    operands = dict.fromkeys(fusion.operands)
    total = sum(operand.shape.byte_size for operand in operands)
    read = sum(
        times.read(operand.shape, operand.shape.byte_size, blocks, coalesced=True)
        for operand in operands
    )
    written = sum(leaf.byte_size for leaf in leaves(fusion.shape))
    write = times.write(written)
    exec_ns = times.together(compute, read + write)
    return RunTime(flops, total, written, read, write, compute, exec_ns, blocks, _THREADS)


def own_ns(model: CostModel, kernel: Instruction) -> float:
    """Nanoseconds of a kernel by itself, its arithmetic counted as that of code which we write."""
    if kernel.opcode == "topk" and (sorting := sorted_ns(kernel, model.target)) is not None:
        return sorting
    found = model.launched_run_time(kernel)
    if found.launches > 1:
        return found.exec_ns
    inside = kernel.calls if kernel.opcode == "fusion" else (kernel,)
    issued = issued_ns(((one, 1) for one in inside), model.target)
    if issued is None or any(one.opcode == "reduce-window" for one in inside):
        return found.exec_ns
    moving = found.read_ns + found.write_ns
    return issued + moving - PARALLELISM * min(issued, moving)

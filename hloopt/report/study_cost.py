"""What a study says of a module without running it: launches, bytes, and times by a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Final

from hloopt.cost_models.fused_loops import fused_loop_time
from hloopt.cost_models.loop_time import LoopTime
from hloopt.cost_models.predictor import Prediction, Predictor
from hloopt.ir import Module
from hloopt.kernels.costs import KernelCost, totals
from hloopt.study.cells import Counts, LongKernel, Predicted, TimeParts

__all__ = ["counts_of", "predicted"]


_ROUNDING: Final = 1e-9
_MOST_KERNELS: Final = 5


def counts_of(module: Module, rows: Sequence[KernelCost]) -> Counts:
    """Kernels, launches and bytes of one run of the entry."""
    found = totals(module, rows)
    known, bounded = all(row.known for row in rows), all(row.bounded for row in rows)
    return Counts(found.kernels, found.launches, known, found.cost.bytes_accessed, bounded)


def predicted(rows: Sequence[KernelCost], predictor: Predictor) -> Predicted:
    """The times of all launches that count, and what they are spent on."""
    launch = memory = compute = latency = 0.0
    loops = 0
    for row in rows:
        if row.prediction is None:
            continue
        loop = fused_loop_time(row.instruction, predictor.target)
        if loop is None:
            parts = _parts(row.prediction, predictor.launch_seconds)
        else:
            parts = _loop_parts(loop[1], row.prediction.seconds)
            loops += 1
        launch += row.runs * parts.launch
        memory += row.runs * parts.memory
        compute += row.runs * parts.compute
        latency += row.runs * parts.latency
    target = predictor.target
    return Predicted(
        target.name,
        predictor.model.name,
        target.calibrated,
        TimeParts(launch, memory, compute, latency),
        loops,
        tuple(
            LongKernel(row.instruction.name, row.runs, row.seconds, row.line)
            for row in nlargest(_MOST_KERNELS, rows, key=lambda row: row.seconds)
            if row.seconds
        ),
    )


def _parts(found: Prediction, launch_seconds: float) -> TimeParts:
    """One launch: the longer one of memory and arithmetic whole, of the other what it does not hide."""
    launch = min(launch_seconds, found.seconds)
    left = found.seconds - launch
    traffic = found.read_seconds + found.write_seconds
    longer = min(left, max(traffic, found.compute_seconds))
    shorter = min(left - longer, traffic, found.compute_seconds)
    latency = left - longer - shorter
    if latency < _ROUNDING * found.seconds:
        latency = 0.0
    if traffic >= found.compute_seconds:
        return TimeParts(launch, longer, shorter, latency)
    return TimeParts(launch, shorter, longer, latency)


def _loop_parts(time: LoopTime, seconds: float) -> TimeParts:
    """A whole loop in one kernel, of the seconds a model gives it.

    An iteration that waits for memory is memory's; of one that waits for its own results, what is computed in
    that time is arithmetic and the rest latency.
    """
    launch, whole = time.launch_ns, time.ns
    runs = time.waves * time.iterations
    compute = latency = 0.0
    memory = time.ends_ns
    if time.bound == "memory":
        memory += runs * time.memory_ns
    else:
        compute = runs * time.issue_ns
        latency = whole - launch - memory - compute
    scale = seconds / whole if whole else 0.0
    return TimeParts(launch * scale, memory * scale, compute * scale, max(0.0, latency) * scale)

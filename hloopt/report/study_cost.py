"""What a study says of a module without running it: launches, bytes, and times by a cost model."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ir import Module
from hloopt.report.cost import KernelCost, Prediction, Predictor, totals
from hloopt.runtime.study.cells import Counts, Parts, Predicted

__all__ = ["counts_of", "predicted"]


def counts_of(module: Module, rows: Sequence[KernelCost]) -> Counts:
    """Kernels, launches and bytes of one run of the entry."""
    found = totals(module, rows)
    known = all(row.known for row in rows)
    return Counts(found.kernels, found.launches, known, found.cost.bytes_accessed)


def predicted(rows: Sequence[KernelCost], predictor: Predictor) -> Predicted:
    """The times of all launches that count, and what they are spent on."""
    launch = memory = compute = latency = 0.0
    for row in rows:
        if row.prediction is None:
            continue
        parts = _parts(row.prediction, predictor.launch_seconds)
        launch += row.counted * parts.launch
        memory += row.counted * parts.memory
        compute += row.counted * parts.compute
        latency += row.counted * parts.latency
    target = predictor.target
    return Predicted(
        target.name,
        predictor.model.name,
        target.calibrated,
        Parts(launch, memory, compute, latency),
    )


def _parts(found: Prediction, launch_seconds: float) -> Parts:
    """One launch: the longer one of memory and arithmetic whole, of the other what it does not hide."""
    launch = min(launch_seconds, found.seconds)
    left = found.seconds - launch
    traffic = found.read_seconds + found.write_seconds
    longer = min(left, max(traffic, found.compute_seconds))
    shorter = min(left - longer, traffic, found.compute_seconds)
    latency = left - longer - shorter
    if traffic >= found.compute_seconds:
        return Parts(launch, longer, shorter, latency)
    return Parts(launch, shorter, longer, latency)

"""Whether modules cost more than they may beside those they replace: what ``hloopt gate`` finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hloopt.analysis.assignment import assign_buffers
from hloopt.cost_models.predictor import Predictor
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import KernelCost, kernel_costs, totals
from hloopt.report.fusion_diff import FusionDifference, compare_kernels, computes, figures
from hloopt.report.gate import FIGURES, Gate, GateVerdict
from hloopt.report.gated import MOST_KERNELS, CostlierKernel, GatedModule, GateReport
from hloopt.report.module_pairs import GivenModule, match_modules

__all__ = ["gate_modules"]

_ALL: Final = "all modules"


def gate_modules(
    base: Sequence[GivenModule],
    head: Sequence[GivenModule],
    gates: Sequence[Gate],
    predictor: Predictor | None = None,
    *,
    total: bool = False,
) -> GateReport:
    """Judge each module of ``head`` beside its partner in ``base``; with ``total`` the sums of all pairs.

    A new module is judged by the limits that are not relative to what was before.
    """
    pairs, gone, new = match_modules(base, head)
    if len(base) == len(head) == 1:
        pairs, gone, new = [(base[0], head[0])], gone[:0], new[:0]
    rows = [_pair(one, other, gates, predictor) for one, other in pairs]
    rows += [_new(one, gates, predictor) for one in new]
    if total:
        rows = [_total(rows[: len(pairs)], gates)]
    device = "" if predictor is None else predictor.target.name
    return GateReport(tuple(rows), tuple(one.file for one in gone), device)


def _pair(
    one: GivenModule, other: GivenModule, gates: Sequence[Gate], predictor: Predictor | None
) -> GatedModule:
    difference = compare_kernels(one.module, other.module, predictor)
    before, after = (
        {**figures(sums), "peak": _memory(given.module, predictor)}
        for sums, given in zip(difference.totals, (one, other), strict=True)
    )
    verdicts = _verdicts(gates, before, after)
    costlier = {
        verdict.gate.figure: found
        for verdict in verdicts
        if not verdict.passed and (found := _costlier(difference, verdict.gate.figure))
    }
    name, line = other.module.name, _line(other.module.entry.root)
    return GatedModule(name, one.file, other.file, line, before, after, verdicts, costlier)


def _memory(module: Module, predictor: Predictor | None) -> float:
    """As XLA assigns it."""
    gpu = predictor is not None and predictor.target.kind != "cpu"
    return float(assign_buffers(module, gpu=gpu).byte_size)


def _new(one: GivenModule, gates: Sequence[Gate], predictor: Predictor | None) -> GatedModule:
    module = one.module
    sums = totals(module, kernel_costs(module, predictor))
    after = {**figures(sums), "peak": _memory(module, predictor)}
    verdicts = _verdicts([gate for gate in gates if not gate.relative], {}, after)
    return GatedModule(module.name, "", one.file, _line(module.entry.root), {}, after, verdicts, {})


def _total(rows: Sequence[GatedModule], gates: Sequence[Gate]) -> GatedModule:
    before, after = (
        {
            name: (max if name == "peak" else sum)(side.get(name, 0.0) for side in sides)
            for name in FIGURES
        }
        for sides in ([row.before for row in rows], [row.after for row in rows])
    )
    return GatedModule(_ALL, "", "", 0, before, after, _verdicts(gates, before, after), {})


def _verdicts(
    gates: Sequence[Gate], before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[GateVerdict, ...]:
    """A module without kernels has no time: 0."""
    return tuple(
        gate.check(before.get(gate.figure, 0.0), after.get(gate.figure, 0.0)) for gate in gates
    )


def _costlier(difference: FusionDifference, figure: str) -> tuple[CostlierKernel, ...]:
    """Of the groups that cost more than before, the kernel that costs most; the largest changes first."""
    if figure in ("peak", "instructions"):
        return ()
    costs = [
        {row.instruction: row for row in rows} for rows in (difference.before, difference.after)
    ]
    found: list[CostlierKernel] = []
    for group in difference.groups:
        before = sum(_share(costs[0][kernel], figure) for kernel in group.before)
        shares = {kernel: _share(costs[1][kernel], figure) for kernel in group.after}
        change = sum(shares.values()) - before
        if change > 0:
            largest = max(shares, key=lambda kernel: shares[kernel])
            row = costs[1][largest]
            found.append(
                CostlierKernel(
                    largest.name,
                    group.status,
                    len(shares) - 1,
                    computes(largest),
                    _line(largest),
                    row.lines,
                    change,
                )
            )
    found.sort(key=lambda row: -row.change)
    return tuple(found[:MOST_KERNELS])


def _share(row: KernelCost, figure: str) -> float:
    """What a kernel adds to a figure of the module."""
    match figure:
        case "kernels":
            return 1.0
        case "launches":
            return float(row.counted)
        case "time":
            return row.seconds
        case "bytes":
            return float(row.runs * row.cost.bytes_accessed)
        case "flops":
            return float(row.runs * row.cost.flops)
        case _:
            return float(row.runs * row.cost.transcendentals)


def _line(instruction: Instruction) -> int:
    module = instruction.computation.module if instruction.computation is not None else None
    if module is None or module.source is None or instruction.offset < 0:
        return 0
    return module.source.line(instruction.offset)

"""What the kernels of a module cost: how often each is launched, what it moves, how long it will take."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.custom_fusion import custom_name
from hloopt.analysis.executions import Execution, executions
from hloopt.analysis.parallel_loop import fused_loop, parallel_loop
from hloopt.cost_models.model import Bound, CostModel, RunTime
from hloopt.cost_models.roofline import Roofline, product_of
from hloopt.dataclass import dataclass
from hloopt.fusion.loop_verdict import KERNELS
from hloopt.ir import Instruction, Module
from hloopt.kernels.buffers.joined import joined_in_place
from hloopt.runtime.kernels import is_kernel

__all__ = ["KernelCost", "Prediction", "Predictor", "Totals", "kernel_costs", "totals"]

_BY_ROOFLINE: Final = frozenset({
    "linear", "sort", "random", "collective", "async", "host", "custom", "unknown",
})  # fmt: skip
"""Families of ops that libraries, other devices or the host run: XLA's models price code that XLA writes."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long one launch takes, in seconds, the launch itself included; ``by`` a model or the roofline."""

    seconds: float
    bound: Bound
    by: str
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    compute_seconds: float = 0.0
    blocks: int = 0
    threads: int = 0
    coalesced: bool = True


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One kernel of the program.

    launches  while the entry runs once, if the branches around it are taken
    counted   launches in a run that takes the heaviest branch of each conditional: those of totals
    known     whether the module shows how often the loops around it run; those unknown count once
    cost      of one run
    steps     launches of one run: a loop in one kernel that collects what its units add up has two
    """

    instruction: Instruction
    line: str
    launches: int
    counted: int
    known: bool
    cost: Cost
    prediction: Prediction | None = None
    steps: int = 1

    @property
    def runs(self) -> int:
        """How often it runs, by its launches that count."""
        return self.counted // self.steps

    @property
    def seconds(self) -> float:
        """Of all launches that count; 0 without a prediction."""
        return self.runs * self.prediction.seconds if self.prediction else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Of one run of the entry; ``seconds`` is None where nothing was predicted."""

    kernels: int
    launches: int
    instructions: int
    cost: Cost
    seconds: float | None


class Predictor:
    """Times of kernels on a model's target: by the roofline what the model does not know.

    launch_seconds  of one kernel, whatever it does
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.target = model.target
        self.launch_seconds = model.launch_ns * 1e-9
        self._roofline = Roofline(model.target)
        self._roofline.launch_ns = model.launch_ns

    def predict(self, kernel: Instruction) -> Prediction:
        """How long one launch of a kernel takes."""
        if product_of(kernel) is None and kernel.op.family not in _BY_ROOFLINE:
            found = self.model.run_time(kernel)
            if isfinite(found.exec_ns):  # else no tiling of a Triton kernel fits this device
                return self._prediction(found, self.model)
        return self._prediction(self._roofline.rates(kernel), self._roofline)

    def _prediction(self, found: RunTime, model: CostModel) -> Prediction:
        return Prediction(
            model.launch_ns * 1e-9 + found.exec_ns * 1e-9,
            found.bound(model.launch_ns),
            model.name,
            found.read_ns * 1e-9,
            found.write_ns * 1e-9,
            found.compute_ns * 1e-9,
            found.blocks,
            found.threads,
            found.coalesced,
        )


def kernel_costs(module: Module, predictor: Predictor | None = None) -> list[KernelCost]:
    """The kernels of the entry and of all it reaches through control flow, in the order of the text.

    The branch of a conditional that counts is the one that takes longest; without a predictor, the one that
    moves most bytes.  Concatenates whose parts a loop's kernel writes where they belong are no kernels.
    """
    joined = joined_in_place(module).concatenates
    costs: dict[Instruction, Cost] = {}
    predictions: dict[Instruction, Prediction] = {}

    def weight(entry: Instruction) -> float:
        if not is_kernel(entry) or entry in joined:
            return 0.0
        costs[entry] = instruction_cost(entry)
        if predictor is None:
            return 1.0 + costs[entry].bytes_accessed
        predictions[entry] = predictor.predict(entry)
        return predictions[entry].seconds

    found = executions(module, weight)

    def row(entry: Instruction, here: Execution) -> KernelCost:
        steps = _steps(entry)
        return KernelCost(
            entry,
            source_line(module, entry),
            here.times * steps,
            here.counted * steps,
            here.known,
            costs[entry],
            predictions.get(entry),
            steps,
        )

    return [
        row(entry, found[computation])
        for computation in module
        if computation in found
        for entry in computation
        if entry in costs
    ]


def _steps(kernel: Instruction) -> int:
    """Launches of one run, as the kernel that the instruction names has them; one for all others."""
    loop = fused_loop(kernel) if custom_name(kernel) == KERNELS["thread"] else None
    if loop is None:
        return 1
    parallel = parallel_loop(loop.loop)
    return 2 if parallel.collected and parallel.trips.count else 1


def source_line(module: Module, kernel: Instruction) -> str:
    """The user's line of a kernel: the fusion's own, that of its root, of the last op that has one."""
    line = module.user_line(kernel.metadata)
    if line or kernel.opcode != "fusion":
        return line
    body = kernel.attributes["calls"]
    for entry in (body.root, *reversed(body)):
        line = module.user_line(entry.metadata)
        if line:
            return line
    return ""


def totals(module: Module, rows: Sequence[KernelCost]) -> Totals:
    """What one run of a module's kernels comes to."""
    cost = Cost()
    for row in rows:
        cost += row.cost * row.runs
    predicted = bool(rows) and all(row.prediction is not None for row in rows)
    return Totals(
        len(rows),
        sum(row.counted for row in rows),
        module.instruction_count(),
        cost,
        sum(row.seconds for row in rows) if predicted else None,
    )

"""What the kernels of a module cost: how often each is launched, what it moves, how long it will take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.executions import Execution, executions
from hloopt.analysis.parallel_loop import fused_loop, parallel_loop
from hloopt.analysis.structures import Structures, keep
from hloopt.cost_models.attention import ATTENTION, launches_of_attention
from hloopt.cost_models.fused_rows import WHOLE_ROW, launches_of_rows
from hloopt.cost_models.matrix_units import SPLIT_UNITS
from hloopt.cost_models.predictor import Prediction, Predictor
from hloopt.dataclass import dataclass
from hloopt.fusion.loop_verdict import LOOP_KERNELS
from hloopt.ir import Computation, Instruction, Module
from hloopt.kernels import is_kernel
from hloopt.kernels.buffers.joined import joined_in_place
from hloopt.rewrite.source_lines import MOST_LINES, kernel_lines

__all__ = [
    "KernelCost",
    "KernelCosts",
    "KernelPrices",
    "Totals",
    "costs_by_place",
    "kernel_costs",
    "launches_text",
    "runs_of",
    "totals",
]


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One kernel of the program.

    lines     of the user's program that it computes something of, the kernel's own first
    launches  while the entry runs once, if the branches around it are taken
    counted   launches in a run that takes the heaviest branch of each conditional: those of totals
    known     whether the module shows how often the loops around it run
    bounded   whether it shows how often at most, which counts; loops without a bound count once
    cost      of one run
    steps     launches of one run: a loop in one kernel that collects what its work items add up has two
    """

    instruction: Instruction
    lines: tuple[str, ...]
    launches: int
    counted: int
    known: bool
    bounded: bool
    cost: Cost
    prediction: Prediction | None = None
    steps: int = 1

    @property
    def line(self) -> str:
        """The first of the lines, or an empty string."""
        return next(iter(self.lines), "")

    @property
    def runs(self) -> int:
        """How often it runs, by its launches that count."""
        return self.counted // self.steps

    @property
    def launches_text(self) -> str:
        """``30``; ``30+`` where there are at least so many, ``<=30`` where there are at most."""
        return launches_text(self.launches, known=self.known, bounded=self.bounded)

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


KernelCosts: TypeAlias = Mapping[tuple[str, str], KernelCost]
"""What kernels cost, by computation and instruction."""


def launches_text(launches: int, *, known: bool, bounded: bool) -> str:
    """A count, marked where it is a bound."""
    if known:
        return str(launches)
    return f"<={launches}" if bounded else f"{launches}+"


def kernel_costs(module: Module, predictor: Predictor | None = None) -> list[KernelCost]:
    """The kernels of the entry and of all it reaches through control flow, in the order of the text.

    The branch of a conditional that counts is the one that takes longest; without a predictor, the one that
    moves most bytes.  Concatenates whose parts a loop's kernel writes in place are not kernels.
    """
    joined = joined_in_place(module).concatenates
    structures = Structures()  # passes may have changed instructions since the last time
    costs: dict[Instruction, Cost] = {}
    predictions: dict[Instruction, Prediction] = {}

    def weight(entry: Instruction) -> float:
        if not is_kernel(entry) or entry in joined:
            return 0.0
        costs[entry] = _cost(entry, structures)
        if predictor is None:
            return 1.0 + costs[entry].bytes_accessed
        predictions[entry] = predictor.predict(entry)
        return predictions[entry].seconds

    found = executions(module, weight)
    sites = _call_sites(module, found)
    return [
        _row(entry, found[computation], costs[entry], predictions.get(entry), sites)
        for computation in module
        if computation in found
        for entry in computation
        if entry in costs
    ]


_known: Final[dict[int, Cost]] = {}
"""Costs by structure."""


def _cost(entry: Instruction, structures: Structures) -> Cost:
    """As ``instruction_cost``; of equal kernels once."""
    number = structures.of(entry)
    if number is None:
        return instruction_cost(entry)
    known = _known.get(number)
    if known is None:
        known = instruction_cost(entry)
        keep(_known, number, known)
    return known


def _row(
    entry: Instruction,
    here: Execution,
    cost: Cost,
    prediction: Prediction | None,
    sites: Mapping[Computation | None, tuple[str, ...]],
) -> KernelCost:
    steps = max(_steps(entry), prediction.launches if prediction else 1)
    return KernelCost(
        entry,
        kernel_lines(entry.module, entry) or sites.get(entry.computation, ()),
        here.times * steps,
        here.counted * steps,
        here.known,
        here.bounded,
        cost,
        prediction,
        steps,
    )


class KernelPrices:
    """The kernels of a module as ``kernel_costs`` has them, each priced when it is asked for.

    Which branch of a conditional is the heaviest is not looked for: the first one counts.
    """

    def __init__(self, module: Module, predictor: Predictor) -> None:
        self._module = module
        self._predictor = predictor
        self._executions = executions(module, lambda _: 0.0)
        self._sites = _call_sites(module, self._executions)
        self._known: dict[Instruction, KernelCost | None] = {}

    @cached_property
    def _joined(self) -> Collection[Instruction]:
        return joined_in_place(self._module).concatenates

    def of(self, instruction: Instruction) -> KernelCost | None:
        """The costs of a kernel; None where none starts."""
        if instruction not in self._known:
            self._known[instruction] = self._priced(instruction)
        return self._known[instruction]

    def _priced(self, entry: Instruction) -> KernelCost | None:
        here = self._executions.get(entry.home)
        if here is None or not is_kernel(entry):
            return None
        if entry.opcode == "concatenate" and entry in self._joined:
            return None
        prediction = self._predictor.predict(entry)
        return _row(entry, here, instruction_cost(entry), prediction, self._sites)


def _call_sites(
    module: Module, callers_first: Iterable[Computation]
) -> dict[Computation | None, tuple[str, ...]]:
    """The user's lines that call a computation, the first ``MOST_LINES``."""
    found: dict[Computation | None, tuple[str, ...]] = {}
    for computation in callers_first:
        lines: dict[str, None] = {}
        for caller in computation.callers:
            here = module.user_lines(caller.metadata) or found.get(caller.computation, ())
            lines.update(dict.fromkeys(here))
        found[computation] = tuple(lines)[:MOST_LINES]
    return found


def runs_of(module: Module) -> dict[str, int]:
    """How often each top-level computation runs, by name; of conditionals all branches are taken."""
    found = executions(module, lambda _: 0.0)
    return {computation.name: here.times for computation, here in found.items()}


def costs_by_place(module: Module, predictor: Predictor) -> KernelCosts:
    """The predicted kernels of a module by computation and instruction."""
    return {
        (
            home.name if (home := row.instruction.computation) is not None else "",
            row.instruction.name,
        ): row
        for row in kernel_costs(module, predictor)
    }


def _steps(kernel: Instruction) -> int:
    """Launches of one run, as the kernel that the instruction names has them; one for all others."""
    name = custom_name(kernel)
    if name == WHOLE_ROW:
        return launches_of_rows(kernel)
    if name == SPLIT_UNITS:
        return 2
    if name == ATTENTION:
        return launches_of_attention(kernel)
    loop = fused_loop(kernel) if name == LOOP_KERNELS["thread"] else None
    if loop is None:
        return 1
    parallel = parallel_loop(loop.loop)
    return 2 if parallel.collected and parallel.iterations.count else 1


def totals(module: Module, rows: Sequence[KernelCost]) -> Totals:
    """The totals of one run of a module's kernels."""
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

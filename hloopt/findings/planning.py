"""What a compiler makes of a module on the target, and what that costs: the plan before and after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from hloopt.analysis.assignment import BufferAssignment, assign_buffers
from hloopt.analysis.backend_config import backend_kind
from hloopt.cost_models.model import CostModel
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.explained_times import explained
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.history import Histories
from hloopt.fusion.lock_adviser import LockAdviser
from hloopt.fusion.lock_file import Decisions, PairRow
from hloopt.fusion.provenance import Provenance
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import KernelCost, Totals, kernel_costs, totals
from hloopt.passes.expand.rolled_threefry import is_threefry
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls, Pipeline, Watcher
from hloopt.rewrite.entries import aimed, with_options
from hloopt.rewrite.naming import parse_pattern
from hloopt.targets import Target

__all__ = [
    "CpuLowering",
    "Planner",
    "ProgramPlan",
    "check_planned_for",
    "is_planned",
    "lowered_for_cpu",
    "pipeline_for",
]

_XLA = "xla-gpu-2026"
_OTHERS = "O2"
_BUFFERS = "flatten-call-graph,schedule,copy-insertion"
"""What every device does last: an order, and the copies that it needs."""
_GPU_KERNELS = ("__triton", "__cublas$", "__cudnn$")
"""How kinds of fusions and targets of calls begin that only a GPU runs."""
_SHOWN: Final = 4
"""Calls and loops of a CPU that are named."""


def pipeline_for(target: Target, name: str) -> tuple[Pipeline, str]:
    """The passes that stand for the compiler of a target, and their name.

    On a GPU XLA's own order, with the inexact rewrites that XLA makes by default (``fast_math``); elsewhere O2
    and the copies that buffers need.  ``name`` is what the target is called in options.
    """
    label = _XLA if target.kind == "cuda" else _OTHERS
    entries = parse_pipeline(label).entries
    if target.kind == "cuda":
        entries = with_options(entries, label, (("fast_math", "true"),))
    else:
        label = f"{_OTHERS},copy-insertion"
        entries += parse_pipeline(_BUFFERS).entries
    return Pipeline(aimed(entries, name)), label


def is_planned(module: Module) -> bool:
    """Whether a compiler has fused and ordered the module already: it is priced as it is then."""
    return bool(module.attributes.get("is_scheduled")) or any(
        instruction.opcode == "fusion" for instruction in module.instructions()
    )


def check_planned_for(target: Target, module: Module, name: str = "") -> None:
    """Raise ``UsageError`` where a plan has kernels that only a GPU runs and ``target`` is a CPU.

    ``name`` is the file's; the module's name stands for it where there is none.
    """
    if target.kind != "cpu" or not is_planned(module):
        return
    for instruction in module.instructions():
        called = backend_kind(instruction) or instruction.custom_call_target
        if called.startswith(_GPU_KERNELS):
            raise UsageError(
                f"{name or module.name} is planned for a GPU (%{instruction.name} is {called}), which says "
                f"nothing of its time on {target.name}: take the module before optimisation, or a GPU for "
                "the target"
            )


@dataclass(frozen=True, slots=True)
class CpuLowering:
    """Calls of LAPACK, and loops of Threefry that JAX writes without a loop elsewhere; the first of each.

    count  of all of them
    """

    calls: tuple[str, ...]
    loops: tuple[str, ...]
    count: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"calls": list(self.calls), "loops": list(self.loops), "count": self.count}


def lowered_for_cpu(target: Target, module: Module) -> CpuLowering | None:
    """What JAX lowered for a CPU in a module for a GPU; None without any, and for other targets."""
    if not target.has_threads:
        return None
    calls, loops = [], []
    for one in module.instructions():
        if _calls_lapack(one):
            calls.append(one.name)
        elif one.opcode == "while" and is_threefry(one):
            loops.append(one.name)
    count = len(calls) + len(loops)
    return CpuLowering(tuple(calls[:_SHOWN]), tuple(loops[:_SHOWN]), count) if count else None


def _calls_lapack(one: Instruction) -> bool:
    return one.opcode == "custom-call" and one.custom_call_target.startswith("lapack_")


@dataclass(frozen=True)
class ProgramPlan:
    """A module after the compiler's passes, with the price of each kernel."""

    module: Module
    rows: tuple[KernelCost, ...]
    provenance: Provenance
    model: CostModel

    @cached_property
    def explanation(self) -> Explanation:
        """What fusion decided, and why."""
        return explained(self.provenance, self.model)

    @cached_property
    def totals(self) -> Totals:
        """Of one run of the entry."""
        return totals(self.module, self.rows)

    @property
    def seconds(self) -> float:
        """The predicted time of one run of the entry."""
        return self.totals.seconds or 0.0

    @cached_property
    def assignment(self) -> BufferAssignment:
        """Which allocation holds each value, as XLA assigns it."""
        return assign_buffers(self.module, gpu=self.model.target.kind != "cpu")

    @property
    def peak_bytes(self) -> int:
        """What a run needs by that assignment: parameters, results and temporaries."""
        return self.assignment.byte_size

    def others_than(self, after: ProgramPlan) -> list[KernelCost]:
        """The kernels that another plan does not have, those that take longest first."""
        there = Counter(_signature(row) for row in after.rows)
        found = []
        for row in sorted(self.rows, key=lambda row: -row.seconds):
            key = _signature(row)
            if there[key]:
                there[key] -= 1
            else:
                found.append(row)
        return found


def _signature(row: KernelCost) -> tuple[object, ...]:
    """What is equal for kernels that cost the same for the same reason."""
    kernel = row.instruction
    shapes = tuple(str(operand.shape) for operand in kernel.operands)
    body = (
        tuple(sorted(Counter(one.opcode for one in kernel.calls).items()))
        if kernel.opcode == "fusion"
        else ()
    )
    return kernel.opcode, str(kernel.shape), shapes, body, row.counted


class Planner:
    """Makes plans of copies of modules by one pipeline, priced by one predictor."""

    def __init__(self, pipeline: Pipeline, predictor: Predictor) -> None:
        self.pipeline = pipeline
        self.predictor = predictor

    def plan(
        self,
        module: Module,
        wanted: Sequence[tuple[str, str]] = (),
        without: str = "",
        watchers: Sequence[Watcher] = (),
    ) -> ProgramPlan:
        """The plan of a module, which stays as it is.

        ``wanted`` are producers and consumers that fusion is to put into one kernel, as a lock file would;
        ``without`` is a pass of the pipeline that is to rewrite nothing; ``watchers`` observe the passes.
        """
        copy, advice = clone_module(module), Advice()
        if wanted:
            rows = tuple(
                PairRow("why", True, parse_pattern(one), parse_pattern(other))
                for one, other in wanted
            )
            histories = Histories()
            advice = Advice((LockAdviser(Decisions("why", pairs=rows), histories),), histories)
        provenance = Provenance(advice.histories)
        self.pipeline.run(
            copy,
            controls=Controls({without: 0} if without else {}, advice=advice),
            watchers=(provenance, *watchers),
        )
        return self.priced(copy, provenance)

    def priced(self, planned: Module, provenance: Provenance) -> ProgramPlan:
        """The plan that a module is, after the compiler's passes."""
        return ProgramPlan(
            planned, tuple(kernel_costs(planned, self.predictor)), provenance, self.predictor.model
        )

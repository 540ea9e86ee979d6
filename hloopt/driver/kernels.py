"""The kernels of a module after passes: ``hloopt.select_kernels`` and ``hloopt kernels``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hloopt.backends.native import codegen as native
from hloopt.backends.native.compile import plan_ready
from hloopt.backends.nvrtc import architecture, compile_cuda
from hloopt.codegen.program import KernelProgram, listed, render
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.driver.selecting import Selecting, selecting
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import costs_by_place
from hloopt.kernels.plan import KernelStep, function_name, walk_steps
from hloopt.kernels.plan_json import dump_plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Launch
from hloopt.report.console import say
from hloopt.report.kernels import choice_json, show_choices
from hloopt.report.plan import memory_json, memory_line, show_plan
from hloopt.report.stats import ModuleStats, module_stats
from hloopt.runtime.device_program import descriptions
from hloopt.targets import find_gpu, find_target

if TYPE_CHECKING:
    from pathlib import Path

    from hloopt.backends.nvrtc import Resources
    from hloopt.kernels.costs import KernelCosts
    from hloopt.kernels.plan import Plan
    from hloopt.kernels.selection import Choice, KernelSelection
    from hloopt.pipelines import Given
    from hloopt.report.console import Console
    from hloopt.report.measured import MeasuredTimes

__all__ = ["ModuleKernels", "kernels_of", "select_kernels", "stats"]


def select_kernels(
    module: Module | str | Path, *, pipeline: Given | None = None, target: str | None = None
) -> ModuleKernels:
    """What ``hloopt kernels`` shows: which kernel runs each instruction, its launch, and its predicted time.

    ``module`` is a module, which stays as it is, or the path of one.  It is optimised by ``pipeline`` (as
    ``optimize`` takes it; O2 by default) and made ready for ``target`` (h200 by default; ``host`` is this
    processor).

    The record has ``rows``, a choice for each instruction: kernel, tile, reason and candidates; ``module``, the
    one that is ready; ``plan``; ``source``, the CUDA C; ``ir``; and ``to_json()``.

    Raises ``UsageError`` for an unknown pass or target.
    """
    with ExitStack() as stack:
        options = KernelOptions(target=target)
        chosen = choose_passes(PassOptions(passes=pipeline), options)
        selection = selecting(options, stack.enter_context)
        return kernels_of(clone_module(read_task(module).module), chosen, selection)


def stats(
    module: Module | str | Path,
    target: str | None = None,
    *,
    cost_model: str | None = None,
    buffers: int = 10,
    profile: str | Path | None = None,
) -> ModuleStats:
    """What ``hloopt stats`` shows: opcodes, flops, bytes and the largest ``buffers`` of a module as it is.

    ``module`` is a module, or the path of one.  With a ``target``: the time of each kernel there, as
    ``cost_model`` (``xla-2026`` by default) predicts it.  ``profile`` is the path of a profiler's trace, or of
    one that ``hloopt run --trace`` wrote: the record's ``measured`` has its times, joined to the instructions.
    The record has ``to_json()``.

    Raises ``UsageError`` for an unknown target or cost model and for a trace that is not there, ``FileError``
    for a file that is not a trace.
    """
    predictor = None
    if target is not None:
        predictor = Predictor(model_for(cost_model or DEFAULT, find_target(target)))
    elif cost_model is not None:
        raise UsageError(f"cost_model={cost_model!r} is for predicted times: it needs a target")
    found = read_task(module).module
    made = module_stats(found, buffers=buffers, predictor=predictor)
    return made if profile is None else replace(made, measured=times_in(found, profile, predictor))


def times_in(
    module: Module, profile: str | Path, predictor: Predictor | None = None
) -> MeasuredTimes:
    """What a trace says of a module's instructions, which has to be as it was read."""
    from hloopt.report.measured import measured

    return measured(module, profile, predictor)


def kernels_of(module: Module, chosen: Chosen, selection: Selecting) -> ModuleKernels:
    """The kernels of a module, which the passes change in place."""
    report = chosen.run(module)
    ready, rows, notes = selection.choose(module)
    own = [*report.notes, *notes]
    return ModuleKernels(ready, selection.instance, rows, selection.predictor(), own)


@dataclass
class ModuleKernels(Displayed):
    """A module whose kernels are chosen; its plan and source are made on first use.

    ``resources`` are what NVRTC says of each function, after ``compile``; ``notes`` are those of passes.
    """

    module: Module
    selection: KernelSelection
    rows: list[Choice]
    predictor: Predictor
    notes: list[str] = field(default_factory=list)
    resources: Mapping[str, Resources] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The predicted time of one run of the entry."""
        return sum(cost.seconds for cost in self.costs.values())

    @cached_property
    def costs(self) -> KernelCosts:
        """What kernels cost, as every report has it."""
        return costs_by_place(self.module, self.predictor)

    @cached_property
    def plan(self) -> Plan:
        """The plan.  Raises ``UnsupportedError`` for an instruction without a kernel."""
        chosen = self.selection.kernel_of(self.rows)
        planned = plan_ready if self.selection.device == "native" else plan_program
        return planned(self.module, chosen)

    @cached_property
    def source(self) -> str:
        """The CUDA C; the C++ of the host."""
        if self.selection.device == "native":
            return native.render(self.plan)
        return self._program.text

    @property
    def ir(self) -> str:
        """The kernel IR, a line a node."""
        is_native = self.selection.device == "native"
        parts = native.parts(self.plan) if is_native else self._program.parts
        return "".join(f"{line}\n" for line in listed(parts))

    @cached_property
    def _program(self) -> KernelProgram:
        return render(self.plan, self.selection.described, self.selection.limits())

    def compile(self) -> None:
        """Compile with NVRTC, for each function's resources.  Raises ``DeviceError`` where it is missing."""
        arch = architecture(find_gpu(self.selection.target).capability)
        made = compile_cuda(self.source, arch, describe=descriptions(self.plan))
        self.resources = made.resources

    def functions(self) -> dict[tuple[str, str], dict[str, Resources]]:
        """What the functions of each instruction take, by computation and instruction."""
        found: dict[tuple[str, str], dict[str, Resources]] = {}
        for step in walk_steps(self.plan.steps) if self.resources else ():
            if isinstance(step, KernelStep) and step.instruction.computation is not None:
                names = [
                    function_name(step, part)
                    for part in step.spec.steps
                    if isinstance(part, Launch)
                ]
                place = step.instruction.computation.name, step.instruction.name
                found[place] = {
                    name: self.resources[name] for name in names if name in self.resources
                }
        return found

    def show(self, console: Console, *, planned: bool = False) -> None:
        """Print the plan, or a table of the choices with what memory comes to."""
        if planned:
            show_plan(self.plan, console, self.resources)
            return
        show_choices(self.rows, self.costs, self.predictor.model.name, console, self.functions())
        if self.possible_plan is not None:
            say(console, memory_line(self.possible_plan))

    @property
    def possible_plan(self) -> Plan | None:
        """The plan, if there is one."""
        return None if self.plan_problem or not all(row.kernel for row in self.rows) else self.plan

    @property
    def readable_plan(self) -> Plan:
        """The plan; where kernels are missing one to be read only, in which their instructions run on the host.

        Raises ``UnsupportedError`` where there is none even so.
        """
        if self.possible_plan is not None:
            return self.possible_plan
        return plan_program(self.module, self.selection.kernel_of(self.rows), allow_host=True)

    @cached_property
    def plan_problem(self) -> str:
        """Why no plan was made although every row has a kernel; empty if there is one."""
        if all(row.kernel for row in self.rows):
            try:
                self.plan  # noqa: B018 - made here
            except UnsupportedError as error:
                return error.message
        return ""

    def to_json(
        self, *, planned: bool = False, source: bool = False, ir: bool = False
    ) -> dict[str, Any]:
        """As JSON values; with the plan and its module's text, the source, and the kernel IR where wanted."""
        functions, costs = self.functions(), self.costs
        row: dict[str, Any] = {
            "module": self.module.name,
            "target": self.selection.target,
            "cost_model": self.predictor.model.name,
            "seconds": self.seconds,
            "choices": [
                choice_json(one, costs.get(place), functions.get(place))
                for one in self.rows
                for place in [(one.computation, one.instruction)]
            ],
        }
        plan = self.plan if planned else self.possible_plan
        row["memory"] = memory_json(plan) if plan is not None else None
        if planned:
            row["plan"] = json.loads(dump_plan(self.plan, self.module))
            row["hlo"] = self.module.to_text()
        if source:
            row["source"] = self.source
        if ir:
            row["ir"] = self.ir
        return row

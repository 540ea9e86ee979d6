"""``hloopt kernels``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from hloopt.backends.native import codegen as native
from hloopt.backends.native.compile import plan_ready
from hloopt.backends.nvrtc import architecture, compile_cuda
from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end, write_json
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.cli.pipeline_options import PASSES, chosen_passes
from hloopt.codegen.program import KernelProgram, listed, render
from hloopt.driver.passes import Chosen
from hloopt.driver.selecting import Selecting, selecting
from hloopt.errors import UnsupportedError, UsageError
from hloopt.kernels.plan import KernelStep, function_name, walk_steps
from hloopt.kernels.plan_json import dump_plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import kernels
from hloopt.kernels.spec import Launch
from hloopt.report.console import ONE_LINE, product, show_name
from hloopt.report.cost import costs_by_place
from hloopt.report.kernels import choice_json, kernel_list, show_choices, show_list
from hloopt.report.plan import memory_json, memory_line, show_plan
from hloopt.runtime.device_program import descriptions
from hloopt.targets import find_gpu

if TYPE_CHECKING:
    from rich.console import Console

    from hloopt.backends.nvrtc import Resources
    from hloopt.cost_models.predictor import Predictor
    from hloopt.ir import Module
    from hloopt.kernels.plan import Plan
    from hloopt.kernels.selection import Choice, KernelSelection
    from hloopt.report.cost import KernelCosts

__all__ = ["command"]


@click.command(
    "kernels",
    cls=GroupedCommand,
    groups={
        "Passes": PASSES.names,
        "Kernels": KERNELS.names,
        "Input": ("module", "stage", "strict"),
        "Output": ("planned", "source", "ir", "compiled", "listing", "as_json"),
    },
)
@files_argument
@strict_option()
@PASSES
@KERNELS
@click.option(
    "--plan", "planned", is_flag=True, help="Show the plan: order, loops and buffers as well."
)
@click.option("--source", is_flag=True, help="Print the CUDA C (of host: C++) of all kernels.")
@click.option("--ir", is_flag=True, help="Print the kernel IR that it is printed from.")
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile it by NVRTC: registers, stack and spills."
)
@click.option("--list", "listing", is_flag=True, help="List the kernels there are, and stop.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    planned: bool,
    source: bool,
    ir: bool,
    compiled: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Show which kernel runs each instruction, how it is launched, and how long it takes.

    The module is optimised (-O2 unless other passes are given) and made ready for the device; then kernels
    are chosen. Times are those of hloopt stats --target, of one launch, whichever kernel runs the instruction:
    hloopt explain compares the kernels of one and says why it was chosen.

    With --target host they are the loops in C++ that hloopt run --device native runs: a launch has tasks in
    place of blocks, and times are those of the cost model host, of one core.

    --ir lists the kernel IR: loops, memory and types as they are before code is printed for a device.
    JSON has the CUDA C with --source, the IR with --ir, the plan and its module's text with --plan.

    \b
    Example:
      hloopt kernels dump.txt --target a100
      hloopt kernels dump.txt --kernel 'op:dot=dot-tiled{m=64}' --write-lock kernels.toml
      hloopt kernels dump.txt --lock kernels.toml --frozen --source > kernels.cu
      hloopt kernels dump.txt --target host --plan
    """
    if planned + source + ir > 1 and not as_json:
        raise UsageError("give only one of --plan, --source and --ir, or --json")
    options = kernel_options()
    selection = selecting(options, ctx.with_resource)
    if listing:
        _list(as_json)
        return
    choice = chosen_passes(options)
    if compiled and selection.is_native:
        raise UsageError("--compile is for CUDA C (NVRTC): for host, use --source")
    texts = open_texts(files)

    def step(found: Input) -> dict[str, Any]:
        shown = _chosen_for(found, choice, selection)
        if compiled:
            shown.compile()
        if as_json:
            return shown.json(planned=planned, source=source, ir=ir)
        name = found.name if len(texts) > 1 else ""
        if source or ir:
            text = shown.source if source else shown.ir
            click.echo(f"// {name}\n{text}" if name else text, nl=False)
            return {}
        if name:
            show_name(shown.module.name, name, product())
        shown.show(product(ONE_LINE), planned=planned)
        return {}

    rows, code = each_input(texts, step, "choosing kernels for")
    selection.finish(choice.watcher)
    end(ctx, rows, code)


def _chosen_for(found: Input, choice: Chosen, selection: Selecting) -> Shown:
    """A module after its passes with its kernels; notes go to stderr."""
    report = choice.run(found.module)
    module, rows, notes = selection.choose(found.module)
    for note in (*report.notes, *notes):
        click.echo(f"{found.name}: note: {note}", err=True)
    return Shown(module, selection.instance, rows, selection.predictor())


def _list(as_json: bool) -> None:
    """The kernels there are."""
    every = (*kernels("gpu"), *kernels("native"))
    if as_json:
        write_json("kernels", {"kernels": kernel_list(every)})
    else:
        show_list(every, product())


class Shown:
    """A module whose kernels are chosen: its plan and source, made on first use."""

    def __init__(
        self,
        module: Module,
        selection: KernelSelection,
        rows: list[Choice],
        predictor: Predictor,
    ) -> None:
        self.module = module
        self.selection = selection
        self.rows = rows
        self.resources: Mapping[str, Resources] = {}
        self._predictor = predictor

    @cached_property
    def costs(self) -> KernelCosts:
        """What kernels cost, as every report has it."""
        return costs_by_place(self.module, self._predictor)

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

    def show(self, console: Console, *, planned: bool) -> None:
        """The plan, or a table of the choices with what memory comes to."""
        if planned:
            show_plan(self.plan, console, self.resources)
            return
        model = self._predictor.model.name
        show_choices(self.rows, self.costs, model, console, self.functions())
        if (plan := self.possible_plan()) is not None:
            click.echo(memory_line(plan))

    def possible_plan(self) -> Plan | None:
        """The plan, if there is one; a note on stderr says why not, where each row has a kernel."""
        if not all(row.kernel for row in self.rows):
            return None
        try:
            return self.plan
        except UnsupportedError as error:
            click.echo(f"note: no plan: {error.message}", err=True)
            return None

    def json(self, *, planned: bool, source: bool, ir: bool) -> dict[str, Any]:
        """As JSON values."""
        functions, costs = self.functions(), self.costs
        row: dict[str, Any] = {
            "module": self.module.name,
            "target": self.selection.target,
            "cost_model": self._predictor.model.name,
            "seconds": sum(cost.seconds for cost in costs.values()),
            "choices": [
                choice_json(one, costs.get(place), functions.get(place))
                for one in self.rows
                for place in [(one.computation, one.instruction)]
            ],
        }
        plan = self.plan if planned else self.possible_plan()
        row["memory"] = memory_json(plan) if plan is not None else None
        if planned:
            row["plan"] = json.loads(dump_plan(self.plan, self.module))
            row["hlo"] = self.module.to_text()
        if source:
            row["source"] = self.source
        if ir:
            row["ir"] = self.ir
        return row

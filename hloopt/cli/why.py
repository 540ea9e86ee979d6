"""``hloopt why``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from hloopt.analysis.measured import JoinedTimes, joined_times
from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end, write_json
from hloopt.cli.options import files_argument, json_option
from hloopt.cli.predicting import predictor, target_options
from hloopt.cli.profile_option import Measuring, profile_option
from hloopt.cli.waiting import patience
from hloopt.cli.why_slower import WhyOptions, compare_plans
from hloopt.driver.why import why_module
from hloopt.errors import UsageError
from hloopt.findings import KINDS, MEASURING, RealRuns
from hloopt.ir import Module
from hloopt.report.console import product
from hloopt.report.findings import kinds_json, kinds_table, show_findings

__all__ = ["command"]

_TARGET = "h200"
_MEASURED = "host"
_FOR_ONE = "--kind, --profile and --measure are for one module, not for two compilations"


@click.command("why", cls=GroupedCommand)
@files_argument
@click.option(
    "-n",
    "most",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Print N findings. Those that gain most.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.name for kind in KINDS]),
    metavar="KIND",
    help="Look for this kind alone. hloopt why --kinds lists them (may be repeated).",
)
@click.option(
    "--kinds",
    "list_kinds",
    is_flag=True,
    help="List the kinds of findings.",
)
@click.option(
    "--passes",
    "pipeline",
    metavar="TEXT|FILE.toml",
    help="Passes that stand for the target's compiler. xla-gpu-2026 for a GPU, O2,copy-insertion for "
    "others.",
)
@target_options
@profile_option
@click.option(
    "--measure",
    type=click.Choice(MEASURING),
    help="Measure each change on this device. Before and after in turn; native on one core, as the host "
    "is.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    most: int,
    kinds: tuple[str, ...],
    list_kinds: bool,
    pipeline: str | None,
    target: str | None,
    cost_model: str,
    profile: str | None,
    measure: str | None,
    as_json: bool,
) -> None:
    """Say what is slow, why, and what would help.

    The findings are those that gain most on --target, h200 by default. Each names the instruction and the
    line of the program, what it costs, the cause, the change that helps, and its gain. That is not guessed:
    the change is made on a copy of the module, the results are compared, and both are planned and priced for
    the target. A change without gain is not printed.

    Below them are the large arrays between two kernels, each with the refusal that keeps it in memory, the
    times fused and apart, and, where fused is faster, what lets the pair through; and scatters that take far
    longer where their indices are equal, which a module does not say.

    A module before optimisation is planned as XLA does it; one that is fused and scheduled is taken as it is.

    With --profile: findings are ranked by what their kernels took in a real run, from a profiler's trace, and
    both times are printed. Without FILE the modules are those that the trace holds (.xplane.pb).

    With --measure: the program is compiled for the device before and after each change, and both run in turn.
    What was measured is printed below what is predicted; a change that does not gain there is said so.

    Two modules or dump directories, of other versions of XLA or other flags, are compared: which module loses
    most time, where, and the first decision that differs. That is the first pass whose result differs, where
    both dumps have their stages (--xla_dump_hlo_pass_re=.*); else what the final modules show. Flags that
    differ are named. Modules of dumps are compared as they are after optimisation, unless --stage says which.

    \b
    Example:
      hloopt why dump.txt
      hloopt why dump.txt --target a100 -n 3
      hloopt why dump.txt --kind copy --kind not-donated
      hloopt why --profile host.xplane.pb --target host
      hloopt why dump_of_monday dump_of_tuesday
    """
    if list_kinds:
        _list_kinds(as_json=as_json)
        return
    aim = target or (_TARGET if measure is None else _MEASURED)
    predicting = predictor(aim, cost_model)
    assert predicting is not None, "a target is given"
    options = WhyOptions(predicting, aim, most, pipeline, as_json)
    if len(files) > 1:
        if kinds or profile is not None or measure is not None:
            raise UsageError(_FOR_ONE)
        ctx.exit(compare_plans(ctx, files, options))
    measuring = None if profile is None else Measuring.of(profile, files)
    rows, code = _findings(files, kinds, options, (measuring, measure))
    end(ctx, rows, code)


def _joined(name: str, measuring: Measuring, module: Module) -> JoinedTimes:
    """The times of the module of this name by the instructions of the plan that was made of it."""
    return joined_times(module, measuring.profile, measuring.programs.get(name))


def _list_kinds(*, as_json: bool) -> None:
    if as_json:
        write_json("why", {"kinds": kinds_json()})
    else:
        product().print(kinds_table())


def _findings(
    files: Sequence[str],
    kinds: Sequence[str],
    options: WhyOptions,
    measured: tuple[Measuring | None, str | None],
) -> tuple[list[dict[str, Any]], int]:
    """Print the findings of each module; their JSON and the exit code."""
    measuring, device = measured
    texts = open_texts(files) if measuring is None else measuring.texts

    def step(found: Input) -> dict[str, Any]:
        doing = [""]
        with patience("looking into", found.name, lambda: doing[0], alone=len(texts) == 1):
            made = why_module(
                found.module,
                options.predictor,
                options.target,
                kinds=kinds,
                most=options.most,
                pipeline=options.pipeline,
                begin=lambda text: doing.__setitem__(0, text),
                real=RealRuns(
                    None if measuring is None else partial(_joined, found.name, measuring), device
                ),
            )
        if not options.as_json:
            show_findings(made, product(), file=found.name)
        return made.to_json()

    return each_input(texts, step, "looking into")

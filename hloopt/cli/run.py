"""``hloopt run``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, InputText, each_input, one_text, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.messages import show_error
from hloopt.cli.options import OptionGroup, files_argument, json_option, option, strict_option
from hloopt.cli.pipeline_options import PASSES, pass_options
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.waiting import patience
from hloopt.cli.watching import WATCH, Watching
from hloopt.cli.words import complete
from hloopt.driver.options import Profiling, RunOptions
from hloopt.driver.run import Runner, Task
from hloopt.interpret.plugins import load
from hloopt.ir.walk import custom_call_targets
from hloopt.report.console import product
from hloopt.report.run import show_summary

if TYPE_CHECKING:
    from hloopt.driver.spmd import World

__all__ = ["command"]


PROFILING = OptionGroup(
    "profiling",
    option(
        "--kernels",
        is_flag=True,
        help="Say how long each kernel of the optimised form takes, with its line; on gpu this is always said.",
    ),
    option(
        "--trace",
        metavar="FILE",
        help="Write a run's kernels as JSON, gzipped where FILE ends in .gz, for Perfetto (ui.perfetto.dev) "
        "and --profile of other commands. Implies --kernels.",
    ),
    option(
        "--cold-l2",
        is_flag=True,
        help="On gpu: time each kernel with a cold second-level cache.",
    ),
)


@click.command(
    "run",
    cls=GroupedCommand,
    groups={
        "Passes": (*PASSES.names, "dump_dir", "verify_each"),
        "Input": ("module", "stage", "strict", "inputs", "seed", "fill_constants", "infeed"),
        "Execution": (
            "device",
            "threads",
            "repeat",
            "replicas",
            "partitions",
            "spmd",
            "exact",
            "excess_precision",
            "custom_calls",
            "ignore_callbacks",
        ),
        "Devices": (*KERNELS.names, "allow_host", "unchecked"),
        "Where the time goes": PROFILING.names,
        "Comparison and output": (
            "expect",
            *TOLERANCE.names,
            "reference_seconds",
            "no_reference",
            "outfeed",
            "against",
            "save_snapshot",
            "save_outputs",
            "as_json",
        ),
    },
)
@files_argument
@strict_option()
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="NAME",
    shell_complete=complete("backends", "DEVICES"),
    help="Where the programs run: cpu (NumPy), native (C++ on this CPU), gpu (CUDA), or emulator "
    "(the GPU's kernels on the CPU).",
)
@click.option(
    "--allow-host",
    is_flag=True,
    help="On gpu and emulator: let the interpreter evaluate what has no kernel; the table says how much.",
)
@click.option(
    "--unchecked",
    is_flag=True,
    help="On emulator: do not check each memory access; about ten times as fast.",
)
@KERNELS
@PROFILING
@click.option(
    "--inputs",
    metavar="PATH",
    help="in_0, in_1, ... in an .npz or a folder of .npy; in_0.3 is for participant 3.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed for inputs that are not given, and for what rng draws.",
)
@click.option(
    "--expect",
    metavar="PATH",
    help="Results to compare with as well: out_0, out_1, ... (or out_0.3).",
)
@click.option(
    "--against",
    metavar="FILE",
    help="Compare with the interpreter's results of this module on the same inputs as well; hloopt compare "
    "says where the two begin to differ.",
)
@click.option(
    "--save-outputs",
    metavar="FILE.npz",
    help="Write the results of the optimised module, as --expect reads them.",
)
@click.option(
    "--save-snapshot",
    metavar="FILE",
    help="Write the module, its inputs and the interpreter's results as XLA's HloSnapshot.",
)
@click.option(
    "--infeed",
    metavar="PATH",
    help="What the module reads from the host, as --inputs: infeed_0, ... and recv_CHANNEL_0, ...",
)
@click.option(
    "--outfeed",
    metavar="FILE.npz",
    help="Write what the module sends to the host: outfeed_0, ... and send_CHANNEL_0, ...",
)
@TOLERANCE
@click.option(
    "--reference-seconds",
    type=click.FloatRange(0),
    metavar="S",
    help="Stop the interpreter after this time; then nothing is verified, and the optimised form "
    "is compared with the given one.",
)
@click.option(
    "--no-reference",
    is_flag=True,
    help="Do not run the interpreter, as with --reference-seconds 0.",
)
@click.option(
    "--fill-constants",
    type=click.IntRange(0),
    metavar="SEED",
    help="Invent values for constants that the text leaves out ({...}); the verdict says so.",
)
@click.option(
    "--ignore-callbacks",
    is_flag=True,
    help="Leave out calls back into Python (jax.debug.print) whose results are not used.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="On cpu and native: threads that share large work, BLAS included; by default "
    "HLOOPT_THREADS, or all cores.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    help="Timed runs of each program; the default is 5, or as many as begin within 10 seconds.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    help="Participants that run side by side; the default is the module's replica_count.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Participants each replica is split into; the default is the module's num_partitions.",
)
@click.option(
    "--spmd",
    type=click.Choice(["threads", "mpi"]),
    default="threads",
    show_default=True,
    help="Where participants run on cpu and native: in threads of this process, or on the processes that "
    "mpiexec started.",
)
@PASSES
@WATCH.only("verify_each", "dump_dir")
@click.option(
    "--exact",
    is_flag=True,
    help="On cpu: compute f32 functions (tanh, log, ...) as the interpreter does, to the bit; slower. With "
    "--spmd mpi: combine values in the order of participants, not in MPI's.",
)
@click.option(
    "--excess-precision",
    is_flag=True,
    help="Let bf16 and f16 chains keep f32, as XLA's CPU compiler may.",
)
@click.option(
    "--custom-call",
    "custom_calls",
    metavar="[TARGET=]MODULE:FUNCTION",
    multiple=True,
    help="Evaluate the custom calls of a target by a Python function (may be repeated).",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Run a module as given and optimised, compare the results and time both.

    The module as given is evaluated by the reference interpreter; both forms are executed on the device and
    compared with the interpreter (and with --expect). An element may be off by what rounding explains: by a
    bound on its error, which the interpreter computes beside its value; where that is wide, by a few units of
    its own last place, or by what it moves when every op is rounded otherwise. Exits with 1 when results
    differ, and when no result has a finite number, which verifies nothing; with 0 where the interpreter is left
    out by an option: the verdict is then "not verified".

    The table has the time of a run and two figures of memory: the measured peak ("memory": resident, inputs and
    results included; on Linux), and what it would be if every result had a buffer for as long as it is read
    ("liveness"); programs that compute by blocks may need less. A run of a second or more is not repeated to
    warm up.

    Topics of hloopt help: inputs, devices, accuracy, participants, streams, custom-calls.

    \b
    Example:
      hloopt run dump.txt --inputs inputs.npz --expect outputs.npz -O2 --repeat 20
      hloopt run dump.txt --device native --kernels --no-reference
    """
    if ctx.get_parameter_source("seed") is ParameterSource.DEFAULT:
        given["seed"] = None
    watch = Watching.given()
    records = (pass_options(), kernel_options(), Profiling(**PROFILING.given()))
    given |= TOLERANCE.given()
    options = RunOptions(*records, verify_each=watch.verify_each, **given)
    unused = dict.fromkeys(map(load, options.custom_calls))
    runner = Runner.of(options, ctx.with_resource)
    options.check()
    runner = replace(runner, world=_world(ctx, options))
    runner.watchers.extend(watch.watchers("", runner.chosen.label))
    for note in runner.notes:
        click.echo(f"note: {note}", err=True)
    texts = _texts(files, options)

    def step(found: Input) -> dict[str, Any]:
        with patience("running", found.name, lambda: str(runner.stage), alone=len(texts) == 1):
            report = runner.run(Task(found.module, found.name, found.snapshot))
        for target in custom_call_targets(found.module):
            unused.pop(target, None)
        for file, warning in report.warnings:
            click.echo(f"{file}: warning: {warning}", err=True)
        if not as_json:
            report.show(product())
        return report.to_json()

    rows, code = each_input(texts, step)
    runner.finish()
    if as_json:
        write_json("run", {"modules": rows})
    elif len(rows) > 1:
        show_summary(rows, product())
    if rows:
        for target in unused:
            click.echo(f"note: no custom call that was run has the target {target}", err=True)
    ctx.exit(max([code, *(row.get("verdict") in ("differs", "nothing verified") for row in rows)]))


def _world(ctx: click.Context, options: RunOptions) -> World | None:
    """The processes that mpiexec started, if wanted; all but the first serve it here, and end with it."""
    if options.spmd != "mpi":
        return None
    from hloopt.driver.spmd import World, processes

    world = World(processes(), show_error, exact=options.exact)
    if world.processes.rank:
        world.serve()
        ctx.exit(0)
    ctx.call_on_close(world.stop)
    return world


def _texts(files: tuple[str, ...], options: RunOptions) -> list[InputText]:
    """The texts to run.  Raises ``UsageError`` for several modules where an option belongs to one."""
    texts = open_texts(files)
    if options.names_arrays:
        belonging = (
            "--inputs, --expect, --against, --save-snapshot, --save-outputs, --infeed and --outfeed"
        )
        one_text(texts, f"{belonging} belong")
    if options.profiling.trace is not None:
        one_text(texts, "--trace belongs")
    return texts

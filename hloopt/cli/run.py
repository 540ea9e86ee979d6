"""``hloopt run``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import (
    PICKED,
    OptionGroup,
    custom_call_option,
    files_argument,
    json_option,
    option,
)
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import PARTICIPANTS, ROUNDING, participants_of, rounding_of
from hloopt.cli.words import OneOf, complete

__all__ = ["PROFILING", "command"]


PROFILING = OptionGroup(
    "profiling",
    option(
        "--kernels",
        type=OneOf(["warm", "cold"]),
        metavar="[=cold]",
        help="Time each kernel of the optimised form. Each has its line of the program; on gpu they are "
        "always timed, and with =cold each begins with an empty second-level cache.",
    ),
    option(
        "--trace",
        metavar="FILE",
        help="Write the kernels of a run as JSON. For Perfetto (ui.perfetto.dev) and --profile of other "
        "commands, gzipped where FILE ends in .gz. Implies --kernels.",
    ),
)


def _participants(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> dict[str, int | str]:
    """The fields ``replicas``, ``partitions`` and ``spmd``."""
    counts, _, last = (value or "").rpartition(",")
    if last != "mpi":
        return {**participants_of(ctx, param, value)}
    return {**participants_of(ctx, param, counts or None), "spmd": "mpi"}


@click.command(
    "run",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Input": (*PICKED, "inputs", "seed", "fill_constants"),
        "Execution": (
            "device",
            "target",
            "threads",
            "repeat",
            "participants",
            "rounding",
            "custom_calls",
        ),
        "Kernels": ("kernel", "lock", "allow_host"),
        "Results": ("expect", *TOLERANCE.names, "verify", "save", *PROFILING.names, "as_json"),
    },
    bare={"--kernels": "warm"},
)
@files_argument
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="NAME",
    shell_complete=complete("backends", "DEVICES"),
    help="Where programs run. cpu (NumPy), native (C++ on this CPU), gpu (CUDA), or emulator (the GPU's "
    "kernels on the CPU, each access to memory checked).",
)
@click.option(
    "--allow-host",
    is_flag=True,
    help="Let the interpreter run what has no kernel. On gpu and emulator; the table says how much that "
    "is.",
)
@KERNELS.only("target", "kernel", "lock")
@PROFILING
@click.option(
    "--inputs",
    metavar="PATH",
    help="Arrays in an .npz, or a folder of .npy. in_0, in_1, ... are the parameters, in_0.3 is for "
    "participant 3, infeed_0 and recv_CHANNEL_0 are what the module reads from the host.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed of inputs that are not given. And of what rng draws.",
)
@click.option(
    "--expect",
    metavar="PATH",
    help="Compare with recorded results as well. out_0, out_1, ... in an .npz or a folder; of "
    "participant 3, out_0.3.",
)
@click.option(
    "--save",
    multiple=True,
    metavar="FILE",
    help="Write results as .npz, or a snapshot as .pb. The .npz has the results of the optimised module, "
    "as --expect reads them, and what it sends to the host: outfeed_0, send_CHANNEL_0. The .pb is XLA's "
    "HloSnapshot: the module, its inputs and the interpreter's results (may be repeated).",
)
@TOLERANCE
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compare with the interpreter. Otherwise the optimised form is compared with the given one.",
)
@click.option(
    "--fill-constants",
    type=click.IntRange(0),
    metavar="SEED",
    help="Invent constants that the text leaves out. Those written {...}; the verdict says so.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Threads of cpu and native [all cores]. BLAS included; HLOOPT_THREADS sets the default.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    show_default="5",
    help="Timed runs of each program. Fewer where 5 would take more than 10 seconds.",
)
@click.option(
    "--participants",
    metavar="N|RxP|mpi",
    callback=_participants,
    help=f"{PARTICIPANTS} With mpi, or 2x4,mpi, on the processes that mpiexec started; else they are threads.",
)
@PASSES.only(*COMMON_PASSES)
@click.option("--rounding", type=OneOf(["exact", "excess"]), callback=rounding_of, help=ROUNDING)
@custom_call_option
@json_option
def command() -> None:
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
      hloopt run dump.txt --device native --kernels --no-verify
    """

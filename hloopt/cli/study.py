"""``hloopt study``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.time_options import model_of
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.words import complete, complete_model, complete_pipeline, complete_strategy

__all__ = ["command"]


@click.command(
    "study",
    cls=GroupedCommand,
    groups={
        "Strategies": ("strategies", "strategy", "baseline", "pass_file", "fusion_rule"),
        "Input": (*PICKED, "seed"),
        "Devices": ("device", "cost_model", "repeat"),
        "Verification": ("verify", "verify_limit", "emulate_limit", *TOLERANCE.names),
        "Workers": ("workers", "timeout", "memory"),
        "Output": ("gates", "cells", "html", "out", "as_json"),
    },
)
@files_argument
@click.option(
    "--strategies",
    metavar="FILE.toml",
    help="A file of what is compared. Strategies, ladders, ablations, and modules and devices, too.",
)
@click.option(
    "--strategy",
    multiple=True,
    metavar="[NAME=]PASSES",
    shell_complete=complete_pipeline,
    help="Compare this, too: O2 or mine=simplify,cse. Without any: O0 to O3 (may be repeated).",
)
@click.option(
    "--baseline",
    metavar="NAME",
    shell_complete=complete_strategy,
    help="What the others are compared with [the first]. The name of a strategy.",
)
@PASSES.only("pass_file", "fusion_rule")
@click.option(
    "--device",
    multiple=True,
    metavar="NAME",
    shell_complete=complete("study.devices", "device_names"),
    help="Measure on a device, or predict for a target. cpu, native, gpu, xla-cpu: measured; emulator: "
    "verified; a target (h200, a100, ...): predicted (may be repeated; cpu by default).",
)
@click.option(
    "--cost-model",
    metavar="NAME",
    shell_complete=complete_model,
    callback=model_of,
    help="What predicts times [xla-2026]. As --cost-model of hloopt stats.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    help="Timed runs of each cell [5]. Fewer where 5 would take more than 10 seconds.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed of inputs. Without it NAME.npz beside NAME.hlo is used, where there is one.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compare with the interpreter. The results of every cell, and with recorded ones.",
)
@click.option(
    "--verify-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Elements the interpreter may compute [4e10]. To verify a module; larger ones are not verified.",
)
@click.option(
    "--emulate-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Elements the emulator may compute [4e8].",
)
@TOLERANCE
@click.option(
    "--workers",
    metavar="N|URL",
    help="Make cells in N processes, or on a cluster. dask://HOST:PORT is the scheduler of one. Each process "
    "takes times while the others of the machine wait; one that dies costs one cell.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Give a cell up after S seconds. It is made in a process of its own.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0, min_open=True),
    metavar="GIB",
    help="Give a cell up that needs more memory. In GiB; it is made in a process of its own.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="[NAME=]RATIO",
    shell_complete=complete_strategy,
    help="Exit with 6 unless it is so much faster. The strategy, or without NAME the fastest one, has to "
    "be so many times as fast as the baseline, for each module on each device (may be repeated).",
)
@click.option(
    "--cells",
    metavar="OUT.jsonl",
    help="Keep each cell, and go on from what is there. A line of JSON each, written when the cell is made: "
    "a study that was stopped makes those that are missing. What failed with its process is made again.",
)
@click.option(
    "--html", metavar="OUT.html", help="Write one page with bars, tables and all figures."
)
@click.option(
    "--out",
    metavar="DIR",
    help="Keep the optimised modules. And lock files of what was fused and which kernels ran.",
)
@json_option
def command() -> None:
    """Compare pipelines: what each pass buys, on which module and device, with every result verified.

    Every module is optimised by every strategy for every device. Times are measured on cpu (NumPy), native
    (C++), gpu and xla-cpu (XLA itself, by the Python that HLOOPT_XLA_PYTHON names), and predicted for every
    target by a cost model: the sum over kernels with their launches, loop iterations included, as hloopt stats
    --target has it. On emulator the CUDA C of the kernels runs on the CPU and is verified, never timed.

    The results of every cell are compared with the interpreter's, and with recorded ones, by the tolerances of
    hloopt run; where times are predicted, the module is run once on the CPU. A cell that fails, or whose device
    is missing, is reported and does not stop the others. Exits with 1 when results differ.

    A study file names strategies. A ladder adds passes of a pipeline one at a time, an ablation leaves each
    out: the column 'bought' shows what a step is worth. The file may also name modules (one as a variant of
    another, whose baseline counts for both) and devices:

    \b
      baseline = "XLA 2022"
      devices = ["cpu", "h200"]
      [[module]]
      file = "rollout.hlo"
      [[strategy]]
      name = "XLA 2022"
      passes = "xla-gpu-2022"
      [[strategy]]
      name = "ours"
      passes = "O3"
      ladder = ["rng-expander", "concat-removal", "loop-fusion"]
      ablation = ["loop-fusion"]

    \b
    Example:
      hloopt study rollout.hlo --device cpu --device h200
      hloopt study rollout.hlo --strategies study.toml --html study.html
      hloopt study *.hlo --strategy O2 --strategy 'mine=O2,cse' --gate mine=1.05
    """

"""Options that say on which inputs, and by what, modules are run to be compared."""

from __future__ import annotations

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import complete
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions

__all__ = ["EXECUTOR", "TRIALS", "executor", "trial_options"]

TRIALS = OptionGroup(
    "trials",
    option(
        "--inputs",
        metavar="PATH",
        help="in_0, in_1, ... in an .npz or a folder of .npy; in_0.3 is for participant 3.",
    ),
    option(
        "--seed",
        type=click.IntRange(0),
        help="Seed of random inputs, 0 by default; of several trials, that of the first.",
    ),
    option(
        "--trials",
        type=click.IntRange(1),
        metavar="N",
        help="Try N inputs, each with the next seed: plain ones, then one special class after the other.",
    ),
    option(
        "--special",
        multiple=True,
        metavar="CLASS",
        shell_complete=complete("runtime.trial_inputs", "SPREADS"),
        help="Random inputs with special values of a class: zero, infinite, nan, subnormal, largest, "
        "extreme (integers), cancelling, opposite (pairs whose sum is 0), same (all one number), huge, tiny, "
        "tied, stray (indices), negative, wide, lone; all is each of them in its turn (may be repeated).",
    ),
    option(
        "--infeed",
        metavar="PATH",
        help="What the modules read from the host: infeed_0, ... and recv_CHANNEL_0, ...",
    ),
    option(
        "--replicas",
        type=click.IntRange(1),
        help="Participants that run side by side; the default is the module's replica_count.",
    ),
    option(
        "--partitions",
        type=click.IntRange(1),
        help="Participants each replica is split into; the default is the module's num_partitions.",
    ),
)

EXECUTOR = OptionGroup(
    "executor",
    option(
        "--device",
        default="interpreter",
        show_default=True,
        metavar="NAME",
        shell_complete=complete("prover.executor", "EXECUTORS"),
        help="What runs the modules: interpreter, cpu (NumPy), native, gpu, emulator, or xla-cpu "
        "(XLA, which needs jaxlib).",
    ),
    option(
        "--seconds",
        type=click.FloatRange(0, min_open=True),
        metavar="S",
        help="Stop a run of the interpreter or of XLA after this time.",
    ),
    option(
        "--excess-precision",
        is_flag=True,
        help="Let bf16 and f16 chains keep f32, as XLA's CPU compiler may.",
    ),
)


def trial_options() -> TrialOptions:
    """What the running command was given for ``TRIALS``, checked."""
    options = TrialOptions(**TRIALS.given())
    options.check()
    return options


def executor() -> Executor:
    """What the running command was given for ``EXECUTOR``.

    Raises ``UsageError`` for an unknown one, ``DeviceError`` for one that this machine lacks.
    """
    given = EXECUTOR.given()
    made = Executor(given["device"], given["excess_precision"], seconds=given["seconds"])
    made.check()
    return made

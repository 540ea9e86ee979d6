"""Options that say on which inputs, and by what, modules are run to be compared."""

from __future__ import annotations

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import OneOf, complete

__all__ = [
    "EXECUTOR",
    "PARTICIPANTS",
    "ROUNDING",
    "TRIALS",
    "participants_of",
    "rounding_of",
]


def participants_of(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> dict[str, int]:
    """The fields ``replicas`` and ``partitions`` of records, as far as they are given."""
    counts = [] if value is None else value.lower().split("x")
    if len(counts) > 2 or not all(
        count.isascii() and count.isdigit() and int(count) for count in counts
    ):
        raise click.BadParameter(
            f"'{value}' is neither a number of replicas nor REPLICASxPARTITIONS, such as 2x4",
            ctx,
            param,
        )
    return dict(zip(("replicas", "partitions"), map(int, counts), strict=False))


def rounding_of(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, bool]:
    """The fields ``exact`` and ``excess_precision`` of records."""
    return {"exact": value == "exact", "excess_precision": value == "excess"}


PARTICIPANTS = "Run this many replicas, or REPLICASxPARTITIONS. By default what the module says."
ROUNDING = (
    "Round as the interpreter, or as XLA may. exact computes f32 functions (tanh, log, ...) on cpu as the "
    "interpreter does, to the bit, and combines values of MPI's processes in the order of participants; it is "
    "slower. excess lets chains of bf16 and f16 keep f32, as XLA's CPU compiler may."
)

TRIALS = OptionGroup(
    "trials",
    option(
        "--inputs",
        metavar="PATH",
        help="Arrays in an .npz, or a folder of .npy. in_0, in_1, ... are the parameters, in_0.3 is for "
        "participant 3, infeed_0 and recv_CHANNEL_0 are what the module reads from the host.",
    ),
    option(
        "--seed",
        default=None,
        show_default="0",
        type=click.IntRange(0),
        help="Seed of random inputs. Of several trials it is that of the first.",
    ),
    option(
        "--trials",
        type=click.IntRange(1),
        metavar="N",
        help="Try N inputs, each with the next seed. The first are plain, then each special class has "
        "its turn.",
    ),
    option(
        "--special",
        multiple=True,
        metavar="CLASS",
        shell_complete=complete("runtime.trial_inputs", "SPREADS"),
        help="Random inputs with special values, such as nan. Classes are zero, infinite, nan, "
        "subnormal, largest, extreme (integers), cancelling, opposite (pairs whose sum is 0), same (all "
        "one number), huge, tiny, tied, stray (indices), negative, wide, lone; all is each of them in "
        "its turn (may be repeated).",
    ),
    option("--participants", metavar="N|RxP", callback=participants_of, help=PARTICIPANTS),
)

EXECUTOR = OptionGroup(
    "executor",
    option(
        "--device",
        default="interpreter",
        show_default=True,
        metavar="NAME",
        shell_complete=complete("prover.executor", "EXECUTORS"),
        help="What runs the modules. interpreter, cpu (NumPy), native (C++), gpu, emulator, or xla-cpu "
        "(XLA, which needs jaxlib).",
    ),
    option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="S",
        help="Stop a single run after S seconds. Of the interpreter, of XLA, or of the command of "
        "--check.",
    ),
    option(
        "--rounding",
        type=OneOf(["exact", "excess"]),
        callback=rounding_of,
        help=ROUNDING,
    ),
)

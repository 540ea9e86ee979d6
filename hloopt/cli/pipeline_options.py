"""Options that say which passes run, and how far: for every command that runs a pipeline."""

from __future__ import annotations

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import (
    OneOf,
    complete,
    complete_fuel,
    complete_pass,
    complete_pipeline,
    one_of,
)

__all__ = ["COMMON_PASSES", "PASSES"]


def _fuel(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, int]:
    fuel: dict[str, int] = {}
    for text in value:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount.isascii() and amount.isdigit()):
            raise click.BadParameter(f"'{text}' is not of the form PASS=NUMBER", ctx, param)
        if name in fuel:
            raise click.BadParameter(f"the fuel of {name} is given twice", ctx, param)
        fuel[name] = int(amount)
    return fuel


PASSES = OptionGroup(
    "passes",
    option(
        "-O",
        "level",
        type=OneOf(["0", "1", "2", "3"]),
        help="A named pipeline, -O2 by default. 0 does nothing; 1 cleans up and folds constants; 2 also "
        "simplifies the whole module and fuses as XLA's GPU compiler does; 3 also trades work for fewer "
        "kernels and runs whole loops as one kernel each. XLA's own order of passes is --passes "
        "xla-gpu-2026.",
    ),
    option(
        "--passes",
        metavar="TEXT|FILE.toml",
        shell_complete=complete_pipeline,
        help="A pipeline, such as 'simplify,fix(cse,dce)'. A file may hold one.",
    ),
    option(
        "--pass-file",
        multiple=True,
        metavar="FILE.py",
        help="Take the passes that a Python file defines. It is run (may be repeated).",
    ),
    option(
        "--fast-math",
        is_flag=True,
        help="Allow rewrites that change float results. As XLA does by default: x/3 becomes x*(1/3), "
        "sums are regrouped; without it results keep every bit.",
    ),
    option(
        "--precision",
        callback=one_of("passes.dots.precision", "PRECISIONS"),
        shell_complete=complete("passes.dots.precision", "PRECISIONS"),
        metavar="[bf16x3|tf32]",
        help="Let dots of f32 round their factors. Matrix units of GPUs can then multiply them: rounded "
        "to tf32 (10 bits of fraction), or to two terms of bf16 (16 bits, three products). Without it "
        "they are exact f32.",
    ),
    option(
        "--only",
        multiple=True,
        metavar="PASS",
        shell_complete=complete_pass,
        help="Run only this pass of the pipeline. May be repeated.",
    ),
    option(
        "--disable",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_pass,
        help="Leave out a pass, or a rule by its equation. May be repeated.",
    ),
    option(
        "--fuel",
        multiple=True,
        metavar="PASS=N",
        shell_complete=complete_fuel,
        callback=_fuel,
        help="Let a pass make only N rewrites. They count over all its runs: so the one that matters is "
        "found.",
    ),
    option(
        "--stop-after",
        type=click.IntRange(0),
        metavar="N",
        help="Stop after N runs of passes.",
    ),
    option(
        "--fusion-rule",
        multiple=True,
        metavar="FUNCTION",
        help="Let a Python function decide what is fused. MODULE:FUNCTION or FILE.py:FUNCTION: it gets "
        "producer and consumer, and answers True, False, None or (False, 'reason') (may be repeated; the "
        "first answer counts).",
    ),
)

COMMON_PASSES = tuple(name for name in PASSES.names if name not in {"only", "fuel", "stop_after"})
"""Those of commands that are not about the passes themselves."""

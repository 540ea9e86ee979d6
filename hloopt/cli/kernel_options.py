"""Options that say which kernel runs what: for every command that chooses kernels."""

from __future__ import annotations

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import complete_kernel, complete_target

__all__ = ["KERNELS"]


def _kernels(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Wishes, files of kernels, and the function that chooses."""
    wishes: list[str] = []
    files: list[str] = []
    rules: list[str] = []
    for text in value:
        if text.endswith((".py", ".cu")):
            files.append(text)
        elif "=" in text:
            wishes.append(text)
        elif ":" in text:
            rules.append(text)
        else:
            raise click.BadParameter(
                f"'{text}' is not of the form PATTERN=KERNEL, FILE.cu, FILE.py or MODULE:FUNCTION",
                ctx,
                param,
            )
    if len(rules) > 1:
        raise click.BadParameter(f"{rules[0]} and {rules[1]} cannot both choose", ctx, param)
    return tuple(wishes), tuple(files), rules[0] if rules else None


KERNELS = OptionGroup(
    "kernels",
    option(
        "--target",
        metavar="NAME|FILE",
        shell_complete=complete_target,
        help="Device to choose kernels and to fuse for [h200]. A name that hloopt targets lists, or the "
        "path of a description; for the device native it is host.",
    ),
    option(
        "--kernel",
        multiple=True,
        metavar="PATTERN=NAME",
        shell_complete=complete_kernel,
        callback=_kernels,
        help="Kernel for some instructions, or a FILE of kernels. PATTERN is a name, a glob, /regex/, "
        "op:OPCODE (of a fusion's hero, too) or op_name:GLOB, and NAME may set a tile: "
        "op:dot=dot-tiled{m=64}; the last that matches counts. FILE.cu begins with the HLO that it "
        "computes, FILE.py defines kernels. MODULE:FUNCTION chooses: it gets the instruction, the "
        "candidates and the target (may be repeated).",
    ),
    option(
        "--lock",
        metavar="FILE",
        help="Fuse and choose kernels as this lock file says.",
    ),
    option(
        "--frozen",
        is_flag=True,
        help="With --lock: fail where it no longer matches.",
    ),
    option(
        "--write-lock",
        metavar="FILE",
        help="Write what was fused and chosen as a lock file.",
    ),
)

"""``hloopt optimize``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.output_options import PRINT, WATCH
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.words import OneOf

__all__ = ["command"]


@click.command(
    "optimize",
    cls=GroupedCommand,
    groups={
        "Passes": PASSES.names,
        "Kernels": KERNELS.names,
        "Instrumentation": WATCH.names,
        "Input": PICKED,
        "Output": ("output", "emit", *PRINT.names, "as_json"),
    },
    bare={"--print-changed": "hlo"},
)
@files_argument
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write to this file or directory. - is stdout, the default.",
)
@PASSES
@KERNELS
@WATCH
@click.option(
    "--emit",
    type=OneOf(["hlo", "xla", "proto", "stablehlo", "mlir.bc"]),
    default="hlo",
    show_default=True,
    metavar="FORM",
    help="xla, proto, stablehlo or mlir.bc. xla: fusions expanded and bitcasts written out, as XLA "
    "compiles it; proto: an HloProto, as for OUT called .pb; stablehlo: that of xla as StableHLO text, "
    "as for .mlir; mlir.bc: as a portable artifact (both need jaxlib).",
)
@PRINT
@json_option
def command() -> None:
    """Run passes over modules and print them as HLO, or as StableHLO for frameworks.

    HLO goes to stdout (or OUT; a directory for several modules), everything else to stderr.  Where several
    modules go to stdout, each begins with a comment that names its file.

    \b
    Example:
      hloopt optimize dump.txt --passes 'simplify,cse,dce' --stats -o better.hlo
      hloopt optimize dump.txt --print-changed=diff -o /dev/null
      hloopt optimize dump.txt --remarks-out remarks.sarif --dump-dir stages
      hloopt optimize model.mlir --emit stablehlo -o better.mlir
    """

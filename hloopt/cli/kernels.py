"""``hloopt kernels``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES

__all__ = ["command"]


@click.command(
    "kernels",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("planned", "source", "ir", "compiled", "listing", "as_json"),
    },
)
@files_argument
@PASSES.only(*COMMON_PASSES)
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
def command() -> None:
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
      hloopt kernels m.hlo --kernel 'op:dot=dot-tiled{m=64}' --write-lock k.toml
      hloopt kernels dump.txt --lock kernels.toml --frozen --source > kernels.cu
      hloopt kernels dump.txt --target host --plan
    """

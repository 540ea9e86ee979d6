"""``hloopt build``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, json_option, pick_options
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES
from hloopt.cli.words import complete, one_of

__all__ = ["command"]


@click.command(
    "build",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("output", "header", "python", "wheel", "weights", "march", "as_json"),
    },
)
@click.argument("file", type=click.Path())
@pick_options
@PASSES.only(*COMMON_PASSES)
@KERNELS.only("kernel", "lock")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write this library: libNAME.so or libNAME.a. One that ends in .a is to link statically; its "
    "functions begin with NAME_.",
)
@click.option("--header", metavar="FILE.h", help="Write the header for C and C++.")
@click.option(
    "--python",
    metavar="FILE.py",
    help="Write a Python module that loads the library. It needs NumPy only.",
)
@click.option(
    "--wheel",
    metavar="DIR",
    help="Write a package for pip into this folder. It is imported as NAME, holds the library and needs "
    "NumPy only.",
)
@click.option(
    "--weights",
    metavar="FILE",
    help="Write constants to this file, mapped at run time. A model's weights, too; else they are part "
    "of the library.",
)
@click.option(
    "--march",
    callback=one_of("exports.library.compiling", "MARCHES"),
    shell_complete=complete("exports.library.compiling", "MARCHES"),
    default="native",
    show_default=True,
    metavar="ARCH",
    help="Processor to compile for. native is this one; x86-64 to x86-64-v4 are levels of it, aarch64 "
    "takes a cross compiler.",
)
@json_option
def command() -> None:
    """Compile a module into a library of C, which needs neither Python nor hloopt.

    The module is optimised (-O2 unless other passes are given) and compiled as hloopt run --device native
    does: results are equal to the bit, whatever the number of threads, on the processor that it was compiled
    for. What NumPy computes there, some large products, is computed by loops, and stderr says so; what only
    Python can run is an error.

    A library is safe to call from several threads, each with a context of its own. Element types and
    dimensions are those of the module; its header and functions tell them.

    \b
    Example:
      hloopt build dump.txt -o libmodel.so --header model.h --python model.py
      hloopt build dump.txt -o libmodel.a --header model.h --march x86-64-v3
      hloopt build dump.txt --wheel dist
      cc main.c libmodel.a -lm -lpthread
    """

"""Options that say which kernel runs what: for every command that chooses kernels."""

from __future__ import annotations

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import complete_kernel, complete_target
from hloopt.driver.options import KernelOptions

__all__ = ["KERNELS", "kernel_options"]

KERNELS = OptionGroup(
    "kernels",
    option(
        "--target",
        metavar="NAME|FILE",
        shell_complete=complete_target,
        help="The target to choose kernels and to fuse for: a name (see hloopt targets), or the path "
        "of a description; h200 by default, host for the device native.",
    ),
    option(
        "--kernel",
        multiple=True,
        metavar="PATTERN=NAME[{KEY=N}]",
        shell_complete=complete_kernel,
        help="Run some instructions with this kernel: a name, a glob, /regex/, op:OPCODE (of a "
        "fusion's hero, too) or op_name:GLOB (may be repeated; the last that matches counts).",
    ),
    option(
        "--kernel-rule",
        metavar="MODULE:FUNCTION",
        help="Let a Python function choose: it gets the instruction, the candidates and the target.",
    ),
    option(
        "--kernel-file",
        multiple=True,
        metavar="FILE",
        help="Take user-defined kernels from a Python file, or from a .cu file that begins with the "
        "HLO it computes (may be repeated).",
    ),
    option("--lock", metavar="FILE", help="Fuse and choose kernels as this lock file says."),
    option(
        "--frozen",
        is_flag=True,
        help="With --lock: whatever no longer matches the lock file is an error.",
    ),
    option(
        "--write-lock",
        metavar="FILE",
        help="Write what was fused, and which kernels were chosen, as a lock file.",
    ),
)


def kernel_options() -> KernelOptions:
    """What the running command was given for ``KERNELS``."""
    return KernelOptions(**KERNELS.given())

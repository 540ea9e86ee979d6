"""``hloopt hash``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import files_argument, json_option

__all__ = ["command"]


@click.command("hash", cls=GroupedCommand)
@files_argument
@json_option
def command() -> None:
    """Print a digest of each module: equal for equal modules, on every machine.

    It is made from the canonical form (see optimize --canonical).  What counts: opcodes, shapes with
    their layouts, operands, control dependencies, attributes, the bytes of literals, what the header says,
    and in a scheduled module the order of instructions.

    What does not: names, comments and blanks, metadata and other attributes that serve debugging, the order
    of attributes, of computations and of independent instructions, and defaults that may be written or
    not.  Literals that are left out of the text ({...}) count as equal.

    XLA's protocol buffers do not hold all that a text's header says (replica_count,
    allow_spmd_sharding_propagation_to_output ...): the digests of the two can differ for that reason.

    \b
    Example:
      hloopt hash dump/*before_opt*.txt | sort | uniq -w32 --all-repeated=separate
    """

"""Options of what passes print while they run, and of how modules are printed."""

from __future__ import annotations

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import OneOf, complete_pass

__all__ = ["PRINT", "WATCH"]

WATCH = OptionGroup(
    "watch",
    option(
        "--print-before",
        multiple=True,
        metavar="PASS",
        shell_complete=complete_pass,
        help="Print HLO before each run of a pass, or 'all'.",
    ),
    option(
        "--print-after",
        multiple=True,
        metavar="PASS",
        shell_complete=complete_pass,
        help="Print HLO after each change by a pass, or 'all'.",
    ),
    option(
        "--print-changed",
        type=OneOf(["hlo", "diff"]),
        metavar="[=diff]",
        help="Print HLO after each change, or the difference. Before the first pass, too; with =diff "
        "only what changed.",
    ),
    option(
        "--dump-dir",
        metavar="DIR",
        help="Write a file after each pass that changed it. And one before the first pass, named as XLA "
        "names its dumps.",
    ),
    option("--time-passes", is_flag=True, help="Print the seconds each pass took."),
    option("--stats", "show_stats", is_flag=True, help="Print how often each rule applied."),
    option("--verify-each", is_flag=True, help="Verify the module after every pass."),
    option(
        "--remarks",
        type=OneOf(["passed", "missed", "all"]),
        metavar="KIND",
        help="Print rewrites: passed, missed or all. Those that were made, or nearly made, each with its "
        "reason and the line of the program.",
    ),
    option(
        "--remarks-out",
        metavar="FILE",
        help="Write remarks as .yaml, .json or .sarif. All of them by default; YAML is what LLVM's tools "
        "read.",
    ),
)

PRINT = OptionGroup(
    "print",
    option(
        "--canonical",
        is_flag=True,
        help="Print equal modules alike. Names, computations and independent instructions in an order "
        "that the graph decides, defaults and usual spellings, no metadata.",
    ),
    option(
        "--no-layouts",
        is_flag=True,
        help="Leave out layouts. Of shapes, of the entry and of custom calls' operands: a reader takes "
        "the usual ones, which matters for bitcasts.",
    ),
    option(
        "--no-metadata",
        is_flag=True,
        help="Leave out what only serves debugging. Metadata, stack tables, origin, statistics.",
    ),
)
"""How ``hlo_text`` prints."""

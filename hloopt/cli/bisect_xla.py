"""``hloopt bisect`` of a module that XLA compiles here."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.messages import show_error
from hloopt.cli.options import OptionGroup, option
from hloopt.cli.tolerance_options import given_tolerance
from hloopt.cli.trial_options import executor, trial_options
from hloopt.cli.waiting import patience
from hloopt.errors import UsageError
from hloopt.prover.xla_bisect import XlaBisect
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["XLA", "bisect_by_xla"]

XLA = OptionGroup(
    "xla",
    option(
        "--xla",
        is_flag=True,
        help="Bisect XLA's own passes over the module. XLA's CPU compiler (HLOOPT_XLA_PYTHON) compiles "
        "it, and the stages that it dumps are bisected.",
    ),
    option(
        "--xla-flags",
        default="",
        metavar="FLAGS",
        help="XLA_FLAGS of the compilations. With --xla, and where the remedy for a dump is tried.",
    ),
    option(
        "--expect",
        metavar="PATH",
        help="Results of the compiled program. out_0, ... in an .npz or a folder, with a dump: where all "
        "stages agree and these differ, code generation is to blame.",
    ),
    option("--keep-dump", metavar="DIR", help="With --xla: keep its dump in this directory."),
)


def bisect_by_xla(
    path: str, *, every: bool, as_json: bool, show_all: bool
) -> tuple[list[Any], int]:
    """Search XLA's passes over the module of a file: its row, and the exit code."""
    given = XLA.given()
    text = one_text(open_texts((path,)), "--xla belongs")
    codes = [0]

    def step(found: Input) -> dict[str, Any]:
        with ExitStack() as stack:
            kept = given["keep_dump"]
            folder = Path(kept or stack.enter_context(tempfile.TemporaryDirectory()))
            if folder.is_dir() and any(folder.iterdir()):
                raise UsageError(f"{folder}: is not empty; XLA's dump needs a directory of its own")
            search = XlaBisect(
                found.module,
                found.name,
                folder,
                trial_options(),
                executor(),
                given_tolerance(),
                every,
                given["xla_flags"],
            )
            with patience("bisecting", found.name, lambda: search.status):
                record = search.run()
        for error in search.unreadable:
            show_error(error)
        codes.append(record.exit_code)
        if not as_json:
            show_bisection(record, product(), every=show_all)
        return record.to_json()

    rows, code = each_input([text], step)
    return rows, max(code, *codes)

"""``hloopt bisect`` of a module that XLA compiles here."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hloopt.cli.bisect import XLA
from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.given import executor, given_tolerance, trial_options
from hloopt.cli.messages import show_error
from hloopt.cli.waiting import patience
from hloopt.errors import UsageError
from hloopt.prover.xla_bisect import XlaBisect
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["bisect_by_xla"]


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

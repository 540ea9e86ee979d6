"""``hloopt compare``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, one_text, open_each
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.options import (
    PICKED,
    custom_call_option,
    json_option,
    pick_options,
    stages_of_sides,
)
from hloopt.cli.tolerance_options import TOLERANCE, given_tolerance
from hloopt.cli.trial_options import EXECUTOR, TRIALS, executor, trial_options
from hloopt.cli.waiting import patience
from hloopt.driver.writing import check_writable, write_bytes
from hloopt.errors import UsageError
from hloopt.interpret.plugins import load
from hloopt.prover.compare import ModulesCompared, compare_modules
from hloopt.report.comparing import show_compared
from hloopt.report.console import product
from hloopt.runtime.inputs import named_arrays, npz

__all__ = ["command"]


@click.command(
    "compare",
    cls=GroupedCommand,
    groups={
        "Input": (*PICKED, *TRIALS.names),
        "Comparison": (*EXECUTOR.names, *TOLERANCE.names, "custom_calls"),
        "Output": ("save_inputs", "as_json"),
    },
)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@pick_options
@TRIALS
@EXECUTOR
@TOLERANCE
@click.option(
    "--save-inputs",
    metavar="FILE.npz",
    help="Write inputs that show a difference. As --inputs reads them; nothing where there is none.",
)
@custom_call_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    before: str,
    after: str,
    save_inputs: str | None,
    custom_calls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run two modules on the same inputs, and find the first value that differs.

    BEFORE and AFTER are texts, protocol buffers, snapshots or stages of a dump directory (--module picks the
    module, --stage given twice the stages); one may be '-'. Results are compared element by element, by what
    rounding allows in either module (see hloopt help accuracy).

    Without --inputs, --trials and --special, one random input is tried, and then each class of special values,
    for 30 seconds at most. A program and what XLA's SPMD partitioner made of it are compared by whole arrays;
    parameters that the other module does not use may be missing.

    Where results differ, the interpreter's values of all instructions are compared: in called computations,
    fusions and loops too. Values are matched by their data, so that rewriting in between does not matter. The
    first that differs though all it is made of agrees is shown with both instructions and their lines, an
    element, the operands there, and the rule that explains it, where one was tried and does.

    Exits with 0 when all results are equal, with 1 when any differs and when none has a finite number.

    \b
    Example:
      hloopt compare old.hlo new.hlo --trials 20 --save-inputs bad.npz
      hloopt compare dump dump --module jit_step --stage before --stage after
      hloopt optimize -O2 dump.txt | hloopt compare dump.txt - --special nan
    """
    if save_inputs == "-":
        raise UsageError("--save-inputs writes an .npz file, not standard output")
    if save_inputs is not None:
        check_writable(save_inputs)
    for call in custom_calls:
        load(call)
    texts = [
        one_text(side, "compare is about one module on each side, and belongs")
        for side in open_each([before, after], stages_of_sides(ctx))
    ]
    read: list[Input] = []

    def step(found: Input) -> dict[str, Any]:
        read.append(found)
        return {}

    rows, code = each_input(texts, step)
    if code:
        if as_json:
            write_json("compare", {"modules": rows})
        ctx.exit(code)
    found = _compared(*read)
    _save(save_inputs, found)
    if as_json:
        write_json("compare", found.to_json())
    else:
        show_compared(found, product())
    ctx.exit(0 if found.equal else 1)


def _compared(before: Input, after: Input) -> ModulesCompared:
    """Compare as the options of the running command say."""
    doing: list[str] = []
    with patience("comparing", "", lambda: doing[-1] if doing else ""):
        return compare_modules(
            before.module,
            after.module,
            (before.name, after.name),
            trials=trial_options(),
            executor=executor(),
            tolerance=given_tolerance(),
            snapshot=before.snapshot or after.snapshot,
            begin=doing.append,
        )


def _save(path: str | None, found: ModulesCompared) -> None:
    """Write the inputs that show a difference, and say so."""
    if path is None:
        return
    if found.verdict != "differ":
        click.echo(f"note: nothing differs, so {path} is not written", err=True)
        return
    write_bytes(path, npz(named_arrays("in", found.given.arrays)), path)

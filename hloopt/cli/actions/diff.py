"""What ``hloopt diff`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.files import Input, each_input, open_each
from hloopt.cli.json_out import write_json
from hloopt.cli.options import stages_of_sides
from hloopt.cli.predicting import predictor, read_both
from hloopt.cli.waiting import patience
from hloopt.driver.compare import compare_logs
from hloopt.driver.recompiling import Compilations, perhaps_again
from hloopt.dumps.content import is_fusion_log
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.diff_dumps import compare_dumps, show_dumps
from hloopt.report.fusion_diff import compare_kernels, show_difference
from hloopt.report.module_pairs import GivenModule
from hloopt.report.notebook import show

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor

__all__ = ["execute"]


_DIFFERENT = 1


@click.pass_context
def execute(
    ctx: click.Context,
    before: str,
    after: str | None,
    target: str | None,
    cost_model: str,
    every: bool,
    why: bool,
    as_json: bool,
) -> None:
    """What ``hloopt diff`` does."""
    stages = stages_of_sides(ctx)
    if why:
        if target is not None or every:
            raise UsageError("--target and --all are about kernels, not --why-recompile")
        given = [before] if after is None else [before, after]
        ctx.exit(_why_recompile(given, stages[: len(given)], as_json=as_json))
    if after is None:
        raise click.MissingParameter(ctx=ctx, param_type="argument", param_hint="'AFTER'")
    if is_fusion_log(Path(before)) or is_fusion_log(Path(after)):
        if target is not None or every:
            raise UsageError("--target and --all are about modules, not XLA's fusion logs")
        with patience("comparing", "the logs"):
            logs = compare_logs(Path(before), Path(after))
        if as_json:
            write_json("diff", logs.to_json())
        else:
            show(logs, product())
        ctx.exit(0 if logs.equal else _DIFFERENT)
    model = predictor(target, cost_model)
    ctx.exit(_diff_modules([before, after], stages, model, every=every, as_json=as_json))


def _diff_modules(
    arguments: Sequence[str],
    stages: Sequence[Sequence[str]],
    model: Predictor | None,
    *,
    every: bool,
    as_json: bool,
) -> int:
    """Print what differs between the modules of both sides; the exit code."""
    before, after, rows, code = read_both(arguments, stages)
    if code:
        if as_json:
            write_json("diff", {"modules": rows})
        return code
    equal, content, show = _compared(before, after, model, every=every)
    if as_json:
        write_json("diff", {"modules": rows, **content()})
    else:
        show(console=product())
    return 0 if equal else _DIFFERENT


def _why_recompile(
    arguments: Sequence[str], stages: Sequence[Sequence[str]], *, as_json: bool
) -> int:
    """Print why each function of one dump, or each module of the second side, was compiled again.

    The exit code: 0 where nothing was, 1 where there is a reason, that of the error for what cannot be read.
    """
    sides = open_each(arguments, stages)
    compiled = len(sides[0])
    if len(sides) == 1:
        sides = [[sides[0][at] for at in perhaps_again([text.name for text in sides[0]])]]
    known = Compilations()

    def step(read: Input) -> dict[str, Any]:
        known.add(GivenModule(read.name, read.module))
        return {"module": read.module.name}

    rows, code = each_input([text for texts in sides for text in texts], step)
    document: dict[str, Any] = {"modules": rows}
    if not code:
        found = known.functions(compiled) if len(sides) == 1 else known.pairs(len(sides[0]))
        code = 0 if found.same else _DIFFERENT
        document |= found.to_json()
        if not as_json:
            show(found, product())
    if as_json:
        write_json("diff", document)
    return code


def _compared(
    before: Sequence[GivenModule],
    after: Sequence[GivenModule],
    predicting: Predictor | None,
    *,
    every: bool,
) -> tuple[bool, Callable[[], dict[str, Any]], Callable[..., None]]:
    """Whether both sides are equal, what makes JSON of that, and what prints it."""
    if len(before) == len(after) == 1:
        difference = compare_kernels(before[0].module, after[0].module, predicting)
        return (
            difference.equal,
            difference.to_json,
            partial(show_difference, difference, every=every),
        )
    dumps = compare_dumps(before, after, predicting)
    return dumps.equal, dumps.to_json, partial(show_dumps, dumps)

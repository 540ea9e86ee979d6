"""What ``hloopt graph`` does."""

from __future__ import annotations

import json
from pathlib import Path

from hloopt.cli.files import one_text, open_texts, read_input
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.predicting import predictor
from hloopt.cli.waiting import patience
from hloopt.cost_models.predictor import Predictor
from hloopt.driver.writing import write_text
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.kernels.costs import kernel_costs
from hloopt.pages.formats import dot_text, model_explorer, node_times, timeline
from hloopt.pages.unfolding import Unfolding, spent_by
from hloopt.report.picture import draw
from hloopt.rewrite.spec import did_you_mean
from hloopt.verifier import verify_module

__all__ = ["execute"]


def execute(
    file: str | None,
    form: str,
    at: str | None,
    times: str | None,
    target: str | None,
    cost_model: str,
    output: str | None,
    as_json: bool,
) -> None:
    """What ``hloopt graph`` does."""
    _check(form, at, times, target)
    predicting = predictor(target, cost_model, refuses=())
    found = read_input(one_text(open_texts(() if file is None else (file,)), "a graph belongs"))
    show_warnings(found.module, found.name)
    verify_module(found.module)
    with patience("drawing", Path(found.name).name):
        text = _text(found.module, form, at, predicting)
    if output is not None or not as_json:
        write_text(output, text, found.name)
    if as_json:
        content = {"text": text} if output is None else {"output": output}
        write_json("graph", {"module": found.module.name, "format": form, **content})
    if times is not None and predicting is not None:
        spent = spent_by(found.module, kernel_costs(found.module, predicting))
        write_text(times, f"{json.dumps(node_times(spent))}\n", found.name)


def _check(form: str, at: str | None, times: str | None, target: str | None) -> None:
    """Raise ``UsageError`` for options that have no effect."""
    if at is not None and form != "svg":
        raise UsageError(f"--at is for --format svg: {form} has the whole module")
    if times is not None and form != "model-explorer":
        raise UsageError(f"--times is for --format model-explorer, not {form}")
    if target is None and (times is not None or form == "perfetto"):
        what = "--times" if times is not None else "--format perfetto"
        raise UsageError(f"{what} needs predicted times: give --target DEVICE")


def _text(module: Module, form: str, at: str | None, predicting: Predictor | None) -> str:
    """The graph in a form.  Raises ``UsageError`` for a name that nothing has."""
    if form == "dot":
        return dot_text(module)
    if form == "model-explorer":
        return f"{json.dumps(model_explorer(module))}\n"
    rows = [] if predicting is None else kernel_costs(module, predicting)
    if form == "perfetto":
        assert predicting is not None, "a target was asked for"
        title = f"predicted, {predicting.target.title}"
        return f"{json.dumps(timeline(module, rows, title))}\n"
    views = Unfolding(module, spent_by(module, rows))
    view = views.find(module.entry.name if at is None else at.removeprefix("%"))
    if view is None:
        names = (name for home in module for name in (home.name, *(one.name for one in home)))
        raise UsageError(f"nothing is called '{at}'{did_you_mean(str(at), sorted(names))}")
    return f"{draw(view.graph)}\n"

"""``hloopt graph``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hloopt.cli.files import one_text, open_texts, read_input
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.options import json_option, pick_options
from hloopt.cli.predicting import predictor, target_options
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

__all__ = ["command"]


@click.command("graph", cls=GroupedCommand)
@click.argument("file", type=click.Path(), required=False)
@pick_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["svg", "dot", "model-explorer", "perfetto"]),
    default="svg",
    show_default=True,
    metavar="FORM",
    help="svg, dot, model-explorer or perfetto. svg is a picture; dot is for Graphviz; model-explorer is "
    "JSON of that tool, with namespaces as layers; perfetto is the predicted timeline, for "
    "ui.perfetto.dev and chrome://tracing.",
)
@click.option(
    "--at",
    metavar="NAME",
    help="Draw this computation, or around this instruction. With svg; of an instruction that has a "
    "body, the body. The entry by default.",
)
@click.option(
    "--times",
    metavar="FILE",
    help="Write predicted times for model-explorer. For its option --node_data_paths.",
)
@target_options
@click.option("-o", "--output", metavar="OUT", help="Write to this file; else to stdout.")
@json_option
def command(
    file: str | None,
    form: str,
    at: str | None,
    times: str | None,
    target: str | None,
    cost_model: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Draw the graph of a module, or write it for other tools, as it is: hloopt optimize goes before.

    A picture has 60 instructions at most, and the values that they read from elsewhere: of larger computations
    it has a box for those of one namespace of op_name, which --at opens. With --target boxes have times.

    \b
    Example:
      hloopt graph dump.txt -o entry.svg
      hloopt optimize dump.txt | hloopt graph --at loop_fusion.3 -o fusion.svg
      hloopt graph dump.txt --format model-explorer -o m.json --target h200 --times t.json
      hloopt graph dump.txt --format perfetto --target h200 -o trace.json
    """
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

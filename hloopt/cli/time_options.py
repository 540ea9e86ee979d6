"""Options of times: predicted for a device, or measured by a profiler."""

from __future__ import annotations

from importlib import import_module

import click

from hloopt.cli.options import Function
from hloopt.cli.words import complete_model, complete_target

__all__ = ["model_of", "profile_option", "target_options"]

_DEFAULT_MODEL = "xla-2026"


def model_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name of a model; that of a user's class is made known first."""
    if value is None or ":" not in value:
        return value
    name: str = import_module("hloopt.cost_models.registry").given_model(value)
    return name


def target_options(function: Function) -> Function:
    """``--target`` and ``--cost-model``, parameters ``target`` (or None) and ``cost_model``."""
    function = click.option(
        "--cost-model",
        metavar="NAME",
        default=_DEFAULT_MODEL,
        show_default=True,
        shell_complete=complete_model,
        callback=model_of,
        help="What predicts times. xla-2023, xla-2026, roofline, host, a model of an installed package, or "
        "FILE.py:CLASS.",
    )(function)
    return click.option(
        "--target",
        metavar="NAME|FILE",
        shell_complete=complete_target,
        help="Predict times on this device. A name that hloopt targets lists, or the path of a "
        "description.",
    )(function)


def profile_option(function: Function) -> Function:
    """``--profile``, a parameter ``profile`` or None."""
    return click.option(
        "--profile",
        metavar="TRACE",
        help="Times of a real run, of a profiler's trace. .xplane.pb or trace.json(.gz) of jax.profiler, "
        "JSON of Chrome or Perfetto, SQLite of Nsight Systems. See hloopt help profiles.",
    )(function)

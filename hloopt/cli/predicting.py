"""What predicts times, as ``--target`` and ``--cost-model`` say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, each_input, open_each
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.dumps import parse_name, planned_elsewhere
from hloopt.errors import UsageError
from hloopt.report.module_pairs import GivenModule
from hloopt.targets import find_target

__all__ = ["note_other_devices", "predictor", "read_both"]

_DEFAULT_MODEL = "xla-2026"
_ABOUT_TIMES = ("by", "top")


def _refuse(names: Iterable[str]) -> None:
    ctx = click.get_current_context()
    for option in ctx.command.params:
        given = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if given and option.name in names:
            raise UsageError(f"{option.opts[0]} is for predicted times: it needs --target DEVICE")


def predictor(
    target: str | None, cost_model: str, refuses: Iterable[str] = _ABOUT_TIMES
) -> Predictor | None:
    """The predictor of times on a target; None without one.

    A device described without blocks and threads is predicted by the roofline.
    stderr says when a device's times were never measured.  Raises ``UsageError`` without a target for the
    options that ``refuses`` names, and for ``--cost-model``.
    """
    if target is None:
        _refuse(("cost_model", *refuses))
        return None
    device = find_target(target)
    model = model_for(cost_model, device, lambda note: click.echo(f"note: {note}", err=True))
    if not device.calibrated:
        click.echo(
            f"note: {device.name} is not calibrated: its times are predictions of a model that was never "
            "held against measurements of such a device",
            err=True,
        )
    return Predictor(model)


def read_both(
    arguments: Sequence[str], stages: Sequence[Sequence[str]]
) -> tuple[list[GivenModule], list[GivenModule], list[dict[str, Any]], int]:
    """The modules of two arguments, a row about each, and the exit code: all are read where it is 0."""
    sides = open_each(arguments, stages)
    found: list[GivenModule] = []

    def step(read: Input) -> dict[str, Any]:
        found.append(GivenModule(read.name, read.module))
        return {"module": read.module.name}

    rows, code = each_input([text for side in sides for text in side], step)
    count = len(sides[0])
    return found[:count], found[count:], rows, code


def note_other_devices(files: Iterable[str], predictor: Predictor) -> None:
    """Say on stderr that XLA planned modules of a dump for another kind of device than they are priced for."""
    kind = predictor.target.kind
    labels = dict.fromkeys(parse_name(Path(name).name).label for name in files)
    found = next(filter(None, (planned_elsewhere(label, kind) for label in labels)), "")
    if found:
        device = "host" if found == "CPU" else "h200"
        click.echo(
            f"note: XLA planned these modules for a {found}; --target {device} prices them for such a device",
            err=True,
        )

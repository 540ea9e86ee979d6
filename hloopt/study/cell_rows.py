"""Cells as JSON values, and back: for files, and for the processes that make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from hloopt.runtime.timing import Timing
from hloopt.study.cells import (
    Cell,
    Checked,
    Counts,
    LongKernel,
    Measured,
    Predicted,
    TimeParts,
)

__all__ = ["cell_of", "cell_row", "with_first"]


def cell_row(cell: Cell) -> dict[str, Any]:
    """All fields by their names; a number that is not finite is a text."""
    return {key: _plain(value) for key, value in asdict(cell).items()}


def cell_of(row: dict[str, Any]) -> Cell:
    """The cell of a row."""
    fields = dict(row)
    for key, make in (
        ("counts", lambda found: Counts(**found)),
        ("checked", _checked),
        ("measured", _measured),
        ("predicted", _predicted),
    ):
        if fields[key] is not None:
            fields[key] = make(fields[key])
    return Cell(**fields)


def with_first(cells: Iterable[Cell]) -> list[Cell]:
    """Cells of the same module after the passes as one: the first that was made stands for all of them."""
    first: dict[tuple[str, str, str], Cell] = {}
    found: list[Cell] = []
    for cell in cells:
        same = first.setdefault((cell.module, cell.device, cell.key), cell)
        if cell.key and same is not cell:
            cell = replace(same, strategy=cell.strategy, same_as=same.strategy, passes=cell.passes)
        found.append(replace(cell, same_as="") if same is cell else cell)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _checked(found: dict[str, Any]) -> Checked:
    share = float(found["share"])
    return Checked(**{**found, "against": tuple(found["against"]), "share": share})


def _measured(found: dict[str, Any]) -> Measured:
    return Measured(Timing(tuple(map(float, found["timing"]["seconds"]))), found["where"])


def _predicted(found: dict[str, Any]) -> Predicted:
    parts = {name: float(value) for name, value in found["parts"].items()}
    longest = (LongKernel(**{**one, "seconds": float(one["seconds"])}) for one in found["longest"])
    return Predicted(**{**found, "parts": TimeParts(**parts), "longest": tuple(longest)})

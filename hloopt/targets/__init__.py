"""Device descriptions."""

from __future__ import annotations

from hloopt.targets.catalog import (
    complete,
    find_gpu,
    find_target,
    load_target,
    names,
    target,
    targets,
)
from hloopt.targets.target import Rate, Target, Unit

__all__ = [
    "Rate",
    "Target",
    "Unit",
    "complete",
    "find_gpu",
    "find_target",
    "load_target",
    "names",
    "target",
    "targets",
]

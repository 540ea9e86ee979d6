"""Device descriptions."""

from __future__ import annotations

from hloopt.targets.catalog import (
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
    "find_gpu",
    "find_target",
    "load_target",
    "names",
    "target",
    "targets",
]

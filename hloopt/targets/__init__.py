"""Device descriptions."""

from __future__ import annotations

from hloopt.targets.catalog import find_target, targets
from hloopt.targets.target import Target

__all__ = ["Target", "find_target", "targets"]

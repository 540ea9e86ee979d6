"""Device descriptions."""

from __future__ import annotations

from hloopt.targets.target import Target

__all__ = ["Target"]

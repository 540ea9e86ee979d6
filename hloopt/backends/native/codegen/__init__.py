"""C++ of a plan for the host's processor: loops that become vectors, and a driver of the steps."""

from __future__ import annotations

from hloopt.backends.native.codegen.program import HEADER, UNIT, parts, render, step_text

__all__ = ["HEADER", "UNIT", "parts", "render", "step_text"]

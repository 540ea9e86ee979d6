"""JSON for scripts, apart from the tables: a command that prints none of those does not load them."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["SCHEMA", "write_json"]

SCHEMA = 1
"""Raised when a field of any command's JSON changes its meaning or goes away."""


def write_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object on one line: the schema number, the command, and what it found."""
    json.dump({"schema": SCHEMA, "command": command, **content}, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")

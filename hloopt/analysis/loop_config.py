"""What a while's backend_config tells about the loop: JSON, bare or in a string, as XLA writes it."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from hloopt.ir import Instruction
from hloopt.types import Verbatim

__all__ = ["LoopConfig", "config_text", "known_trip_count", "loop_config"]

LoopConfig: TypeAlias = dict[str, Any]


def loop_config(loop: Instruction) -> LoopConfig | None:
    """The backend_config as a dictionary, empty where there is none; None where it is no JSON object."""
    text = str(loop.attributes.get("backend_config", "{}"))
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value) if value else {}
    except (ValueError, RecursionError):  # deep, or a number of thousands of digits
        return None
    return value if isinstance(value, dict) else None


def config_text(loop: Instruction, config: LoopConfig) -> Verbatim | None:
    """The attribute's new value, in a string where it was one; None, which is no attribute, if empty."""
    if not config:
        return None
    text = json.dumps(config, separators=(",", ":"))
    quoted = str(loop.attributes.get("backend_config", "")).startswith('"')
    return Verbatim(json.dumps(text) if quoted else text)


def known_trip_count(loop: Instruction) -> int | None:
    """``known_trip_count`` of the backend_config, or None."""
    if "backend_config" not in loop.attributes:
        return None
    known = (loop_config(loop) or {}).get("known_trip_count")
    number = str(known.get("n", "")) if isinstance(known, dict) else ""
    return int(number) if number.isdecimal() else None

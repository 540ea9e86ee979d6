"""Measured clock cycles of elementwise ops, by device."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hloopt.targets import Target

__all__ = ["FALLBACK", "cycles_of", "profile_name"]

FALLBACK: Final = "sm_86"
"""The profile of every device without one of its own, AMD's among them."""

_FILE = Path(__file__).parent / "cycles.toml"


def profile_name(target: Target) -> str:
    """The profile XLA takes for a device: ``sm_`` and its capability, where there is one of that name."""
    major, minor = target.capability
    name = f"sm_{major}{minor}"
    return name if target.kind == "cuda" and name in _texts() else FALLBACK


def cycles_of(target: Target) -> Mapping[tuple[str, str], int]:
    """Cycles of one element by opcode and element type; what is not in it takes the default."""
    return _profile(profile_name(target))


@cache
def _texts() -> Mapping[str, str]:
    """The text of each table: a run needs one of them."""
    _, *parts = _FILE.read_text().split("\n[")
    return {part[: part.index("]")]: f"[{part}\n" for part in parts}


@cache
def _profile(name: str) -> Mapping[tuple[str, str], int]:
    rows = tomllib.loads(_texts()[name])[name]
    return MappingProxyType(
        {(opcode, dtype): cycles for opcode, row in rows.items() for dtype, cycles in row.items()}
    )

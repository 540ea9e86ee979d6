"""What elementwise ops cost on the host's processor, measured: ``host.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hloopt.ops import OPS
from hloopt.types import DTYPES

__all__ = ["additions", "kernel_costs"]

_FILE: Final = Path(__file__).parent / "host.toml"


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text())


def kernel_costs() -> Mapping[str, float]:
    """What is known of kernels as a whole, by the names in the file."""
    return MappingProxyType(_tables()["kernels"])


@cache
def additions() -> Mapping[tuple[str, str], int]:
    """Additions of f32 that an element of an elementwise op takes as long as, by opcode and element type."""
    tables = _tables()
    types, ops = tables["types"], tables["ops"]
    return MappingProxyType(
        {
            (opcode, dtype): ops.get(opcode, {}).get(dtype, types.get(dtype, 1))
            for opcode, row in OPS.items()
            if row.is_elementwise
            for dtype in DTYPES
        }
    )

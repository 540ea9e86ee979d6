"""The loops of each family of native kernels, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from hloopt.codegen.writer import EmitFunction

__all__ = ["emitters"]

_MODULES: Final = (
    "while_loop",
    "update",
    "dot",
    "gemm",
    "linear_systems",
    "fft",
    "reduction",
    "running",
    "sort",
    "loop",
)


@cache
def emitters() -> Mapping[str, EmitFunction]:
    """What writes the functions of each native kernel, by the kernel's name; a module has ``EMITTERS``."""
    table: dict[str, EmitFunction] = {}
    for name in _MODULES:
        table.update(import_module(f"hloopt.backends.native.codegen.families.{name}").EMITTERS)
    return MappingProxyType(table)

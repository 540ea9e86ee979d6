"""The CUDA C of each family of kernels, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from hloopt.codegen.writer import EmitFunction

__all__ = ["emitters"]

_MODULES: Final = (
    "convolution",
    "fft",
    "linear_systems",
    "dot_mma",
    "dot_small",
    "dot_tiled",
    "dot_vector",
    "attention",
    "whole_row",
    "running_reduction",
    "row_reduction",
    "column_reduction",
    "split_reduction",
    "in_place_update",
    "loop",
    "scatter",
    "concatenate",
    "scan",
    "sort",
    "transpose",
    "while_per_thread",
    "while_per_block",
)


@cache
def emitters() -> Mapping[str, EmitFunction]:
    """What writes the functions of each kernel, by the kernel's name.

    A module has ``EMITTERS``, or ``emit`` for the one kernel of its name.
    """
    table: dict[str, EmitFunction] = {}
    for name in _MODULES:
        module = import_module(f"hloopt.codegen.families.{name}")
        table.update(getattr(module, "EMITTERS", None) or {name: module.emit})
    return MappingProxyType(table)

"""Kernel IR as C++ for the host."""

from __future__ import annotations

from typing import Final

from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import Function

__all__ = ["DOOR", "ENTRY", "NativePrinter"]

DOOR: Final = 'extern "C" __attribute__((visibility("hidden"))) void'
"""What a function is that other units call."""

ENTRY: Final = 'extern "C" int'
"""What the function is that the process calls."""


class NativePrinter(Printer):
    """Writes C++; ``linkage`` is what stands before a function's name, by default of one for its own unit."""

    def __init__(self, linkage: str = "static void") -> None:
        self.linkage = linkage

    def head(self, function: Function) -> str:
        """No launch bounds: the range of tasks is given by parameters."""
        return f"{self.linkage} {function.name}("

    def unroll(self, times: int | None) -> str | None:
        """Nothing: the host's compiler knows its processor."""
        return None

    def prototype(self, function: Function) -> str:
        """A function's declaration."""
        return f"{self.head(function)}{', '.join(map(self.parameter, function.parameters))});"

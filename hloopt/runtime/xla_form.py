"""The form of a module that XLA's compiler accepts as input."""

from __future__ import annotations

from hloopt.ir import Module
from hloopt.kernels.backend_config import drop_choices
from hloopt.pipelines import parse_pipeline

__all__ = ["make_for_xla"]


def make_for_xla(module: Module) -> None:
    """Remove, in place, what XLA does not compile: fusions, choices of kernels, bitcasts.

    XLA assigns layouts itself: a bitcast, which reinterprets bytes in memory, would then mean other elements.
    """
    parse_pipeline("defuse").run(module)
    drop_choices(module)
    if any(instruction.opcode == "bitcast" for instruction in module.instructions()):
        parse_pipeline("layout-normalization").run(module)

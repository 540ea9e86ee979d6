"""Every op that is planned when a line is made, but for elementwise ones and those that call computations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from hloopt.backends.numpy.movement import Emitter
from hloopt.lazy_table import tables
from hloopt.ops.traits import VIEWS, op_table

__all__ = ["EMITTERS", "PLANNED"]

PLANNED: Final[Mapping[str, Collection[str]]] = {
    "convolution": ("convolution",),
    "custom_calls": ("custom-call",),
    "dot": ("dot",),
    "dynamic_slices": ("dynamic-slice", "dynamic-update-slice"),
    "gathering": ("gather",),
    "movement": VIEWS | {"concatenate", "iota"},
    "padding": ("pad",),
    "reduction": ("reduce",),
    "reinterpreting": ("bitcast-convert",),
    "scattering": ("scatter",),
    "sorting": ("sort",),
    "windows": ("reduce-window", "select-and-scatter"),
}
"""Module -> the opcodes in its ``EMITTERS``."""

EMITTERS: Mapping[str, Emitter] = op_table(
    tables(__package__, "EMITTERS", PLANNED),
    otherwise="the interpreter evaluates it, or a line is its name",
)
"""A module is loaded for the first of its ops: most programs have few of them."""

"""Every op that is planned when a line is made, but for elementwise ones and those that call computations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloopt.interpret.families import ByFamily
from hloopt.runtime.numpy.movement import Emitter

__all__ = ["EMITTERS", "PLANNED"]

PLANNED: Final = {
    "convolution": "convolution",
    "custom_calls": "custom-call",
    "dot": "dot",
    "dynamic_slices": "dynamic-slice dynamic-update-slice",
    "gathering": "gather",
    "linear": "cholesky fft triangular-solve",
    "movement": "bitcast broadcast concatenate iota reshape reverse slice transpose",
    "padding": "pad",
    "random_bits": "rng-bit-generator",
    "reduction": "reduce",
    "reinterpreting": "bitcast-convert",
    "scattering": "scatter",
    "sorting": "sort topk",
    "windows": "reduce-window select-and-scatter",
}
"""Module -> the opcodes in its ``EMITTERS``."""

EMITTERS: Mapping[str, Emitter] = ByFamily(__package__, "EMITTERS", PLANNED)
"""A module is loaded for the first of its ops: most programs have few of them."""

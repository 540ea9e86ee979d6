"""Every op that is planned when a line is made, but for elementwise ones and those that call computations."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.runtime.numpy import (
    convolution,
    dot,
    dynamic_slices,
    gathering,
    movement,
    padding,
    random_bits,
    reduction,
    reinterpreting,
    scattering,
    sorting,
    windows,
)
from hloopt.runtime.numpy.movement import Emitter

__all__ = ["EMITTERS"]

EMITTERS: Mapping[str, Emitter] = {
    **convolution.EMITTERS,
    **dot.EMITTERS,
    **dynamic_slices.EMITTERS,
    **gathering.EMITTERS,
    **movement.EMITTERS,
    **padding.EMITTERS,
    **random_bits.EMITTERS,
    **reduction.EMITTERS,
    **reinterpreting.EMITTERS,
    **scattering.EMITTERS,
    **sorting.EMITTERS,
    **windows.EMITTERS,
}

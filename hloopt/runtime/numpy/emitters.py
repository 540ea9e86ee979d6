"""Every op that is planned when a line is made, but for elementwise ones and those that call computations."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.runtime.numpy import (
    dot,
    gathering,
    movement,
    padding,
    reduction,
    reinterpreting,
    scattering,
    sorting,
    structural,
    windows,
)
from hloopt.runtime.numpy.movement import Emitter

__all__ = ["EMITTERS"]

EMITTERS: Mapping[str, Emitter] = {
    **dot.EMITTERS,
    **gathering.EMITTERS,
    **movement.EMITTERS,
    **padding.EMITTERS,
    **reduction.EMITTERS,
    **reinterpreting.EMITTERS,
    **scattering.EMITTERS,
    **sorting.EMITTERS,
    **structural.EMITTERS,
    **windows.EMITTERS,
}

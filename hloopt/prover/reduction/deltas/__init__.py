"""Deltas: changes that make a case smaller, each at any of its sites, in the order of yield."""

from __future__ import annotations

from typing import Final

from hloopt.prover.reduction.deltas.attributes import ATTRIBUTES, SINGLE
from hloopt.prover.reduction.deltas.bodies import BODIES, LOOPS
from hloopt.prover.reduction.deltas.dimensions import DIMENSIONS
from hloopt.prover.reduction.deltas.inputs import INPUTS
from hloopt.prover.reduction.deltas.results import BACK, RESULTS, ROOT
from hloopt.prover.reduction.deltas.values import CONSTANTS, FRONT, OPERANDS, PARAMETERS
from hloopt.prover.reduction.deltas.whole import ELEMENT_TYPES, SIMPLER
from hloopt.prover.reduction.recording import Delta

__all__ = ["DELTAS", "LAST"]

DELTAS: Final[tuple[Delta, ...]] = (
    ATTRIBUTES,
    BODIES,
    BACK,
    RESULTS,
    FRONT,
    ROOT,
    LOOPS,
    PARAMETERS,
    OPERANDS,
    CONSTANTS,
    SIMPLER,
    DIMENSIONS,
    ELEMENT_TYPES,
    SINGLE,
)
"""Rounds of all of them, until a whole round changes nothing."""

LAST: Final[tuple[Delta, ...]] = (INPUTS,)
"""Once at the end: they make the inputs easy to read."""

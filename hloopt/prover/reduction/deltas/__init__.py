"""Deltas: changes that make a case smaller, each at any of its sites, in the order of yield."""

from __future__ import annotations

from typing import Final

from hloopt.prover.reduction.deltas.attributes import ATTRIBUTES, SINGLE
from hloopt.prover.reduction.deltas.bodies import BODIES, ONCE, STATES, TRIPS
from hloopt.prover.reduction.deltas.dimensions import DIMENSIONS
from hloopt.prover.reduction.deltas.inputs import INPUTS
from hloopt.prover.reduction.deltas.numbers import NUMBERS
from hloopt.prover.reduction.deltas.participants import PARTICIPANTS
from hloopt.prover.reduction.deltas.results import BACK, RESULTS, ROOT
from hloopt.prover.reduction.deltas.tuples import TUPLES
from hloopt.prover.reduction.deltas.values import (
    ALIKE,
    CONSTANTS,
    EFFECTS,
    FRONT,
    OPERANDS,
    PARAMETERS,
)
from hloopt.prover.reduction.deltas.variadic import VARIADIC
from hloopt.prover.reduction.deltas.whole import ELEMENT_TYPES, SIMPLER
from hloopt.prover.reduction.recording import Delta

__all__ = ["DELTAS", "LAST", "TRIPS"]

DELTAS: Final[tuple[Delta, ...]] = (
    TRIPS,
    PARTICIPANTS,
    ATTRIBUTES,
    BACK,
    FRONT,
    ONCE,
    BODIES,
    BACK,
    RESULTS,
    FRONT,
    ROOT,
    STATES,
    VARIADIC,
    EFFECTS,
    PARAMETERS,
    OPERANDS,
    CONSTANTS,
    ALIKE,
    SIMPLER,
    TUPLES,
    NUMBERS,
    DIMENSIONS,
    ELEMENT_TYPES,
    SINGLE,
)
"""Rounds of all of them, until a whole round changes nothing.

The ends of the entry go before calls are opened, of which there may be hundreds: each end takes few tests.
"""

LAST: Final[tuple[Delta, ...]] = (INPUTS,)
"""When nothing else is left: they make the inputs easy to read, which may make room for the others again."""

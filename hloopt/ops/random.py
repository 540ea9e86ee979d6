"""Random numbers."""

from __future__ import annotations

from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "random"

ROWS = (
    OpDef(
        "rng",
        (0, MANY),
        _FAMILY,
        declared,
        (Attribute("distribution", Kind.WORD, required=True, words=("rng_uniform", "rng_normal")),),
        side_effect=True,
        inferable=False,
    ),
    OpDef(
        "rng-bit-generator",
        (1, 1),
        _FAMILY,
        declared,
        (
            Attribute(
                "algorithm",
                Kind.WORD,
                required=True,
                words=("rng_default", "rng_three_fry", "rng_philox"),
            ),
        ),
        inferable=False,
    ),
    OpDef(
        "rng-get-and-update-state",
        (0, 0),
        _FAMILY,
        declared,
        (Attribute("delta", Kind.INT, required=True),),
        side_effect=True,
        inferable=False,
    ),
)

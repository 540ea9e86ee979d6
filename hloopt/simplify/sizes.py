"""Rules for sizes of dimensions; what is dynamic is left alone (see the driver), its size is not known yet."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, same_layout, variables
from hloopt.simplify.conditions import scalar_value
from hloopt.types import scalar

__all__ = ["RULES"]

A, N = variables("A N")


def _known_size(match: Match) -> Instruction | None:
    (dimension,) = match.root.attributes["dimensions"]
    return match.constant(scalar("s32", match.A.array.dims[dimension]))


def _is_the_size(match: Match) -> bool:
    (dimension,) = match.root.attributes["dimensions"]
    value = scalar_value(match.N)
    return (
        value is not None
        and int(value) == match.A.array.dims[dimension]
        and same_layout(match.A.shape, match.root.shape)
    )


RULES = (
    Rule(
        "get-dimension-size(A) => n of a static dimension", op("get-dimension-size", A), _known_size
    ),
    Rule(
        "set-dimension-size(A, n) => A of a static dimension",
        op("set-dimension-size", A, N),
        A,
        when=_is_the_size,
    ),
)

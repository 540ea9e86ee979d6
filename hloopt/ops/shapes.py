"""What the inference functions of all families share."""

from __future__ import annotations

from hloopt.errors import ShapeError
from hloopt.ops.opdef import InferArgs
from hloopt.types import Shape

__all__ = ["declared"]


def declared(args: InferArgs) -> Shape:
    """The declared shape, for ops whose operands do not determine it."""
    if args.declared is None:
        raise ShapeError(f"{args.opcode}: the result shape must be written")
    return args.declared

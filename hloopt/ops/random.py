"""Random numbers."""

from __future__ import annotations

from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import array_operand, array_operands, declared, declared_array, error
from hloopt.types import ArrayShape, Shape, TupleShape, compatible

__all__ = ["ROWS"]


def _rng(args: InferArgs) -> Shape:
    """The declared shape; two scalars are the interval, or mean and deviation."""
    shape = declared_array(args)
    operands = array_operands(args)
    if len(operands) != 2:
        raise error(args, f"{len(operands)} operands are given, the distribution has 2 parameters")
    for index, operand in enumerate(operands):
        if operand.rank or operand.dtype is not shape.dtype:
            raise error(args, f"operand {index} has shape {operand}, not {shape.dtype.name}[]")
    if shape.dtype.is_complex:
        raise error(args, f"there are no random numbers of type {shape.dtype.name}")
    if args.attributes.get("distribution") == "rng_normal" and not shape.dtype.is_float:
        raise error(args, f"rng_normal has no values of type {shape.dtype.name}")
    return shape


def _rng_bit_generator(args: InferArgs) -> Shape:
    """The declared shape: bits, or the new state and bits."""
    state = array_operand(args, 0)
    shape = declared(args)
    bits = shape
    if isinstance(shape, TupleShape):
        if len(shape.elements) != 2:
            raise error(args, f"the result {shape} must be the new state and the bits")
        if not compatible(shape.elements[0], state):
            raise error(args, f"the new state is {shape.elements[0]}, the state {state}")
        bits = shape.elements[1]
    if not isinstance(bits, ArrayShape) or not bits.dtype.is_array:
        raise error(args, f"the bits have shape {bits}, which is not an array")
    return shape


def _rng_get_and_update_state(args: InferArgs) -> Shape:
    """``u64[2]``."""
    shape = declared_array(args)
    if shape.dtype.name != "u64" or shape.dims != (2,):
        raise error(args, f"the result is {shape}, not u64[2]")
    return shape


_row = family("random")

ROWS = (
    _row(
        "rng",
        (0, MANY),
        _rng,
        Kind.WORD("distribution", required=True, words=("rng_uniform", "rng_normal")),
        side_effect=True,
        inferable=False,
        doc="random numbers of the device's own choice",
    ),
    _row(
        "rng-bit-generator",
        1,
        _rng_bit_generator,
        Kind.WORD(
            "algorithm",
            required=True,
            words=("rng_default", "rng_three_fry", "rng_philox"),
        ),
        inferable=False,
        elemental=True,
        doc="random bits that a state determines, and the next state",
    ),
    _row(
        "rng-get-and-update-state",
        0,
        _rng_get_and_update_state,
        Kind.INT("delta", required=True),
        side_effect=True,
        inferable=False,
        doc="the module's random state, which then moves on by delta",
    ),
)

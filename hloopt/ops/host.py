"""Ops that exchange data with the host: infeed, outfeed, send, recv."""

from __future__ import annotations

from hloopt.ops.opdef import InferArgs, Kind, family
from hloopt.ops.shapes import (
    TOKEN,
    U32,
    declared,
    error,
    like,
    scalar_of,
    tuple_of,
    tuple_operand,
)
from hloopt.types import Shape, TupleShape, compatible

__all__ = ["ROWS"]


def _token_operand(args: InferArgs, index: int) -> None:
    shape = args.operands[index]
    if not compatible(shape, TOKEN):
        raise error(args, f"operand {index} has shape {shape}, not token[]")


def _with_token(args: InferArgs, count: int, form: str) -> TupleShape:
    """The declared tuple of ``count`` elements, the last of which is a token."""
    shape = declared(args)
    if (
        not isinstance(shape, TupleShape)
        or len(shape.elements) != count
        or not compatible(shape.elements[-1], TOKEN)
    ):
        raise error(args, f"the result is {shape}, not {form}")
    if count == 3 and not compatible(shape.elements[1], scalar_of(U32)):
        raise error(args, f"the context in the result is {shape.elements[1]}, not u32[]")
    return shape


def _infeed(args: InferArgs) -> Shape:
    """Data and a token."""
    _token_operand(args, 0)
    return _with_token(args, 2, "(data, token[])")


def _outfeed(args: InferArgs) -> Shape:
    """A token."""
    _token_operand(args, 1)
    written = args.attributes.get("outfeed_shape")
    if written is not None and not compatible(written, args.operands[0]):
        raise error(args, f"outfeed_shape={written} is not the operand's {args.operands[0]}")
    return like(args, TOKEN)


def _send(args: InferArgs) -> Shape:
    """Data, context and token; what it waits for need not be a token."""
    data = args.operands[0]
    if args.declared is None:
        return TupleShape((data, scalar_of(U32), TOKEN))
    shape = _with_token(args, 3, "(data, context, token[])")
    if not compatible(shape.elements[0], data):
        raise error(args, f"the result holds {shape.elements[0]}, operand 0 is {data}")
    return shape


def _send_done(args: InferArgs) -> Shape:
    """A token."""
    _started(args)
    return like(args, TOKEN)


def _recv(args: InferArgs) -> Shape:
    """Data, context and token; what it waits for need not be a token."""
    return _with_token(args, 3, "(data, context, token[])")


def _recv_done(args: InferArgs) -> Shape:
    """Data and token."""
    return tuple_of(args, (_started(args).elements[0], TOKEN))


def _started(args: InferArgs) -> TupleShape:
    state = tuple_operand(args, 0)
    if len(state.elements) < 2 or not compatible(state.elements[-1], TOKEN):
        raise error(args, f"operand 0 has shape {state}, not (data, context, token[])")
    return state


_TRANSFER = (Kind.INT("channel_id"), Kind.BOOL("is_host_transfer"))


_row = family("host", side_effect=True, inferable=False)

ROWS = (
    _row(
        "infeed", 1, _infeed, Kind.STRING("infeed_config"), cheap="always", doc="data from the host"
    ),
    _row(
        "outfeed",
        2,
        _outfeed,
        Kind.SHAPE("outfeed_shape"),
        Kind.STRING("outfeed_config"),
        cheap="always",
        doc="data to the host",
    ),
    _row("recv", 1, _recv, *_TRANSFER, phase="start", doc="start to receive over a channel"),
    _row("recv-done", 1, _recv_done, *_TRANSFER, phase="done", doc="wait for what is received"),
    _row("send", 2, _send, *_TRANSFER, phase="start", doc="start to send over a channel"),
    _row("send-done", 1, _send_done, *_TRANSFER, phase="done", doc="wait until it is sent"),
)

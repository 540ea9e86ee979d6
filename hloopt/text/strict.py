"""What XLA's parser requires of an instruction besides its grammar, for strict readings.

Its parser is not a verifier: most wrong shapes pass.  These are the few things it checks while it makes an
instruction; everything else is left to ``hloopt.verifier``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ASYNC, INDEXING, op_table
from hloopt.text.attributes import OpcodeSchema
from hloopt.types import ArrayShape, Shape, TupleShape, compatible, leaves, record_of

__all__ = ["ALWAYS_WRITTEN", "objections"]

ALWAYS_WRITTEN = ASYNC | INDEXING - {"gather"} | {"reduce-precision"}
"""Ops whose shape XLA wants to see although the operands determine it."""

_MAIN_THREAD = "main"
_NOTHING = TupleShape(())


def objections(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    """What XLA's parser has against an instruction that is otherwise complete."""
    check = _CHECKS.get(instruction.opcode)
    if check is not None:
        yield from check(instruction, row)
    flags = record_of(instruction.attributes, "parameter_replication", tuple)
    count = sum(1 for _ in leaves(instruction.shape)) if flags is not None else 0
    if flags is not None and len(flags) != count:
        yield f"parameter_replication= has {len(flags)} flags, {instruction.shape} has {count} leaves"


def _async_start(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    shape = instruction.shape
    if not _is_state(shape):
        yield f"{row.word} needs a shape ((operands), result, ...), it has {shape}"


def _async_next(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    """An update or the end of what an async-start began."""
    before = instruction.operands[0]
    if before.opcode not in ("async-start", "async-update"):
        yield f"{row.word} needs an async-start or an async-update, %{before.name} is {before.opcode}"
        return
    start = before
    while start.opcode == "async-update":
        start = start.operands[0]
    called: Computation = start.attributes["calls"]
    wrapped = called.root.opcode
    if row.wrapped not in (None, wrapped):
        yield f"{row.word} ends or updates {row.wrapped}, %{start.name} started {wrapped}"
    own = instruction.attributes.get("calls", called)
    if own is not called:
        yield f"calls= is %{own.name}, %{start.name} calls %{called.name}"
    thread = str(start.attributes.get("async_execution_thread", _MAIN_THREAD))
    if str(instruction.attributes.get("async_execution_thread", thread)) != thread:
        yield f"async_execution_thread= is not that of %{start.name}, which is {thread!r}"
    if instruction.opcode == "async-update":
        yield from _update(instruction, before, called)


def _update(instruction: Instruction, before: Instruction, called: Computation) -> Iterator[str]:
    """The state as it was, or with further operands and more of the result."""
    shape, more = instruction.shape, instruction.operands[1:]
    if compatible(shape, before.shape) and not more:
        return
    if not (_is_state(shape) and _is_state(before.shape)):
        yield f"an update has the shape of what it updates, {before.shape}, not {shape}"
        return
    bound = (*_bound(before.shape), *(operand.shape for operand in more))
    if not compatible(TupleShape(_bound(shape)), TupleShape(bound)):
        yield f"the state has the operands {shape.elements[0]}, given are {TupleShape(bound)}"
    result = shape.elements[1]
    known = len(shape.elements) > 2 and called.result_shape != _NOTHING
    if known and not _is_part(result, called.result_shape):
        yield f"the state has the result {result}, %{called.name} gives {called.result_shape}"


def _is_state(shape: Shape) -> TypeGuard[TupleShape]:
    return (
        isinstance(shape, TupleShape)
        and len(shape.elements) >= 2
        and isinstance(shape.elements[0], TupleShape)
    )


def _bound(state: TupleShape) -> tuple[Shape, ...]:
    """The operands that are given so far."""
    operands = state.elements[0]
    return operands.elements if isinstance(operands, TupleShape) else ()


def _is_part(found: Shape, whole: Shape) -> bool:
    """Whether a result is the whole of it, or a tuple of its first elements."""
    if compatible(found, whole):
        return True
    if not isinstance(found, TupleShape):
        return False
    elements = whole.elements if isinstance(whole, TupleShape) else ()
    return compatible(found, TupleShape(elements[: len(found.elements)]))


def _conditional(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    index = instruction.operands[0].shape
    if not isinstance(index, ArrayShape) or index.dims:
        yield f"the first operand of conditional has shape {index}, not a scalar"
        return
    listed = "branch_computations" in instruction.attributes
    if index.dtype.is_pred and listed:
        yield "a pred chooses between true_computation= and false_computation="
    if not index.dtype.is_pred and not listed:
        yield f"a number of type {index.dtype.name} chooses among branch_computations="


def _broadcast(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    operand = instruction.operands[0].shape
    named = "dimensions" in instruction.attributes
    if not named and isinstance(operand, ArrayShape) and operand.dims:
        yield f"broadcast needs attribute 'dimensions' for an operand of shape {operand}"


def _one_dimension(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    dimensions = instruction.attributes.get("dimensions")
    if dimensions is not None and len(dimensions) != 1:
        listed = ",".join(map(str, dimensions))
        yield f"dimensions={{{listed}}} of {row.word} must name one dimension"


def _custom_call(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    """``operand_layout_constraints=`` has the operands' shapes, with other layouts perhaps."""
    shapes = instruction.attributes.get("operand_layout_constraints")
    if shapes is None:
        return
    operands = instruction.operands
    if len(shapes) != len(operands):
        yield f"operand_layout_constraints= has {len(shapes)} shapes for {len(operands)} operands"
        return
    for number, (shape, operand) in enumerate(zip(shapes, operands, strict=True)):
        if not compatible(shape, operand.shape):
            yield (
                f"operand_layout_constraints= gives operand {number} the shape {shape}, "
                f"it has {operand.shape}"
            )


def _permute(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    pairs = instruction.attributes["source_target_pairs"]
    if isinstance(pairs, tuple) and any(len(pair) != 2 for pair in pairs):
        yield "source_target_pairs= must be a list of pairs"
    if "slice_sizes" in instruction.attributes and len(instruction.operands) != 4:
        yield f"{row.word} with slice_sizes= takes 4 operands, not {len(instruction.operands)}"


def _tuple(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    shape, count = instruction.shape, len(instruction.operands)
    if not isinstance(shape, TupleShape) or len(shape.elements) != count:
        yield f"a tuple of {count} operands does not have the shape {shape}"


def _halves(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    count = len(instruction.operands)
    if count % 2:
        yield f"{row.word} takes as many inputs as initial values, {count} operands are odd"


def _channel(instruction: Instruction, row: OpcodeSchema) -> Iterator[str]:
    before = instruction.operands[0]
    if before.opcode in ("send", "recv"):
        own, other = (one.attributes.get("channel_id") for one in (instruction, before))
        if own != other:
            yield f"channel_id= is {own}, that of %{before.name} is {other}"


_CHECKS: Mapping[str, Callable[[Instruction, OpcodeSchema], Iterator[str]]] = op_table(
    {
        "all-gather": _one_dimension,
        "all-gather-start": _one_dimension,
        "all-to-all": _one_dimension,
        "async-done": _async_next,
        "async-start": _async_start,
        "async-update": _async_next,
        "broadcast": _broadcast,
        "collective-permute": _permute,
        "collective-permute-start": _permute,
        "concatenate": _one_dimension,
        "conditional": _conditional,
        "custom-call": _custom_call,
        "get-dimension-size": _one_dimension,
        "recv-done": _channel,
        "reduce": _halves,
        "reduce-scatter": _one_dimension,
        "reduce-window": _halves,
        "send-done": _channel,
        "set-dimension-size": _one_dimension,
        "sort": _one_dimension,
        "tuple": _tuple,
    },
    otherwise="nothing besides shape inference",
)

"""Making instructions: inferred shape, fresh name, in place."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import edit
from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module
from hloopt.ir.walk import callees_first, calls_by_attribute
from hloopt.ops import InferArgs, Signature
from hloopt.types import ArrayShape, Literal, Metadata, Shape, array

__all__ = [
    "clone",
    "clone_computation",
    "clone_module",
    "constant",
    "element",
    "elements",
    "infer_shape",
    "make",
    "no_collection",
    "splat",
]


def infer_shape(instruction: Instruction, declared: Shape | None = None) -> Shape:
    """The shape the op's row computes; raises ``ShapeError`` naming the broken constraint."""
    calls = {
        name: tuple(
            Signature(called.parameter_shapes, called.result_shape) for called in computations
        )
        for name, computations in calls_by_attribute(instruction).items()
    }
    return instruction.op.infer(
        InferArgs(
            instruction.opcode,
            tuple(operand.shape for operand in instruction.operands),
            instruction.attributes,
            calls,
            declared,
        )
    )


def make(
    position: Instruction | Computation,
    opcode: str,
    operands: tuple[Instruction, ...] = (),
    attributes: Mapping[str, Any] | None = None,
    *,
    shape: Shape | None = None,
    name: str = "",
    metadata: Metadata | None = None,
) -> Instruction:
    """A new instruction right before ``position``, or at the end of a computation.

    The shape is inferred unless given.  Raises ``ShapeError`` when the operands do not fit the op.
    """
    instruction = Instruction(
        name or opcode,
        opcode,
        shape if shape is not None else array("pred"),
        operands,
        dict(attributes or {}),
        metadata,
    )
    if shape is None:
        instruction.shape = infer_shape(instruction)
    if isinstance(position, Computation):
        return edit.append(position, instruction)
    return edit.insert_before(position, instruction)


def constant(position: Instruction | Computation, literal: Literal, name: str = "") -> Instruction:
    """A constant with the literal's shape."""
    return make(
        position, "constant", (), {"literal": literal}, shape=literal.shape, name=name or "constant"
    )


def element(
    position: Instruction | Computation,
    whole: Instruction,
    index: int,
    metadata: Metadata | None = None,
) -> Instruction:
    """An element of a tuple; ``index`` is its number, from 0."""
    attributes, shape = {"index": index}, whole.elements[index]
    return make(position, "get-tuple-element", (whole,), attributes, shape=shape, metadata=metadata)


def elements(
    position: Instruction | Computation, whole: Instruction, metadata: Metadata | None = None
) -> tuple[Instruction, ...]:
    """All elements of a tuple: the operands of the tuple op, else a get-tuple-element each."""
    if whole.opcode == "tuple":
        return whole.operands
    return tuple(element(position, whole, at, metadata) for at in range(len(whole.elements)))


def splat(position: Instruction | Computation, shape: ArrayShape, value: object) -> Instruction:
    """``value`` in every element of ``shape``: a scalar constant, broadcast unless the rank is 0."""
    literal = Literal(array(shape.dtype), np.array(value).astype(shape.dtype.numpy))
    single = constant(position, literal)
    if not shape.dims:
        return single
    return make(position, "broadcast", (single,), {"dimensions": ()}, shape=shape)


def clone(
    instruction: Instruction,
    position: Instruction | Computation,
    operands: tuple[Instruction, ...],
) -> Instruction:
    """A copy with other operands; called computations are shared, control edges are not copied."""
    copy = Instruction(
        instruction.name,
        instruction.opcode,
        instruction.shape,
        operands,
        dict(instruction.attributes),
        instruction.metadata,
        instruction.offset,
    )
    if isinstance(position, Computation):
        return edit.append(position, copy)
    return edit.insert_before(position, copy)


def clone_computation(
    computation: Computation,
    name: str | None = None,
    callees: Mapping[Computation, Computation] | None = None,
) -> Computation:
    """A copy outside of any module; calls go to ``callees[called]`` where that has an entry."""
    copy = Computation(name or computation.name, computation.offset)
    copy.execution_thread = computation.execution_thread
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation:
        attributes = {
            key: _mapped_calls(value, callees) for key, value in instruction.attributes.items()
        }
        new = Instruction(
            instruction.name,
            instruction.opcode,
            instruction.shape,
            tuple(mapped[operand] for operand in instruction.operands),
            attributes,
            instruction.metadata,
            instruction.offset,
        )
        mapped[instruction] = edit.append(copy, new)
    for instruction, new in mapped.items():
        for before in instruction.control_predecessors:
            edit.add_control_edge(mapped[before], new)
    copy.root = mapped[computation.root]
    return copy


def clone_module(module: Module) -> Module:
    """A deep copy; frozen values (shapes, literals, attribute records) are shared."""
    copy = Module(module.name, module.source)
    copy.attributes = dict(module.attributes)
    copy.stack_tables = module.stack_tables
    copy.weights = module.weights
    copy._source_size = module._source_size
    mapped: dict[Computation, Computation] = {}
    for computation in callees_first(module):
        mapped[computation] = edit.add_computation(
            copy, clone_computation(computation, None, mapped)
        )
    copy.entry = mapped[module.entry]
    return copy


def _mapped_calls(value: Any, callees: Mapping[Computation, Computation] | None) -> Any:
    if not callees:
        return value
    if isinstance(value, Computation):
        return callees.get(value, value)
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(callees.get(entry, entry) for entry in value)
    return value


@dataclass
class _Unseen:
    """How many objects became old unexamined since everything was examined last."""

    count: int = 0


_UNSEEN: Final = _Unseen()
_MOST_UNSEEN: Final = 2_000_000
"""Some hundred megabytes, were all of them garbage."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the garbage collector while much is made of which nearly everything stays alive.

    The collector then counts what was made among the old objects without examining it, which would take a
    twentieth of the time that passes do.  Once there is much of it, everything is examined.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _grow_old()
            gc.enable()


def _grow_old() -> None:
    _UNSEEN.count += gc.get_count()[0]
    if _UNSEEN.count > _MOST_UNSEEN:
        _UNSEEN.count = 0
        gc.collect()
    elif not gc.get_freeze_count():  # what the calling program has frozen stays frozen
        gc.freeze()
        gc.unfreeze()

"""One node of the graph.

Nodes are mutable and equal only to themselves.  Everything that links nodes together (``operands``,
``users``, control edges, position, called computations) is read here and changed in ``ir.edit`` alone,
which keeps both ends in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hloopt.ops import OPS, OpDef, attributes_of, op_of
from hloopt.spelling import first_of
from hloopt.types import (
    Array,
    ArrayShape,
    Literal,
    Metadata,
    Shape,
    TupleShape,
    Window,
    without_layout,
)

if TYPE_CHECKING:
    from hloopt.ir.computation import Computation
    from hloopt.ir.module import Module

__all__ = ["MOST_SHOWN", "Instruction", "brief"]

MOST_SHOWN: Final = 4
"""Operands or parameters that a ``repr`` names."""
_LONGEST: Final = 60


def brief(shape: Shape) -> str:
    """A shape without layouts, cut where it is long: for ``repr``."""
    text = str(without_layout(shape))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class Instruction:
    """An HLO instruction.

    name                  without ``%``; unique in its computation
    opcode                as in the text
    shape                 result shape
    operands              a tuple; an instruction may occur several times
    users                 instruction -> how many of its operands this one is; insertion order
    attributes            by the names of the text (see ``types/attrs.py``); a constant's value is
                          under ``literal``, a parameter's number under ``parameter_number``
    control_predecessors  instructions that must run before, insertion order
    metadata              where it came from in the user's program, or None
    offset                character offset in the module's source, -1 when it was made here
    """

    __slots__ = (
        "_next",
        "_places",
        "_previous",
        "attributes",
        "computation",
        "control_predecessors",
        "control_successors",
        "metadata",
        "name",
        "offset",
        "opcode",
        "operands",
        "shape",
        "users",
    )

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...] = (),
        attributes: dict[str, Any] | None = None,
        metadata: Metadata | None = None,
        offset: int = -1,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.attributes: dict[str, Any] = {} if attributes is None else attributes
        self.metadata = metadata
        self.offset = offset
        self.users: dict[Instruction, int] = {}
        self.control_predecessors: tuple[Instruction, ...] = ()
        self.control_successors: tuple[Instruction, ...] = ()
        self.computation: Computation | None = None
        self._next: Instruction | None = None
        self._previous: Instruction | None = None
        self._places: tuple[tuple[Instruction, ...], dict[Instruction, int]] | None = None

    @property
    def op(self) -> OpDef:
        """The op's row in the table, or ``ops.op_of``'s for an opcode that is not in it."""
        row = OPS.get(self.opcode)
        return row if row is not None else op_of(self.opcode)

    @property
    def is_understood(self) -> bool:
        """Whether opcode and attributes are all in the table: else its effect is not known."""
        known = attributes_of(self.opcode)
        return known is not None and self.attributes.keys() <= known

    @property
    def has_control_edges(self) -> bool:
        """Whether others must run before or after it, besides its operands and users."""
        return bool(self.control_predecessors or self.control_successors)

    @property
    def home(self) -> Computation:
        """The computation; raises ``ValueError`` for an instruction that is in none."""
        if self.computation is None:
            raise ValueError(f"{self.name} is in no computation")
        return self.computation

    @property
    def module(self) -> Module:
        """The module; raises ``ValueError`` for an instruction that is in none."""
        module = self.home.module
        if module is None:
            raise ValueError(f"{self.name} is in no module")
        return module

    @property
    def is_array(self) -> bool:
        """Whether the result is an array."""
        return isinstance(self.shape, ArrayShape)

    @property
    def is_tuple(self) -> bool:
        """Whether the result is a tuple."""
        return isinstance(self.shape, TupleShape)

    @property
    def array(self) -> ArrayShape:
        """The shape, where it must be an array; raises ``TypeError`` otherwise."""
        if not isinstance(self.shape, ArrayShape):
            raise TypeError(f"{self.name} has shape {self.shape}, not an array")
        return self.shape

    @property
    def custom_call_target(self) -> str:
        """The target of a custom call; empty for any other op."""
        return str(self.attributes.get("custom_call_target", ""))

    @property
    def window(self) -> Window:
        """The window that the op slides over its first operand: single elements where the text gives none."""
        rank = 0 if "dim_labels" in self.attributes else self.operands[0].array.rank
        return Window.of(self.attributes, rank)

    @property
    def elements(self) -> tuple[Shape, ...]:
        """The shapes of a tuple's elements; raises ``TypeError`` for anything else."""
        if not isinstance(self.shape, TupleShape):
            raise TypeError(f"{self.name} has shape {self.shape}, not a tuple")
        return self.shape.elements

    @property
    def literal(self) -> Literal | None:
        """A constant's value; None for every other opcode."""
        return self.attributes.get("literal") if self.opcode == "constant" else None

    @property
    def parameter_number(self) -> int:
        """A parameter's number; raises ``KeyError`` for every other opcode."""
        number: int = self.attributes["parameter_number"]
        return number

    @property
    def tuple_index(self) -> int:
        """The element that a get-tuple-element takes; raises ``KeyError`` for every other opcode."""
        index: int = self.attributes["index"]
        return index

    @property
    def dimensions(self) -> tuple[int, ...]:
        """``dimensions`` of a broadcast, concatenate, reduce ...; raises ``KeyError`` where there are none.

        A broadcast of a number needs none: XLA's parser takes it for ``{}``.
        """
        if self.opcode == "broadcast" and "dimensions" not in self.attributes:
            return ()
        dimensions: tuple[int, ...] = self.attributes["dimensions"]
        return dimensions

    @property
    def iota_dimension(self) -> int:
        """The dimension an iota counts along; raises ``KeyError`` for every other opcode."""
        dimension: int = self.attributes["iota_dimension"]
        return dimension

    @property
    def direction(self) -> str:
        """The direction of a compare; raises ``KeyError`` for every other opcode."""
        direction: str = self.attributes["direction"]
        return direction

    @property
    def calls(self) -> Computation:
        """The body of a fusion or of an asynchronous op; raises ``KeyError`` for every other opcode."""
        return self._computation("calls")

    @property
    def to_apply(self) -> Computation:
        """What a call runs or a reduce, sort ... applies; raises ``KeyError`` for other opcodes."""
        return self._computation("to_apply")

    @property
    def body(self) -> Computation:
        """One iteration of a while; raises ``KeyError`` for every other opcode."""
        return self._computation("body")

    @property
    def condition(self) -> Computation:
        """The condition of a while; raises ``KeyError`` for every other opcode."""
        return self._computation("condition")

    def _computation(self, name: str) -> Computation:
        called: Computation = self.attributes[name]
        return called

    @property
    def constant_array(self) -> Array | None:
        """The elements of a constant array; None for every other instruction, and for an elided constant."""
        literal = self.literal
        return None if literal is None else literal.array

    @property
    def constant_integer(self) -> int | None:
        """The number that an integer constant of one element is; None for every other instruction."""
        array = self.constant_array
        known = array is not None and array.size == 1 and array.dtype.kind in "iu"
        return int(array.reshape(())) if array is not None and known else None

    @property
    def is_used(self) -> bool:
        """Whether an instruction reads it, or its computation returns it."""
        return bool(self.users) or self.is_root

    @property
    def is_tied(self) -> bool:
        """Whether control edges or a sharding say where or when it is computed."""
        return self.has_control_edges or "sharding" in self.attributes

    def is_element_of(self, whole: Instruction) -> bool:
        """Whether this takes an element of ``whole``, a tuple."""
        return self.opcode == "get-tuple-element" and self.operands[0] is whole

    @property
    def fold_inputs(self) -> tuple[Instruction, ...]:
        """The arrays that a reduce or reduce-window folds, or a scatter updates."""
        return self.operands[: len(self.operands) // 2]

    @property
    def fold_inits(self) -> tuple[Instruction, ...]:
        """The initial values of a reduce or reduce-window."""
        return self.operands[len(self.operands) // 2 :]

    @property
    def scatter_indices(self) -> Instruction:
        """The indices of a scatter."""
        return self.operands[len(self.operands) // 2]

    @property
    def scatter_updates(self) -> tuple[Instruction, ...]:
        """The updates of a scatter."""
        return self.operands[len(self.operands) // 2 + 1 :]

    @property
    def is_root(self) -> bool:
        """Whether this is its computation's root."""
        return self.computation is not None and self.computation.root is self

    def __repr__(self) -> str:
        operands = first_of((operand.name for operand in self.operands), MOST_SHOWN)
        return f"<{self.name} = {brief(self.shape)} {self.opcode}({operands})>"

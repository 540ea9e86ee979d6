"""One computation on its way to descending layouts.

Instructions are visited in their order.  ``values`` has what each has become; most stay and get new
operands and a new shape.  What stands for an old instruction is made right before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.passes.layout_normalization.signatures import Signatures, is_border
from hloopt.passes.layout_normalization.values import (
    Orders,
    Parts,
    Raw,
    Value,
    Whole,
    descends,
    orders_of,
    physical,
    plain_orders,
)
from hloopt.types import ArrayShape, Dims, Shape, TupleShape

__all__ = ["Rewriter", "positions"]


def positions(order: Dims, dimensions: Dims) -> Dims:
    """Where logical dimensions stand in an array kept in ``order``."""
    place = {dimension: position for position, dimension in enumerate(order)}
    return tuple(place[dimension] for dimension in dimensions)


class Rewriter:
    """The state of one computation; ``changed`` says that anything differs from the text."""

    def __init__(
        self, computation: Computation, signatures: Signatures, kept: frozenset[str] = frozenset()
    ) -> None:
        self.computation = computation
        self.kept = kept
        self.signatures = signatures
        self.logical = signatures.logical
        self.fixed = signatures.is_fixed(computation)
        self.values: dict[Instruction, Value] = {}
        self.logical_shapes: dict[Instruction, Shape] = {}
        self.position: Instruction | Computation = computation
        self.created: list[Instruction] = []
        self.gone: list[Instruction] = []
        self.successors: dict[Instruction, Instruction] = {}
        self.changed = False
        self._turned: dict[tuple[Instruction, Dims], Instruction] = {}
        self._raw: dict[Instruction, Instruction] = {}

    # ---- reading values -----------------------------------------------------------------------------

    def shape(self, instruction: Instruction) -> Shape:
        """The shape the text gives an instruction."""
        return self.logical_shapes.get(instruction, instruction.shape)

    def order(self, instruction: Instruction) -> Dims:
        """The order in which an array is kept."""
        value = self.values[instruction]
        if isinstance(value, Raw):
            return orders_of(value.instruction.shape)  # type: ignore[return-value]
        assert isinstance(value, Whole)
        return value.orders  # type: ignore[return-value]

    def orders(self, value: Value) -> Orders:
        """The orders in which a value is kept."""
        if isinstance(value, Parts):
            return tuple(map(self.orders, value.elements))
        if isinstance(value, Raw):
            return orders_of(value.instruction.shape)
        return value.orders

    def operand(self, instruction: Instruction, order: Dims) -> Instruction:
        """The array that an old instruction stands for, in this order."""
        return self.taken(self.values[instruction], order)

    def taken(self, value: Value, orders: Orders) -> Instruction:
        """One instruction with the value in these orders and descending layouts."""
        if isinstance(value, Whole):
            if value.orders == orders:
                return value.instruction
            if value.instruction.is_array:
                return self._turn(value.instruction, value.orders, orders)  # type: ignore[arg-type]
        elif isinstance(value, Raw) and value.instruction.is_array:
            return self._from_raw(value.instruction, orders)  # type: ignore[arg-type]
        elements = tuple(
            self.taken(element, inner)  # type: ignore[arg-type]
            for element, inner in zip(self.split(value), orders, strict=True)
        )
        return self.make("tuple", *elements)

    def declared(self, value: Value, shape: Shape) -> Instruction:
        """One instruction with the value in the layouts of ``shape``."""
        if isinstance(value, Raw) and value.instruction.shape == shape:
            return value.instruction
        if descends(shape):
            return self.taken(value, orders_of(shape))
        if isinstance(shape, ArrayShape):
            source = self.taken(value, self.orders(value))
            raw = self._raw.get(source)
            if raw is not None and raw.shape == shape:
                return raw
            order: Dims = self.orders(value)  # type: ignore[assignment]
            dimensions = positions(order, tuple(range(shape.rank)))
            return self.make("transpose", source, shape=shape, dimensions=dimensions)
        assert isinstance(shape, TupleShape)
        elements = tuple(
            self.declared(element, inner)
            for element, inner in zip(self.split(value), shape.elements, strict=True)
        )
        return self.make("tuple", *elements, shape=shape)

    def split(self, value: Value) -> tuple[Value, ...]:
        """The elements of a tuple value."""
        if isinstance(value, Parts):
            return value.elements
        whole = value.instruction
        elements: list[Value] = []
        for index, shape in enumerate(whole.elements):
            part = self._element(whole, index, shape)
            if isinstance(value, Raw):
                elements.append(self.known(part))
            else:
                elements.append(Whole(part, value.orders[index]))  # type: ignore[arg-type]
        return tuple(elements)

    def _element(self, whole: Instruction, index: int, shape: Shape) -> Instruction:
        # Through a tuple no pass would see any more that a loop's body only updates an element.
        if whole.opcode == "tuple" and whole.operands[index].shape == shape:
            return whole.operands[index]
        return self.make("get-tuple-element", whole, shape=shape, index=index)

    def known(self, instruction: Instruction) -> Value:
        """The value of an instruction whose layouts are as they must be."""
        if descends(instruction.shape):
            return Whole(instruction, plain_orders(instruction.shape))
        return Raw(instruction)

    def _from_raw(self, raw: Instruction, order: Dims) -> Instruction:
        """A raw array: first the same bytes, then, if requested, another order."""
        own: Dims = orders_of(raw.shape)  # type: ignore[assignment]
        if descends(raw.shape):
            return self._turn(raw, own, order)
        same = self._turned.get((raw, own))
        if same is None:
            shape = physical(raw.shape, own)
            same = self.make("transpose", raw, shape=shape, dimensions=own)
            self._turned[raw, own] = same
            self._raw[same] = raw
        return self._turn(same, own, order)

    def remember_raw(self, transpose: Instruction, order: Dims) -> None:
        """The text itself has the bytes of a raw array as a descending one."""
        raw = transpose.operands[0]
        self._raw[transpose] = raw
        self._turned[raw, order] = transpose

    def _turn(self, source: Instruction, old: Dims, new: Dims) -> Instruction:
        if old == new:
            return source
        dimensions = positions(old, new)
        found = self._turned.get((source, dimensions))
        if found is None:
            shape = source.array
            turned = physical(shape, dimensions)
            found = self.make("transpose", source, shape=turned, dimensions=dimensions)
            self._turned[source, dimensions] = found
        return found

    # ---- writing ------------------------------------------------------------------------------------

    def make(
        self, opcode: str, /, *operands: Instruction, shape: Shape | None = None, **attributes: Any
    ) -> Instruction:
        """A new instruction before the one that is visited, with the metadata of its first operand's source."""
        metadata = operands[0].metadata if operands else None
        new = build.make(
            self.position, opcode, operands, attributes, shape=shape, metadata=metadata
        )
        self.created.append(new)
        return new

    def apply_logically(self, instruction: Instruction) -> None:
        """Descending operands, descending result: right for whatever does not look at layouts."""
        operands = tuple(
            self.taken(self.values[operand], plain_orders(self.shape(operand)))
            for operand in instruction.operands
        )
        self.update(instruction, operands, plain_orders(self.shape(instruction)))

    def update(
        self,
        instruction: Instruction,
        operands: tuple[Instruction, ...],
        orders: Orders,
        **attributes: Any,
    ) -> None:
        """The instruction stays, with other operands and attributes; its result is kept in ``orders``."""
        shape = physical(self.shape(instruction), orders)
        if operands != instruction.operands:
            edit.set_operands(instruction, operands)
            self.changed = True
        if shape != instruction.shape:
            self.logical_shapes.setdefault(instruction, instruction.shape)
            edit.set_shape(instruction, shape)
            self.changed = True
        self._set(instruction, attributes)
        self.values[instruction] = Whole(instruction, orders)

    def _set(self, instruction: Instruction, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            if instruction.attributes.get(name, ()) != value:
                edit.set_attribute(instruction, name, value)
                self.changed = True

    def replace(self, instruction: Instruction, new: Instruction, orders: Orders) -> None:
        """``new``, made for it, stands for the instruction and gets its name."""
        self.successors[instruction] = new
        for name in ("frontend_attributes", "origin", "sharding"):
            if name in instruction.attributes:
                edit.set_attribute(new, name, instruction.attributes[name])
        new.metadata = instruction.metadata
        self.drop(instruction, new, orders)

    def drop(self, instruction: Instruction, same: Instruction, orders: Orders) -> None:
        """The value is that of another instruction already."""
        self.gone.append(instruction)
        self.changed = True
        self.values[instruction] = Whole(same, orders)

    def keep(
        self, instruction: Instruction, operands: tuple[Instruction, ...], **attributes: Any
    ) -> None:
        """The instruction stays in its own layouts."""
        self._set(instruction, attributes)
        if operands != instruction.operands:
            edit.set_operands(instruction, operands)
            self.changed = True
        self.values[instruction] = self.known(instruction)

    def may_drop(self, instruction: Instruction) -> bool:
        """Whether nothing but the value would be lost."""
        return not (
            instruction.has_control_edges
            or "frontend_attributes" in instruction.attributes
            or instruction.attributes.get("sharding")
            != instruction.operands[0].attributes.get("sharding")
        )

    # ---- the border ---------------------------------------------------------------------------------

    def own_order(self, instruction: Instruction) -> Dims:
        """The order of an array in the text."""
        order: Dims = orders_of(self.shape(instruction))  # type: ignore[assignment]
        return order

    def stays(self, instruction: Instruction) -> bool:
        """Whether its result keeps the layout it has."""
        return is_border(instruction) or instruction.opcode in self.kept

    def is_outside(self, instruction: Instruction) -> bool:
        """Whether an instruction gives its operands to the world outside as they are."""
        return is_border(instruction) or self.is_result_tuple(instruction)

    def is_result_tuple(self, instruction: Instruction) -> bool:
        """Whether this is the tuple that a fixed computation returns."""
        return self.fixed and instruction.is_root and instruction.opcode == "tuple"

    def is_for_outside(self, instruction: Instruction) -> bool:
        """Whether an instruction is read only from outside of the module."""
        if not instruction.users:
            return self.fixed and instruction.is_root
        return all(map(self.is_outside, instruction.users)) and (
            self.fixed or not instruction.is_root
        )

    def finish(self) -> None:
        """Give the computation its result, and remove what is dead."""
        computation = self.computation
        root = computation.root
        value = self.values[root]
        self.position = computation
        if self.fixed:
            new = self.declared(value, self.shape(root))
        else:
            new = self.taken(value, self.signatures.result(computation))
        if new is not root:
            edit.set_root(computation, new)
            self.changed = True
        for instruction in reversed(self.gone):
            if not instruction.users and not instruction.is_root:
                self._remove(instruction)
        for instruction in reversed(self.created):
            if not instruction.users and not instruction.is_root:
                edit.remove(instruction)
            else:
                self.changed = True

    def _remove(self, instruction: Instruction) -> None:
        name = instruction.name
        new = self.successors.get(instruction)
        if new is not None:
            edit.take_control_edges(instruction, new)
        edit.remove(instruction)
        if new is not None:
            edit.rename(new, name)
            new.offset = instruction.offset

"""Making a line: slots whose arrays may be smaller than the values they stand for.

A broadcast makes no array.  Its slot is that of its operand, whose array NumPy stretches where an
elementwise op combines it with a larger one; ops that cannot stretch operands use ``full`` arrays.  The
dimensions of an array therefore agree with those of its value, counted from the last, or are 1 there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.plan import SCALARS, Code, Dims, Function, Line, Slots, Step, leaf_slots
from hloopt.backends.numpy.writer import code_function
from hloopt.interpret.context import Context
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape, leaves

__all__ = ["Builder"]

# Bytes of an array that is stretched in less time by a copy than by making a view (Zen 5: 2 us a view).
_SMALL = 1 << 12


class Builder:
    """A line under construction and the context its functions run in.

    ``counted`` says that the instructions being added are launches of their own.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.line = Line()
        self._constants: dict[Hashable, int] = {}

    def slots(self, shape: Shape) -> Slots:
        """New slots for a value's arrays."""
        if isinstance(shape, TupleShape):
            return tuple(map(self.slots, shape.elements))
        array = shape if isinstance(shape, ArrayShape) else shape.element
        return self.line.slot(self.context.carrier(array.dtype), array.dims)

    def constant(self, array: Any) -> int:
        """A slot that always holds this array."""
        array = np.asarray(array)
        key = None
        if array.nbytes <= _SMALL:
            # Equal constants share a slot, so that equal steps on them become one.
            key = (array.dtype, array.shape, array.tobytes())
            if key in self._constants:
                return self._constants[key]
        array.flags.writeable = False
        slot = self.line.slot(array.dtype, array.shape)
        self.line.constants[slot] = array
        if key is not None:
            self._constants[key] = slot
        return slot

    def folded(self, out: int, first: int) -> int:
        """What is in ``out``, made by the steps from ``first`` on: of small constants alone a constant."""
        line = self.line
        for step in line.steps[first:]:
            function = step.function
            if function is None and step.code is not None:
                function = code_function(step.code)
            if function is None or step.keep or step.several or step.writes:
                return out
            (made,) = step.outs
            constant = all(slot in line.constants for slot in step.ins)
            if not constant or prod(line.dims[made]) * line.kinds[made].itemsize > _SMALL:
                return out
            value = np.asarray(function(*[line.constants[slot] for slot in step.ins]))
            line.constants[made] = value.astype(line.kinds[made], copy=False)
        del line.steps[first:]
        known = line.constants.get(out)
        return out if known is None else self.constant(known)

    def view(
        self,
        function: Any,
        slot: int,
        dims: Dims,
        *,
        reshapes: bool = False,
        code: Code | None = None,
    ) -> int:
        """A slot for another view of a slot's array; of a constant, a constant."""
        known = self.line.constants.get(slot)
        if known is not None:
            return self.constant(function(known))
        out = self.line.slot(self.line.kinds[slot], dims)
        flags = {"view": True, "reshapes": reshapes, "moves": True}
        return self.line.once(function, (slot,), out, code=code, **flags)

    def reshaped(self, slot: int, dims: Dims) -> int:
        """A slot for the elements in other dimensions."""
        before = self.line.dims[slot]
        if before == dims:
            return slot
        if not dims and self.line.kinds[slot] in SCALARS:
            return self.element(slot, (0,) * len(before))
        same = [size for size in before if size != 1] == [size for size in dims if size != 1]
        code = Code("{r} = {0}.reshape({dims})", bound={"dims": dims})
        return self.view(lambda x: x.reshape(dims), slot, dims, reshapes=same, code=code)

    def element(self, slot: int, at: Dims) -> int:
        """A slot for one element, without dimensions."""
        known = self.line.constants.get(slot)
        if known is not None:
            return self.constant(known[at])
        kind = self.line.kinds[slot]
        out = self.line.slot(kind, ())
        code = Code("{r} = {0}[{at}]", scalar=kind in SCALARS, bound={"at": at})
        return self.line.once(lambda x: x[at], (slot,), out, code=code, moves=True)

    def full(self, slot: int, dims: Dims) -> int:
        """The slot with its array stretched to ``dims``."""
        if self.line.dims[slot] == dims:
            return slot
        size = prod(dims)
        if prod(self.line.dims[slot]) == size and self.line.dims[slot]:
            return self.reshaped(slot, dims)
        kind = self.line.kinds[slot]
        if slot in self.line.constants or size * kind.itemsize > _SMALL:
            code = Code(
                "{r} = {stretch}({0}, {dims})", bound={"stretch": np.broadcast_to, "dims": dims}
            )
            return self.view(lambda x: np.broadcast_to(x, dims), slot, dims, code=code)
        text = "{r} = {empty}({dims}, {kind})\n{r}[...] = {0}"
        scalars = frozenset({0} if self.line.is_scalar(slot) else ())
        code = Code(text, scalars, bound={"dims": dims, "empty": np.empty, "kind": kind})
        out = self.line.slot(kind, dims)
        return self.line.once(
            lambda x: np.broadcast_to(x, dims), (slot,), out, code=code, moves=True
        )

    def all_full(self, operands: Iterable[tuple[Slots, Shape]]) -> tuple[int, ...]:
        """The slots of all leaves of values, stretched to their shapes."""
        found = []
        for slots, shape in operands:
            for slot, leaf in zip(leaf_slots(slots), leaves(shape), strict=True):
                array = leaf if isinstance(leaf, ArrayShape) else leaf.element
                found.append(self.full(slot, array.dims))
        return tuple(found)

    def full_operands(self, instruction: Instruction, operands: Sequence[int]) -> tuple[int, ...]:
        """The slots of an instruction's operands, which are arrays, stretched to their shapes."""
        pairs = zip(operands, instruction.operands, strict=True)
        return tuple(self.full(slot, operand.array.dims) for slot, operand in pairs)

    def applied(
        self, instruction: Instruction, operands: Sequence[int], function: Function, **flags: Any
    ) -> Slots:
        """A step of a function of stretched operands; where the result is a tuple it returns one."""
        out = self.slots(instruction.shape)
        full = self.full_operands(instruction, operands)
        if isinstance(out, int):
            return self.line.step(function, full, out, **flags)
        outs = tuple(leaf_slots(out))
        self.line.steps.append(Step(function, full, outs, several=True, **flags))
        return out

    def aligned(self, slot: int, rank: int) -> int:
        """The slot with an array of ``rank`` dimensions, the first ones of size 1."""
        dims = self.line.dims[slot]
        if len(dims) == rank:
            return slot
        return self.reshaped(slot, (1,) * (rank - len(dims)) + dims)

"""Gradients of pooling: a window reduction finds the places, a scatter fills them."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, build
from hloopt.ir.walk import has_side_effect
from hloopt.passes.expand.computations import RegionWriter, region
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import DType, TupleShape, array, dtype

__all__ = ["SelectAndScatterExpander"]


@dataclass(frozen=True)
class SelectAndScatterExpander(Expander):
    """Write ``select-and-scatter`` as a ``reduce-window`` and a ``scatter``.

    1. A reduce-window of the operand and of the place of each element, a single number in row-major order,
       keeps of each window what ``select`` keeps; -1 is the place of what is not an element.
    2. A scatter combines the source into ``init`` at these places; windows without an element have none.

    Results are the same where windows are reduced and updates scattered in row-major order, as the
    interpreter does; a device may add in another order.  XLA reduces an index for each dimension; one for all
    is less to read and write.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"select-and-scatter"})
    example: ClassVar[str] = """\
HloModule pooling

ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  source = f32[4]{0} parameter(1)
  zero = f32[] constant(0)
  ROOT y = f32[8]{0} select-and-scatter(x, source, zero), window={size=2 stride=2}, select=ge, scatter=add
}
"""

    def obstacle(self, instruction: Instruction) -> str | None:
        """A selection that does more than compare."""
        for inner in instruction.attributes["select"]:
            if inner.has_control_edges:
                return f"{inner.name} of its selection has control edges"
            if has_side_effect(inner):
                return f"{inner.name} of its selection has effects"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Find the places, and scatter the source there."""
        operand, source, init = (write.term(one) for one in instruction.operands)
        size, count = operand.shape.elements, source.shape.elements
        if not size or not count:
            return init.broadcast(instruction.array)
        flat = init.broadcast(array(operand.dtype, (size,)))
        kind = dtype("s32" if size < 1 << 31 else "s64")
        places = write.iota(array(kind, (size,)), 0).reshape(*operand.dims)
        found = write.make(
            "reduce-window",
            operand,
            places,
            write.scalar(operand.dtype, 0),
            write.scalar(kind, -1),
            shape=TupleShape((array(operand.dtype, source.dims), array(kind, source.dims))),
            window=instruction.window,
            to_apply=_selection(write, instruction.attributes["select"], operand.dtype, kind),
        )
        result = write.make(
            "scatter",
            flat,
            found.part(1).reshape(count, 1),
            source.reshape(count),
            update_window_dims=(),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            to_apply=instruction.attributes["scatter"],
        )
        return result.reshape(*operand.dims)


def _selection(write: Writer, select: Computation, value: DType, place: DType) -> Computation:
    """Of two (value, place): the second where it is an element, and the first none or not kept."""
    shapes = [array(value), array(place)]
    inner = region(write, "selection", *shapes, *shapes)
    value0, place0, value1, place1 = inner.parameters
    keeps = _copied(inner, select, value0, value1)
    stays = (place1 < 0) | ((place0 >= 0) & keeps)
    return inner.finish(inner.pack(stays.select(value0, value1), stays.select(place0, place1)))


def _copied(write: RegionWriter, computation: Computation, *arguments: Term) -> Term:
    """The result of a computation whose instructions are written here once more."""
    values = {
        parameter: argument.instruction
        for parameter, argument in zip(computation.parameters, arguments, strict=True)
    }
    for inner in computation:
        if inner not in values:
            operands = tuple(values[operand] for operand in inner.operands)
            values[inner] = build.clone(inner, write.computation, operands)
    return write.term(values[computation.root])

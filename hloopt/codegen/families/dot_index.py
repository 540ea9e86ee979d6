"""Indices of a contraction: from b, m, n and k to elements of its operands and of the region's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloopt.analysis.contraction import Axis, AxisGroup, AxisPosition, Contraction, Side
from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.codegen import index_at, inside, position_of
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr

__all__ = ["AxisIndices", "moved", "operand_place", "result_place", "split_axes"]

AxisIndices = Mapping[Axis, Index]


def split_axes(contraction: Contraction, counts: Mapping[AxisGroup, Index]) -> dict[Axis, Index]:
    """The axes that b, m, n or k count through."""
    found: dict[Axis, Index] = {}
    for group, count in counts.items():
        for at, index in enumerate(delinearize(count, contraction.axes[group])):
            found[group, at] = index
    return found


def operand_place(side: Side, axes: AxisIndices) -> tuple[list[Expr], Indices]:
    """Where an operand is read, and the tests that there is an element."""
    tests: list[Expr] = []
    place: list[Index] = []
    for position, size in zip(side.positions, side.instruction.array.dims, strict=True):
        at = _sum(position, axes)
        tests += inside(at, (size - 1) * position.dilation, position.dilation)
        place.append(at // position.dilation)
    return tests, tuple(place)


def result_place(contraction: Contraction, axes: AxisIndices) -> Indices:
    """The index of a product in the hero's result."""
    return tuple(_sum(position, axes) for position in contraction.result)


def _sum(position: AxisPosition, axes: AxisIndices) -> Index:
    total = Index(position.constant)
    for axis, coefficient in position.terms:
        total = total + axes[axis] * coefficient
    return total


def moved(index: Indices, route: Sequence[Instruction]) -> Indices:
    """Where ops put an element: transposes, reversals, reshapes and their like that keep all elements."""
    for instruction in route:
        dims = instruction.array.dims
        if instruction.opcode == "transpose":
            index = tuple(index[dimension] for dimension in instruction.attributes["dimensions"])
        elif instruction.opcode == "reverse":
            turned = instruction.attributes["dimensions"]
            index = tuple(
                Index(dims[at] - 1) - part if at in turned else part
                for at, part in enumerate(index)
            )
        elif instruction.opcode == "broadcast":
            where = instruction.attributes.get("dimensions", ())
            places = dict(zip(where, index, strict=True))
            index = tuple(places.get(at, Index(0)) for at in range(len(dims)))
        elif instruction.opcode == "bitcast":
            index = index_at(position_of(index, instruction.operands[0].array), instruction.array)
        else:
            index = delinearize(linearize(index, instruction.operands[0].array.dims), dims)
    return index

"""Tuples with some leaves replaced by copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloopt.ir import Instruction, build, edit
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["LeafIndex", "indices", "leaf_of", "leaf_shape", "replace_leaves", "with_leaves"]

LeafIndex = tuple[int, ...]


def indices(shape: Shape, index: LeafIndex = ()) -> Iterator[LeafIndex]:
    """The index of each leaf, depth first."""
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from indices(element, (*index, number))
    else:
        yield index


def leaf_shape(shape: Shape, index: LeafIndex) -> Shape:
    """The shape of a leaf."""
    for number in index:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[number]
    return shape


def replace_leaves(user: Instruction, number: int, new: Mapping[LeafIndex, Instruction]) -> None:
    """Give operand ``number`` of an instruction other leaves; a tuple that only it reads changes itself."""
    whole = user.operands[number]
    if (
        whole.opcode == "tuple"
        and whole.users == {user: 1}
        and not (whole.is_root or whole.has_control_edges)
        and all(len(index) == 1 for index in new)
    ):
        elements = (new.get((at,), operand) for at, operand in enumerate(whole.operands))
        edit.set_operands(whole, tuple(elements))
        edit.move_before(user, whole)
    else:
        edit.set_operand(user, number, with_leaves(user, whole, new))


def with_leaves(
    position: Instruction | None, whole: Instruction, new: Mapping[LeafIndex, Instruction]
) -> Instruction:
    """``whole`` with the leaves of ``new`` in place of its own, made before ``position`` or at the end."""
    return _with(position, whole, new, ())


def _with(
    position: Instruction | None,
    whole: Instruction,
    new: Mapping[LeafIndex, Instruction],
    at: LeafIndex,
) -> Instruction:
    if at in new:
        return new[at]
    if not any(index[: len(at)] == at for index in new):
        return whole
    elements = tuple(
        _with(position, element_of(position, whole, number), new, (*at, number))
        for number in range(len(whole.elements))
    )
    where = position if position is not None else whole.home
    shape = TupleShape(tuple(element.shape for element in elements))
    return build.make(where, "tuple", elements, shape=shape, metadata=whole.metadata)


def element_of(position: Instruction | None, whole: Instruction, number: int) -> Instruction:
    """An element of a tuple: an operand of the tuple op, or read out of anything else."""
    if whole.opcode == "tuple":
        return whole.operands[number]
    where = position if position is not None else whole.home
    return build.element(where, whole, number, whole.metadata)


def leaf_of(position: Instruction | None, whole: Instruction, index: LeafIndex) -> Instruction:
    """The array at a leaf of a tuple."""
    for number in index:
        whole = element_of(position, whole, number)
    assert isinstance(whole.shape, ArrayShape)
    return whole

"""Slices at computed places, planned when the line is made.

The array of a slice leaves out leading dimensions of which it takes one element: an index there costs
less than a slice, and what follows usually reshapes them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import SCALARS, Code, Dims
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["EMITTERS"]

# A slice of less than this part of its operand is copied, so that the operand can be updated in place.
_SMALL_PART = 4


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a slice lies.

    starts   slots of Python's integers within bounds, operands from ``first`` on
    index    of the array
    dims     of what is there: leading dimensions of one element are left out
    """

    starts: tuple[int, ...]
    index: str
    dims: Dims
    first: int

    @property
    def scalars(self) -> frozenset[int]:
        """The positions of the starts among the operands."""
        return frozenset(range(self.first, self.first + len(self.starts)))


def _place(
    builder: Builder, whole: Dims, sizes: Dims, slots: Sequence[int], first: int, *, one: bool
) -> _Place:
    """``slots`` are scalars, one a dimension; ``one``: a single element may be without dimensions."""
    leading = next((at for at, size in enumerate(sizes) if size != 1), len(sizes))
    if leading == len(sizes) and not one:
        leading -= 1
    starts: list[int] = []
    parts = []
    for axis, (dim, size, slot) in enumerate(zip(whole, sizes, slots, strict=True)):
        most, known = dim - size, builder.line.constants.get(slot)
        if not most:
            start = "0"
        elif known is not None:
            start = str(min(max(int(known), 0), most))
        else:
            start = f"{{{first + len(starts)}}}"
            starts.append(_within(builder, slot, most))
        if axis < leading:
            parts.append(start)
        else:
            parts.append(f"{start}:{start} + {size}" if most else ":")
    while parts and parts[-1] == ":":
        parts.pop()
    index = ", ".join(parts) or "..."
    return _Place(tuple(starts), index, tuple(sizes[leading:]), first)


def _within(builder: Builder, slot: int, most: int) -> int:
    """A slot for Python's integer that is the start, moved to where a slice may begin."""
    text = f"{{r}} = {{int}}({{0}})\nif {{r}} < 0: {{r}} = 0\nif {{r}} > {most}: {{r}} = {most}"
    code = Code(text, frozenset({0}), scalar=True, bound={"int": int})
    out = builder.line.slot(builder.line.kinds[slot], ())
    return builder.line.once(None, (slot,), out, code=code)


def _scalars(builder: Builder, slots: Sequence[int], rank: int) -> tuple[int, ...]:
    """One scalar a dimension; the older form has them all in one vector."""
    if len(slots) == 1 and builder.line.dims[slots[0]]:
        return tuple(builder.element(slots[0], (at,)) for at in range(rank))
    return tuple(slots) if len(slots) == rank else tuple(slots) * rank


def _dynamic_slice(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    shape, whole = instruction.array, instruction.operands[0].array
    if not shape.rank:
        return operands[0]
    line, kind = builder.line, builder.context.carrier(shape.dtype)
    array = builder.full(operands[0], whole.dims)
    slots = _scalars(builder, operands[1:], shape.rank)
    place = _place(builder, whole.dims, shape.dims, slots, 1, one=kind in SCALARS)
    code = Code(f"{{r}} = {{0}}[{place.index}]", place.scalars, scalar=not place.dims)
    ins, out = (array, *place.starts), line.slot(kind, place.dims)
    if not place.dims:
        return line.once(None, ins, out, code=code)
    if shape.elements * _SMALL_PART > whole.elements:
        return line.once(None, ins, out, view=True, code=code)
    copied = replace(code, text=f"{code.text}.copy()")
    return line.step(None, ins, out, code=copied, uncopied=code)


def _dynamic_update_slice(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> int:
    """In place where the operand has no other use."""
    shape, update = instruction.array, instruction.operands[1].array
    if not shape.rank:
        return operands[1]
    line = builder.line
    array, part = builder.full(operands[0], shape.dims), operands[1]
    slots = _scalars(builder, operands[2:], shape.rank)
    place = _place(builder, shape.dims, update.dims, slots, 2, one=not line.dims[part])
    scalars = place.scalars | {1} if line.is_scalar(part) else place.scalars
    put = f"{{r}}[{place.index}] = {{1}}"

    def choose(own: frozenset[int]) -> Code:
        target = "{0}" if own else "{0}.copy()"
        return Code(f"{{r}} = {target}\n{put}", scalars)

    out = line.slot(builder.context.carrier(shape.dtype), shape.dims)
    ins = (array, part, *place.starts)
    return line.step(None, ins, out, view=True, writes=(0,), choose=choose)


EMITTERS: Mapping[str, Emitter] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
}

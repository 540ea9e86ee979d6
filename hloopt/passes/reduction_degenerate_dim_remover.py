"""Reductions over dimensions of one element.

    reduce(A, init), dimensions of size 1 only      =>      f(init, reshape(A))
    reduce(A, init), some of size 1                 =>      reduce(reshape(A), init), without these

A reduction of nothing hides from kernels that what it makes belongs to its row.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.layout import is_descending
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.types import ArrayShape, descending

__all__ = ["ReductionDegenerateDimRemover"]


@dataclass(frozen=True)
class ReductionDegenerateDimRemover(Pass):
    """Take dimensions of size 1 out of reductions.

    Where nothing else is reduced, what is left is the reducer of the initial value and each element, in this
    order, so that every bit stays (XLA drops the initial value).  Left alone: reduces of several arrays,
    reducers that are more than one op of their parameters, arrays that are not row-major, sizes known at
    run time only, and bodies of fusions.
    """

    example: ClassVar[str] = """HloModule example

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[4,1,8] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[4,8] reduce(x, z), dimensions={1}, to_apply=add
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each reduce once."""
        changed = False
        for computation in open_computations(module):
            for reduce in list(computation):
                if reduce.opcode != "reduce" or not _is_plain(reduce):
                    continue
                source = reduce.operands[0].array
                dimensions = reduce.dimensions
                kept = [one for one in dimensions if source.dims[one] != 1]
                if len(kept) == len(dimensions) or not (kept or _is_one_op(reduce)):
                    continue
                if not log.allows():
                    return changed
                gone = len(dimensions) - len(kept)
                log.hit("drop reduced dimensions of one element", reduce, f"{gone} of them")
                (_reduce_less if kept else _apply)(reduce)
                changed = True
        return changed


def _is_plain(reduce: Instruction) -> bool:
    """Whether one row-major array of known size is reduced to another."""
    if len(reduce.operands) != 2 or not reduce.is_understood:
        return False
    shapes = (reduce.operands[0].shape, reduce.shape)
    return all(
        isinstance(shape, ArrayShape)
        and not any(shape.dynamic)
        and is_descending(shape)
        and (shape.layout is None or not shape.layout.suffix)
        for shape in shapes
    )


def _is_one_op(reduce: Instruction) -> bool:
    """Whether the reducer is an elementwise op of its two parameters, in any order."""
    body = reduce.to_apply
    root = body.root
    return (
        root.op.is_elementwise
        and len(root.operands) == 2
        and set(root.operands) == set(body.parameters)
        and root.array.dtype == reduce.array.dtype
    )


def _reduce_less(reduce: Instruction) -> None:
    """Reduce an array without the dimensions of size 1 that were reduced."""
    source = reduce.operands[0].array
    dimensions = set(reduce.dimensions)
    left = [at for at, size in enumerate(source.dims) if at not in dimensions or size != 1]
    rest = tuple(number for number, at in enumerate(left) if at in dimensions)
    dims = tuple(source.dims[at] for at in left)
    operand = _reshaped(reduce, reduce.operands[0], dims)
    edit.set_operand(reduce, 0, operand)
    edit.set_attribute(reduce, "dimensions", rest)


def _apply(reduce: Instruction) -> None:
    """Compute the reducer of the initial value and each element."""
    body = reduce.to_apply
    source, initial = reduce.operands
    shape = reduce.array
    wide = build.make(reduce, "broadcast", (initial,), {"dimensions": ()}, shape=shape)
    values = dict(zip(body.parameters, (wide, _reshaped(reduce, source, shape.dims)), strict=True))
    root = body.root
    new = build.make(
        reduce,
        root.opcode,
        tuple(values[operand] for operand in root.operands),
        dict(root.attributes),
        shape=shape,
        metadata=reduce.metadata,
    )
    edit.replace_instruction(reduce, new)


def _reshaped(at: Instruction, value: Instruction, dims: tuple[int, ...]) -> Instruction:
    shape = ArrayShape(value.array.dtype, dims, descending(len(dims)))
    return build.make(at, "reshape", (value,), {}, shape=shape, metadata=at.metadata)

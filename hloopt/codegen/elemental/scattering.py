"""A scatter inside a kernel: each thread takes in the updates that meet its results, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.index import Index, Indices
from hloopt.codegen import inside
from hloopt.codegen.elemental.scatter_index import ScatterWindow, scatter_window
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit, each
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr
from hloopt.types import ScatterDims

__all__ = ["EMITTERS"]


def _scatter(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    count = len(instruction.operands) // 2
    operands, sources = instruction.fold_inputs, instruction.operands[-count:]
    dims = ScatterDims.of(instruction.attributes)
    first = yield from each(At(operand, index) for operand in operands)
    types = [e.uses.type(operand.array.dtype) for operand in operands]
    names = [
        e.scope.variable(kind, instruction.name, value)
        for kind, value in zip(types, first, strict=True)
    ]
    with ExitStack() as blocks:
        blocks.enter_context(e.before(index))
        batch = []
        for number, size in enumerate(sources[0].array.dims):
            if number not in dims.update_window_dims:
                batch.append(blocks.enter_context(e.counting(0, size, "s")))
        window = yield from scatter_window(e, instruction, batch)
        blocks.enter_context(e.when(*window.tests))
        source = _source(e, window, dims, batch, index, blocks)
        values = yield from each(At(operand, source) for operand in sources)
        combined = yield from e.call(instruction.attributes["to_apply"], [*names, *values])
        kept = [
            e.scope.declare(kind, value, "next") if count > 1 else value
            for kind, value in zip(types, combined, strict=True)
        ]
        for name, value in zip(names, kept, strict=True):
            e.scope.set(name, value)
    for number, name in enumerate(names):
        e.remember(instruction, index, number, name)
    return names[leaf]


def _source(
    e: Elements,
    window: ScatterWindow,
    dims: ScatterDims,
    batch: Sequence[Index],
    index: Sequence[Index],
    blocks: ExitStack,
) -> Indices:
    """The update element that meets a result element; inside the block, one does."""
    tests: list[Expr] = []
    offsets = []
    for at, size in enumerate(window.sizes):
        offset = index[at] - window.start[at]
        tests += inside(offset, size - 1)
        if at in window.along:
            offsets.append(offset)
    blocks.enter_context(e.when(*tests))
    positions: dict[int, Index] = dict(zip(sorted(dims.update_window_dims), offsets, strict=True))
    rest = iter(batch)
    return tuple(
        positions[number] if number in positions else next(rest)
        for number in range(len(batch) + len(offsets))
    )


EMITTERS: Final[Mapping[str, Emit]] = {"scatter": _scatter}

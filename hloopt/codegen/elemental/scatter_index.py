"""Where a scatter's updates go."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from hloopt.analysis.index import Index
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At
from hloopt.codegen.scalars.forms import unsigned
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import FALSE, Expr, as_expr
from hloopt.types import ScatterDims

__all__ = ["ScatterWindow", "scatter_window"]


class ScatterWindow:
    """One window of a scatter.

    ``start`` is its first element's index in the operand, ``sizes`` its size in each operand dimension,
    ``tests`` say that it lies inside, which it must for anything to be written.  ``offsets`` are the
    operand's dimensions that the update's window dimensions run along, in order.
    """

    def __init__(self, rank: int) -> None:
        self.start = [Index(0)] * rank
        self.sizes: tuple[int, ...] = (1,) * rank
        self.tests: list[Expr] = []
        self.along: tuple[int, ...] = ()


def scatter_window(
    e: Elements, scatter: Instruction, batch: Sequence[Index]
) -> Generator[At, Expr, ScatterWindow]:
    """The window of a scatter index; ``batch`` are its positions along the updates' scatter dimensions."""
    dims = ScatterDims.of(scatter.attributes)
    count = (len(scatter.operands) - 1) // 2
    operand, indices = scatter.operands[0].array, scatter.operands[count]
    updates = scatter.operands[-1].array
    window = ScatterWindow(operand.rank)
    window.along = dims.window_dims(operand.rank)
    window.sizes = dims.window_sizes(operand.rank, updates.dims)
    for number, dimension in enumerate(dims.index_map):
        where = dims.vector_place(batch, Index(number), indices.array.rank)
        value = yield At(indices, where)
        last = operand.dims[dimension] - window.sizes[dimension]
        kind = indices.array.dtype
        if last < 0:
            window.tests.append(FALSE)
            continue
        if kind.kind == "unsigned":
            window.tests.append(value <= unsigned(last, kind))
        else:
            window.tests += [value >= 0, value <= last]
        # Outside of the tests the number may be anything; it is only read after them.
        number_of = value.cast(e.loads.index_type)
        window.start[dimension] = e.symbol(number_of, f"start_{dimension}", 0, last)
    for dimension, place in dims.batching:
        start, last = batch[place], operand.dims[dimension] - 1
        if start.high > last:
            window.tests.append(as_expr(start) <= last)
            start = e.symbol(start, f"start_{dimension}", 0, max(last, 0))
        window.start[dimension] = start
    return window

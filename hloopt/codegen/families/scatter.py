"""Scatter: threads for update elements, or for result elements."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, delinearize
from hloopt.analysis.region import Region
from hloopt.codegen import index_at, position_of
from hloopt.codegen.elemental.scatter_index import scatter_window
from hloopt.codegen.emission import Asking, At, each
from hloopt.codegen.families.atomics import combine_atomically
from hloopt.codegen.families.loop import strided
from hloopt.codegen.scalars import load
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernels.families.scatter import combiner, scatter_of
from hloopt.types import ScatterDims

__all__ = ["EMITTERS", "scatter_in", "update"]


def scatter_in(region: Region) -> Instruction:
    """The scatter that a region is."""
    scatter = scatter_of(region)
    assert scatter is not None
    return scatter


def _emit(f: FunctionWriter) -> None:
    scatter = scatter_in(f.region)
    if f.launch.function == "_begin":
        _begin(f, scatter)
        return
    updates = scatter.operands[-1].array
    with strided(f, updates.elements) as thread:
        f.elements.run(update(f, scatter, delinearize(thread, updates.dims)))


def _begin(f: FunctionWriter, scatter: Instruction) -> None:
    """The results before any update: the operands."""
    shape = f.region.results[0].shape
    with strided(f, shape.elements) as thread:
        index = index_at(thread, shape)
        for argument in f.launch.arguments:
            if argument.place.kind == "result":
                number = argument.place.number
                value = f.elements.value(scatter.operands[number], index)
                f.store(f.result(number), thread, value)


def update(f: FunctionWriter, scatter: Instruction, index: Sequence[Index]) -> Asking:
    """Combine the element of the updates at an index into the result."""
    dims = ScatterDims.of(scatter.attributes)
    e = f.elements
    batch = [index[at] for at in dims.batch_dims(len(index))]
    window = yield from scatter_window(e, scatter, batch)
    offsets = [index[number] for number in sorted(dims.update_window_dims)]
    position = list(window.start)
    for at, offset in zip(window.along, offsets, strict=True):
        position[at] += offset
    with e.when(*window.tests):
        place = e.symbol(position_of(position, f.region.results[0].shape), "place", 0, 2**62)
        count = len(f.region.results)
        values = yield from each(At(operand, tuple(index)) for operand in scatter.operands[-count:])
        if f.spec.kernel == "scatter-atomic":
            reducer = scatter.attributes["to_apply"]
            yield from combine_atomically(
                f, f.result(0), place, reducer, combiner(scatter), values[0]
            )
        else:
            yield from _plainly(f, scatter, place, values)


def _plainly(
    f: FunctionWriter, scatter: Instruction, place: Index, values: Sequence[Expr]
) -> Asking:
    e = f.elements
    old = []
    for number, result in enumerate(f.region.results):
        kind = result.shape.dtype
        value = load(f.result(number).memory, place, kind, f.uses)
        old.append(e.scope.declare(f.uses.type(kind), value, "old"))
    combined = yield from e.call(scatter.attributes["to_apply"], [*old, *values])
    for number, value in enumerate(combined):
        f.store(f.result(number), place, value)


def _emit_ordered(f: FunctionWriter) -> None:
    scatter = scatter_in(f.region)
    shape = f.region.results[0].shape
    with strided(f, shape.elements) as thread:
        index = index_at(thread, shape)
        for number, _ in enumerate(f.region.results):
            f.store(f.result(number), thread, f.elements.value(scatter, index, number))


EMITTERS = {
    "scatter": _emit,
    "scatter-atomic": _emit,
    "scatter-ordered": _emit_ordered,
}

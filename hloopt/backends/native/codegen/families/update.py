"""Updates: the elements that change, in the order of the update's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hloopt.analysis.index import Index, linearize
from hloopt.backends.native.codegen.families.loop import store_elements
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.families.scatter import scatter_in, update
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.in_place_update import update_of

__all__ = ["EMITTERS"]


@contextmanager
def _over(f: FunctionWriter, sizes: Sequence[int], hint: str) -> Iterator[list[Index]]:
    """A loop for each dimension, the last one innermost; gives their counters."""
    with ExitStack() as blocks:
        yield [
            blocks.enter_context(f.elements.counting(0, size, hint)) if size != 1 else Index(0)
            for size in sizes
        ]


def _emit_update(f: FunctionWriter) -> None:
    updates = [part.place.number for part in f.launch.arguments if part.role == "update"]
    if not updates:
        numbers = [part.place.number for part in f.launch.arguments if part.place.kind == "result"]
        store_elements(f, numbers, f.region.results[numbers[0]].shape.elements)
        return
    number = updates[0]
    found = update_of(f.region, number)
    assert found is not None
    operand, source, *places = found.operands
    dims = operand.array.dims
    begin = f.elements.run(starts(f.elements, places, dims, source.array.dims))
    with _over(f, source.array.dims, "i") as index:
        value = f.elements.value(source, index)
        position = [start + at for start, at in zip(begin, index, strict=True)]
        f.store(f.result(number), linearize(position, dims), value)


def _emit_scatter(f: FunctionWriter) -> None:
    scatter = scatter_in(f.region)
    if f.launch.function == "_begin":
        numbers = [part.place.number for part in f.launch.arguments]
        dims = f.region.results[0].shape.dims
        with _over(f, dims, "i") as index:
            for number in numbers:
                value = f.elements.value(scatter.operands[number], index)
                f.store(f.result(number), linearize(index, dims), value)
        return
    with _over(f, scatter.operands[-1].array.dims, "u") as index:
        f.elements.run(update(f, scatter, index))


EMITTERS = {"native-update": _emit_update, "native-scatter": _emit_scatter}
"""What writes the kernels of this family."""

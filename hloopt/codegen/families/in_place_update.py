"""Updates in place."""

from __future__ import annotations

from hloopt.analysis.index import Indices, delinearize, linearize
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.emission import Asking, At
from hloopt.codegen.families import loop
from hloopt.codegen.families.loop import strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.in_place_update import update_of

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    updates = [part.place.number for part in f.launch.arguments if part.role == "update"]
    if not updates:
        loop.emit(f)
        return
    number = updates[0]
    update = update_of(f.region, number)
    assert update is not None
    operand, source, *places = update.operands
    dims, sizes = operand.array.dims, source.array.dims

    def write(index: Indices) -> Asking:
        first = yield from starts(f.elements, places, dims, sizes)
        value = yield At(source, index)
        position = [start + at for start, at in zip(first, index, strict=True)]
        f.store(f.result(number), linearize(position, dims), value)

    with strided(f, source.array.elements) as thread:
        f.elements.run(write(delinearize(thread, sizes)))


EMITTERS = {"in-place-update": _emit}

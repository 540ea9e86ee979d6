"""The loop kernel: the elements of a range of tasks, as a nest of loops."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index
from hloopt.backends.native.codegen.nest import END, tasks, write_nest
from hloopt.backends.native.codegen.nesting import nest_of, value_at
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.types import elements_per_byte
from hloopt.codegen.writer import FunctionWriter

__all__ = ["EMITTERS", "store_elements"]


def _emit(f: FunctionWriter) -> None:
    numbers = [
        argument.place.number for argument in f.launch.arguments if argument.place.kind == "result"
    ]
    store_elements(f, numbers, f.tile["elements"])


def store_elements(f: FunctionWriter, numbers: Sequence[int], each: int) -> None:
    """Compute and store result leaves of as many elements, ``each`` a task."""
    shapes = [f.region.results[number].shape for number in numbers]
    together = max(elements_per_byte(shape.dtype) for shape in shapes)
    if together > 1:
        _store_bytes(f, numbers, each, together)
        return

    def body(position: Index) -> None:
        # Every element is computed before any is written: a result may lie where an operand does.
        values = [value_at(f, f.elements, number, position) for number in numbers]
        for number, value in zip(numbers, values, strict=True):
            f.store(f.result(number), position, value)

    write_nest(f, nest_of(f, numbers), each, body)


def _store_bytes(f: FunctionWriter, numbers: Sequence[int], each: int, together: int) -> None:
    """Results of which several elements share a byte: ``together`` elements at once, the last byte apart."""
    elements = f.region.results[numbers[0]].shape.elements
    whole, rest = divmod(elements, together)

    def run(first: Index, count: int) -> None:
        for number in numbers:
            values = [value_at(f, f.elements, number, first + lane) for lane in range(count)]
            store_run(f, f.result(number), first, values, elements)

    if whole:
        with tasks(f, "byte", each // together, whole, innermost=True) as byte:
            run(byte * together, together)
    if rest:
        with f.elements.when(END * each >= elements):
            run(Index(whole * together), rest)


EMITTERS = {"native-loop": _emit}

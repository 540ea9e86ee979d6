"""The loop kernel: the elements of a range of tasks, one after the other."""

from __future__ import annotations

from hloopt.analysis.index import Symbol
from hloopt.codegen.positions import index_at
from hloopt.codegen.writer import FunctionWriter

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    numbers = [
        argument.place.number for argument in f.launch.arguments if argument.place.kind == "result"
    ]
    elements = f.region.results[numbers[0]].shape.elements
    each = f.tile["elements"]
    kind = f.loads.index_type
    name = f.scope.names.fresh("i")
    last = f"end * {each} < {elements} ? end * {each} : {elements}"
    f.scope.line(f"const {kind} {name}_end = {last};")
    block = f.scope.block(f"for ({kind} {name} = begin * {each}; {name} < {name}_end; ++{name})")
    position = Symbol(name, 0, elements - 1).index
    with f.elements.within(block):
        for number in numbers:
            result = f.region.results[number]
            value = f.elements.value(
                result.instruction, index_at(position, result.shape), result.leaf
            )
            f.store(f.result(number), position, value)


EMITTERS = {"native-loop": _emit}

"""What becomes of each input and result of a plan in the memory of its caller: ``Binding`` of bindings.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from hloopt.backends.native.memory import written_allocations
from hloopt.kernels.plan import Plan

__all__ = [
    "COPY_INPUT",
    "COPY_RESULT",
    "COPY_WEIGHT",
    "INPUT_IN_PLACE",
    "RESULT_IN_PLACE",
    "Binding",
    "bindings",
]

INPUT_IN_PLACE: Final = 0
RESULT_IN_PLACE: Final = 1
COPY_INPUT: Final = 2
COPY_WEIGHT: Final = 3
COPY_RESULT: Final = 4


class Binding(NamedTuple):
    """The fields of ``Binding``: the kind (one of the above), an input or result, an allocation, bytes."""

    kind: int
    number: int
    place: int
    offset: int
    size: int


def bindings(
    plan: Plan, weights: Mapping[int, int] | None = None
) -> tuple[list[Binding], list[int]]:
    """What happens before a run, then what happens after it; and the allocations that need other memory.

    Inputs and results are numbered in flat order without tokens.  ``weights`` has the offset in the data of
    each parameter that is not an input, by its number among all.  What steps write into is copied, into the
    memory of a result where one is left there.
    """
    weights = weights or {}
    numbers = {id(one): at for at, one in enumerate(plan.allocations)}
    written = written_allocations(plan)
    copied = {
        numbers[id(one.allocation)]
        for one in plan.parameters
        if one is not None and one.byte_size and id(one.allocation) in written
    }
    found: list[Binding] = []
    lying: set[int] = set()
    for number, buffer in enumerate(plan.results):
        at = numbers.get(id(buffer.allocation), -1)
        is_whole = buffer.byte_size == buffer.allocation.byte_size
        is_own = buffer.allocation.kind == "result" or at in copied
        if not buffer.byte_size:
            continue
        if is_own and is_whole and at not in lying:
            lying.add(at)
            found.append(Binding(RESULT_IN_PLACE, number, at, 0, 0))
        else:
            found.append(Binding(COPY_RESULT, number, at, buffer.offset, buffer.byte_size))
    apart: list[int] = []
    inputs = 0
    for number, given in enumerate(one for one in plan.parameters if one is not None):
        at, size = numbers.get(id(given.allocation), -1), given.byte_size
        offset = weights.get(number)
        if size and at in copied and at not in lying:
            apart.append(at)
        if size and offset is not None and at in copied:
            found.append(Binding(COPY_WEIGHT, number, at, offset, size))
        elif size and offset is None:
            how = Binding(COPY_INPUT, inputs, at, 0, size)
            found.append(how if at in copied else Binding(INPUT_IN_PLACE, inputs, at, 0, 0))
        inputs += offset is None
    return sorted(found), apart

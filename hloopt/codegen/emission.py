"""What emitters are made of: generators that request elements, their frames, and places of elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hloopt.analysis.index import Index, Indices
from hloopt.analysis.parallel_loop.thread_plan import UNROLLED_FOLD
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr

if TYPE_CHECKING:
    from hloopt.codegen.elements import Elements

__all__ = [
    "Asking",
    "At",
    "Emission",
    "EmissionFrame",
    "Emit",
    "ValuePlace",
    "each",
    "every",
    "framed",
]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class EmissionFrame:
    """A computation that is being written out at one place, with what its parameters stand for.

    A parameter is a value (a scalar) or an instruction of another frame.
    """

    bindings: dict[Instruction, Expr | tuple[EmissionFrame, Instruction]]


@dataclass(frozen=True, slots=True)
class At:
    """The element ``index`` of output ``leaf`` of an instruction; in the requesting frame, if none is given."""

    instruction: Instruction
    index: Indices = ()
    leaf: int = 0
    frame: EmissionFrame | None = None


Emission: TypeAlias = Generator[At, Expr, Expr]
Asking: TypeAlias = Generator[At, Expr, None]
"""Writes statements from the elements that it requests."""
Emit: TypeAlias = "Callable[[Elements, Instruction, Indices, int], Emission]"


class ValuePlace(ABC):
    """Where the elements of a value are kept, so that reading one computes nothing."""

    def holds(self, e: Elements, index: Indices) -> bool:
        """Whether an element is kept; others are computed as those of any value."""
        return True

    @abstractmethod
    def element(self, e: Elements, index: Indices) -> Emission:
        """The value of an element; may request elements of other values instead."""


def each(wanted: Iterable[At]) -> Generator[At, Expr, list[Expr]]:
    """Request several elements, one after the other."""
    names: list[Expr] = []
    for at in wanted:
        name = yield at
        names.append(name)
    return names


def every(
    e: Elements,
    sizes: Sequence[int],
    hint: str,
    one: Callable[[Sequence[Index]], Asking],
    unroll: int = UNROLLED_FOLD,
    around: Sequence[Index] = (),
    frame: EmissionFrame | None = None,
) -> Asking:
    """Do something at every place of a space: written out where ``e.unrolled`` allows it, else by loops.

    ``around`` are indices that do not change from place to place; ``frame`` is that of the requested element.
    Where anything is written out, a pragma unrolls loops over as many places as ``unroll`` says.
    """
    places = prod(sizes)
    if places <= e.unrolled:
        for place in product(*(range(size) for size in sizes)):
            yield from one([Index(at) for at in place])
        return
    with ExitStack() as blocks:
        blocks.enter_context(e.before(around, frame))
        whole = 0 if e.unrolled and places <= unroll else None
        loops = (e.counting(0, size, hint, unroll=whole) for size in sizes)
        yield from one([blocks.enter_context(loop) for loop in loops])


def framed(frame: EmissionFrame, emission: Generator[At, Expr, T]) -> Generator[At, Expr, T]:
    """A generator's requests, made in another frame."""
    answer: Expr | None = None
    while True:
        try:
            at = next(emission) if answer is None else emission.send(answer)
        except StopIteration as finished:
            value: T = finished.value
            return value
        answer = yield at if at.frame is not None else replace(at, frame=frame)

"""Where values are that the threads of a block share, and which thread works on which elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from hloopt.analysis.index import Index, Indices, Symbol, linearize
from hloopt.analysis.parallel_loop import Axes
from hloopt.analysis.parallel_loop.block_stages import MOST_SLOTS, has_followers
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Emission, ValuePlace
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Element, Expr, Select, as_expr
from hloopt.types import DType

__all__ = ["SharedPlace", "Threads"]


@dataclass(frozen=True)
class SharedPlace(ValuePlace):
    """What a work item has of a value, in shared memory.

    memory the array
    kind   of its elements
    dims   the local ones
    axes   of all dimensions
    copy   which of the copies of the value that lie one behind the other: 0, 1, or known at run time
    """

    memory: Array
    kind: DType
    dims: tuple[int, ...]
    axes: Axes
    copy: Index = Index(0)

    def at(self, local: Index) -> Element:
        """The element of a local position."""
        return self.memory[local + self.copy * prod(self.dims)]

    def other(self) -> SharedPlace:
        """The other one of two copies."""
        return replace(self, copy=Index(1) - self.copy)

    def element(self, e: Elements, index: Indices) -> Emission:
        """A copy of the element in a register."""
        yield from ()
        local = tuple(at for at, axis in zip(index, self.axes, strict=True) if axis is None)
        value = self.at(linearize(local, self.dims))
        return e.declare(self.kind, value, self.memory.name)


@dataclass(frozen=True)
class Threads:
    """The threads of a block and how they share work: thread t has elements t, t + count, ..."""

    e: Elements
    thread: Index
    count: int

    def slots(self, elements: int) -> int:
        """How many elements a thread has at most."""
        return -(-elements // self.count)

    def is_unrolled(self, elements: int) -> bool:
        """Whether the elements of a thread are written out one by one, so that registers can hold them."""
        return self.slots(elements) <= MOST_SLOTS

    def each(self, elements: int) -> Iterator[tuple[int, Index, tuple[Expr, ...]]]:
        """For each element of the thread its number and position, and the tests for storing it.

        Statements belong in the block that is current between two steps.
        """
        if not elements:
            return
        if has_followers(elements, self.count):
            last = elements - 1
            is_own = as_expr(self.thread) < elements
            own = Select.of(is_own, self.thread, last)
            yield 0, self.e.symbol(own, "own", 0, last), (is_own,)
        elif self.is_unrolled(elements):
            for slot in range(self.slots(elements)):
                at = self.thread + slot * self.count
                if at.high < elements:
                    yield slot, at, ()
                    continue
                at = self.e.symbol(at, "own", 0, at.high)
                with self.e.when(as_expr(at) < elements):
                    yield slot, Symbol(str(at), 0, elements - 1).index, ()
        else:
            with self.strided(self.thread, elements, self.count) as at:
                yield 0, at, ()

    @contextmanager
    def strided(self, first: Index, elements: int, step: int) -> Iterator[Index]:
        """A loop over ``first``, ``first + step``, ... below ``elements``."""
        e = self.e
        block, counter = e.scope.loop(first, elements, "i", e.loads.index_type, step)
        with e.within(block):
            yield Symbol(counter.name, 0, elements - 1).index

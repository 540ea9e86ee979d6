"""Prefetching what an iteration reads some iterations ahead, so that memory latency overlaps with computing."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from hloopt.analysis.index import Index, Indices, Quotient, Symbol
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Expr, Select, as_expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT, Type

__all__ = ["DISTANCE", "Again", "Ahead", "replaced"]

DISTANCE: Final = 2
"""The prefetch distance in iterations: two of a few hundred cycles each take as long as memory to answer."""

MOST: Final = 8
"""Elements that are read ahead in a loop, each of which takes ``DISTANCE`` registers."""


@dataclass
class Ahead:
    """Reading ahead in one loop.

    loop       its block
    before     lines before it
    head       lines at the beginning of an iteration
    iteration  the variable that counts iterations, in steps of one
    """

    loop: Scope
    before: Scope
    head: Scope
    iteration: Symbol
    _known: dict[At, Expr] = field(default_factory=dict)
    _later: Symbol | None = None

    def element(self, e: Elements, at: At, kind: Type, hint: str) -> Emission:
        """The element of this iteration, read some iterations ago; that of a later one is read now."""
        name = self._known.get(at)
        if name is not None:
            return name
        names = []
        for number in range(DISTANCE):
            first = Index(min(self.iteration.low + number, self.iteration.high))
            with e.within(self.before):
                value = yield self._at(at, first)
            names.append(self.before.variable(kind, f"{hint}_ahead", value))
        if not self._known:
            # Unrolled, the names rotate: no value is moved before it has arrived.
            self.loop.unroll(DISTANCE)
        with e.within(self.head):
            name = self.head.declare(kind, names[0], hint)
            self._known[at] = name
            value = yield self._at(at, self._iteration_later(e).index)
        for target, source in zip(names, [*names[1:], value], strict=True):
            self.head.set(target, source)
        return name

    def is_full(self, at: At) -> bool:
        """Whether all registers for prefetched elements are taken."""
        return at not in self._known and len(self._known) >= MOST

    def _at(self, at: At, iteration: Index) -> At:
        index = tuple(replaced(position, self.iteration.name, iteration) for position in at.index)
        return At(at.instruction, index, at.leaf, at.frame)

    def _iteration_later(self, e: Elements) -> Symbol:
        if self._later is None:
            last = self.iteration.high
            iteration = as_expr(self.iteration.index)
            later = self.head.declare(
                e.loads.index_type,
                Select.of(iteration < last - DISTANCE, iteration + DISTANCE, last),
                "later",
            )
            self._later = Symbol(later.name, self.iteration.low, last)
        return self._later


@dataclass
class Again:
    """Reading in each iteration what never changes but is more than fits registers.

    head  lines at the beginning of an iteration
    """

    head: Scope
    _zero: Symbol | None = None

    def at(self, e: Elements, index: Indices) -> Indices:
        """The index, written so that no compiler moves the read out of the loop."""
        if self._zero is None:
            kind = e.loads.index_type
            zero = self.head.declare(kind, e.uses.call("hidden_zero", type=INT), "zero")
            self._zero = Symbol(zero.name, 0, 0)
        return (*index[:-1], index[-1] + self._zero.index) if index else index


def replaced(index: Index, name: str, value: Index) -> Index:
    """An index with another one in place of a variable."""
    total = Index(index.constant)
    for atom, count in index.terms:
        if isinstance(atom, Symbol):
            inner = value if atom.name == name else atom.index
        else:
            dividend = replaced(atom.dividend, name, value)
            is_quotient = isinstance(atom, Quotient)
            inner = dividend // atom.divisor if is_quotient else dividend % atom.divisor
        total += inner * count
    return total

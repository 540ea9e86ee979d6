"""Sums of exponentials that go along with the maximum which is taken off (``analysis/online_sums.py``).

A thread has the shift g(m) of the maximum that it knows, and the sum so far for it.  Before it knows any, the
shift is that of the least finite number: rescaling leaves the sum at 0, and elements of -inf add nothing to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes

from hloopt.analysis.index import Index, Indices, delinearize
from hloopt.analysis.online_sums import OnlineSum, online_sum
from hloopt.codegen.elements import Elements
from hloopt.codegen.families.folding import ThreadFold, begin, take
from hloopt.codegen.scalars import literal, scalar_op
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Var, ne

__all__ = ["RunningSum"]


@dataclass(frozen=True)
class RunningSum:
    """One such sum of a thread, for the row at ``place``.

    fold   the sum
    shift  the variable of the shift that it is for
    """

    online: OnlineSum
    fold: ThreadFold
    shift: Var
    place: Index

    @staticmethod
    def begin(e: Elements, total: Instruction, place: Index) -> RunningSum:
        """Nothing is known of the row yet."""
        online = online_sum(total)
        assert online is not None, "a phase of online sums"
        shift = e.variable(online.shift.array.dtype, "shift")
        found = RunningSum(online, begin(e, total), shift, place)
        with e.within(e.scope.braces()):
            e.scope.set(shift, found._shift_of(e, _least(online.largest)))
        return found

    def take(self, e: Elements, folds: Sequence[ThreadFold], first: Index, vector: int) -> None:
        """Add neighbouring elements; ``folds``, among which is the maximum, have taken them already."""
        largest = self.online.largest
        (known,) = next(fold for fold in folds if fold.hero is largest).names
        kind = largest.array.dtype
        bounded = scalar_op("maximum", kind, [known, _least(largest)], e.uses)
        shift = self._shift_of(e, e.declare(kind, bounded, "known"))
        with e.when(ne(shift, self.shift)):
            self._scale(e, shift)
            e.scope.set(self.shift, shift)
        power = self.online.total.operands[0]
        values = [
            e.value(power, delinearize(first + lane, power.array.dims)) for lane in range(vector)
        ]
        for value in values:
            take(e, self.fold, [value], holds=True)

    def settle(self, e: Elements) -> None:
        """Let the sum be for the maximum of the whole row, which is known now."""
        self._scale(e, e.value(self.online.shift, _at(self.online.shift, self.place)))

    def _shift_of(self, e: Elements, largest: Expr) -> Expr:
        """The shift where so much is the maximum."""
        e.remember(self.online.largest, _at(self.online.largest, self.place), 0, largest)
        return e.value(self.online.shift, _at(self.online.shift, self.place))

    def _scale(self, e: Elements, shift: Expr) -> None:
        kind, (total,) = self.online.shift.array.dtype, self.fold.names
        power = scalar_op("exponential", kind, [self.shift - shift], e.uses)
        e.scope.set(total, total * e.declare(kind, power, "scale"))


def _at(one: Instruction, place: Index) -> Indices:
    return delinearize(place, one.array.dims)


def _least(one: Instruction) -> Expr:
    kind = one.array.dtype
    limits: Any = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    return literal(float(limits.min), kind)

"""Divergence analysis: which names of a work item's code vary from lane to lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hloopt.kernel_ir.expressions import Array, Expr, Member, Var
from hloopt.kernel_ir.rewriting import mentioned
from hloopt.kernel_ir.statements import (
    Break,
    Declare,
    Do,
    For,
    If,
    Let,
    Set,
    Statement,
    While,
    bodies_of,
    expressions_of,
    walk,
)

__all__ = ["LANES", "Varying", "across", "is_leave", "target_of"]

LANES: Final = "lanes"
"""The memory space of values with an element per lane."""


def across(variable: Var) -> Array:
    """The array of a value with an element per lane, for use outside of the loops over lanes."""
    return Array(variable.name, variable.type, (), LANES)


def target_of(statement: Statement) -> str:
    """The name that a statement declares or sets, that of an array where memory is written; else empty."""
    match statement:
        case Let() | For():
            return statement.var.name
        case Declare():
            return statement.target.name
        case Set():
            target: Expr = statement.target
            while isinstance(target, Member):
                target = target.operand
            return next(mentioned(target)).name
    return ""


def is_leave(statement: Statement) -> bool:
    """Whether it is ``if (test) break;``."""
    return isinstance(statement, If) and statement.body == (Break(),)


class Varying:
    """The varying names of a work item's code; ``seeds`` are the names that have the work item's number."""

    def __init__(self, body: Sequence[Statement], seeds: Iterable[str]) -> None:
        self._seen: dict[int, tuple[Statement, list[str], list[str]]] = {}
        every = list(walk(body))
        self._declared = {target_of(one) for one in every if isinstance(one, Let | Declare)}
        self._changing = {target_of(one) for one in every if isinstance(one, Declare)}
        # Arrays with an element per lane are indexed by lane, whether values differ or not.
        self.differing = {*seeds, *(name for one in every for name in self.gathered(one))}
        while self._grows(body, False):
            pass

    def names(self, statement: Statement) -> list[str]:
        """The names of one lane in a statement itself, with repetitions."""
        return self._names_of(statement)[1]

    def gathered(self, statement: Statement) -> list[str]:
        """The names in a statement itself that are arrays with an element per lane."""
        return self._names_of(statement)[2]

    def every_name(self, body: Sequence[Statement]) -> Iterator[str]:
        """Both, of statements with their blocks."""
        for one in walk(body):
            _, own, gathered = self._names_of(one)
            yield from own
            yield from gathered

    def gathers(self, statement: Statement) -> bool:
        """Whether any part of a statement uses an array with an element per lane."""
        return any(map(self.gathered, walk((statement,))))

    def _names_of(self, statement: Statement) -> tuple[Statement, list[str], list[str]]:
        found = self._seen.get(id(statement))
        if found is None:
            is_set = isinstance(statement, Set)
            own = [name for name in (target_of(statement),) if name and not is_set]
            per_lane: list[str] = []
            for expr in expressions_of(statement):
                for one in mentioned(expr):
                    is_gathered = isinstance(one, Array) and one.space == LANES
                    (per_lane if is_gathered else own).append(one.name)
            found = self._seen[id(statement)] = statement, own, per_lane
        return found

    def is_varying(self, statement: Statement) -> bool:
        """Whether a statement itself, without its blocks, differs from lane to lane."""
        return not self.differing.isdisjoint(self.names(statement))

    def differs(self, statement: Statement) -> bool:
        """Whether any part of a statement does."""
        return any(map(self.is_varying, walk((statement,))))

    def leaves(self, loop: Statement) -> bool:
        """Whether lanes leave a loop at different iterations."""
        return isinstance(loop, While) and any(
            is_leave(one) and self.is_varying(one) for one in loop.body
        )

    def _grows(self, body: Sequence[Statement], chosen: bool) -> bool:
        """Add names assigned from varying ones: whether any was new.  ``chosen``: control flow here varies."""
        grown = False
        for one in body:
            if isinstance(one, Let | Declare | Set | Do):
                grown |= self._takes(one, chosen)
            elif not is_leave(one):
                inside = chosen or self.is_varying(one) or self.leaves(one)
                for block in bodies_of(one):
                    grown |= self._grows(block, inside)
        return grown

    def _takes(self, statement: Let | Declare | Set | Do, chosen: bool) -> bool:
        is_chosen = chosen and isinstance(statement, Set | Do)
        if not (is_chosen or self.is_varying(statement)):
            return False
        changed = {target_of(statement)}
        if isinstance(statement, Do):
            # A call may change its arguments.
            changed = self._changing.intersection(self.names(statement))
        fresh = (changed & self._declared) - self.differing
        self.differing |= fresh
        return bool(fresh)

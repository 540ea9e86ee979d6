"""Which names of a unit's code stand for something else in each lane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloopt.codegen.native.lanes.statements import (
    ACROSS,
    Block,
    Choice,
    Line,
    Statement,
    tokens,
    walk,
)

__all__ = ["Varying"]


class Varying:
    """Answers for the code of a unit; ``seeds`` are the names that have the unit's number."""

    def __init__(self, statements: Sequence[Statement], seeds: Iterable[str]) -> None:
        self.declared = {
            line.declares: line
            for line in walk(statements)
            if isinstance(line, Line) and line.declares
        }
        self.names = set(seeds)
        # What all lanes have is gathered from one place a lane, whether it differs or not.
        self.names |= {
            name[len(ACROSS) + 1 : -1]
            for one in walk(statements)
            for name in tokens(one.text if isinstance(one, Line) else one.header)
            if name.startswith(ACROSS + "(")
        }
        while self._grows(statements, False):
            pass

    def is_varying(self, text: str) -> bool:
        """Whether what a text says differs from lane to lane."""
        return not self.names.isdisjoint(tokens(text))

    def leaves(self, block: Block) -> Line | None:
        """The line by which each lane leaves a loop at another trip; None for other blocks."""
        if not block.header.startswith("while"):
            return None
        for one in block.inside:
            if isinstance(one, Line) and one.leaves and self.is_varying(one.leaves):
                return one
        return None

    def differs(self, statement: Statement) -> bool:
        """Whether any part of a statement does."""
        if isinstance(statement, Line):
            return self.is_varying(statement.text)
        if isinstance(statement, Choice):
            return any(map(self.differs, statement.branches))
        return self.is_varying(statement.header) or any(map(self.differs, statement.inside))

    def _grows(self, statements: Sequence[Statement], chosen: bool) -> bool:
        """Add names that take anything varying; ``chosen``: whether lanes get here depends on them."""
        grown = False
        for statement in statements:
            if isinstance(statement, Choice):
                differs = chosen or any(
                    self.is_varying(branch.header) for branch in statement.branches
                )
                for branch in statement.branches:
                    grown |= self._grows(branch.inside, differs)
            elif isinstance(statement, Block):
                differs = (
                    chosen
                    or self.is_varying(statement.header)
                    or self.leaves(statement) is not None
                )
                grown |= self._grows(statement.inside, differs)
            else:
                grown |= self._takes(statement, chosen)
        return grown

    def _takes(self, line: Line, chosen: bool) -> bool:
        if line.is_plain:
            changed = {line.sets or line.declares}
            differs = self.is_varying(line.text) or (chosen and not line.declares)
        else:
            # Some call: what it is given it may change.
            changed = {name for name in line.names if self._may_change(name)}
            differs = chosen or self.is_varying(line.text)
        if not differs:
            return False
        fresh = {name for name in changed if name in self.declared} - self.names
        self.names |= fresh
        return bool(fresh)

    def _may_change(self, name: str) -> bool:
        line = self.declared.get(name)
        return line is not None and not line.is_fixed

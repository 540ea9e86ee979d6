"""What is known of a name that nothing before its use has."""

from __future__ import annotations

from hloopt.source import Source
from hloopt.text.parts import ComputationOutline, Outline
from hloopt.text.problem import Problem, Undefined, did_you_mean

__all__ = ["ComputationNames"]


class ComputationNames:
    """The names of a whole text; ``first`` is the first computation of each name."""

    def __init__(self, source: Source, text: str, parts: Outline) -> None:
        self.source = source
        self.text = text
        self.parts = parts.parts
        self.lost = parts.lost
        self.first: dict[str, ComputationOutline] = {}
        for part in self.parts:
            self.first.setdefault(part.name, part)
        self.reported: set[tuple[str | None, str]] = set()
        self.homes: dict[str, ComputationOutline] | None = None

    def undefined(self, problem: Undefined, part: ComputationOutline) -> Problem | None:
        """The mistake with what is known of the name; None where it follows from another mistake.

        ``part`` is the computation that is being read.
        """
        name, where = problem.name, problem.where
        if (where, name) in self.reported:
            return None
        self.reported.add((where, name))
        if where is None:
            return self.computation(problem, part)
        if where != part.name:  # a computation in braces
            return problem
        if part.lost:
            return None
        return self.instruction(problem, part)

    def computation(self, problem: Undefined, caller: ComputationOutline) -> Problem | None:
        name, width = problem.name, problem.width
        called = self.first.get(name)
        if called is None:
            if self.lost:
                return None
            message = f"there is no computation {name!r}{did_you_mean(name, self.first)}"
            return Problem(problem.offset, message, width=width)
        if called is caller:
            return Problem(problem.offset, f"computation {name!r} calls itself", width=width)
        if called.start < problem.offset:
            return None
        message = f"computation {name!r} is called before its definition on line "
        message += str(self.source.line(called.start))
        notes = ("a computation precedes those that call it",)
        return Problem(problem.offset, message, width=width, notes=notes)

    def instruction(self, problem: Undefined, part: ComputationOutline) -> Problem | None:
        name, width = problem.name, problem.width
        names = part.names(self.text)
        at = names.get(name)
        if at is not None:
            start = max(offset for offset in names.values() if offset <= problem.offset)
            if at < start:
                return None
            if at == start:
                return Problem(problem.offset, f"{name!r} is an operand of itself", width=width)
            message = f"{name!r} is used before its definition on line {self.source.line(at)}"
            notes = ("an instruction stands after its operands",)
            return Problem(problem.offset, message, width=width, notes=notes)
        message = f"there is no instruction {name!r} in {part.name!r}{did_you_mean(name, names)}"
        return Problem(problem.offset, message, width=width, notes=self.elsewhere(name))

    def elsewhere(self, name: str) -> tuple[str, ...]:
        """Where another computation has an instruction of the name."""
        if self.homes is None:
            self.homes = {}
            for part in self.parts:
                for other in part.names(self.text) if part.name else ():
                    self.homes.setdefault(other, part)
        home = self.homes.get(name)
        if home is None:
            return ()
        line = self.source.line(home.names(self.text)[name])
        return (
            f"that of line {line} belongs to {home.name!r}: each computation has its own names",
        )

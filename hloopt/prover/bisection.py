"""What a bisection found: which stage, pass, rewrite or kernel gives another result, and what shows it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.ir import Instruction
from hloopt.prover.comparing import RunsCompared
from hloopt.prover.executor import Run
from hloopt.prover.first_difference import FirstDifference
from hloopt.runtime.comparison import OutputComparison
from hloopt.text.printer import PrintOptions, print_instruction

__all__ = [
    "Bisection",
    "ChangedInstruction",
    "ChangedSide",
    "Culprit",
    "Examined",
    "NamedComparison",
    "SearchOutcome",
    "different_results",
    "instruction_line",
    "instruction_place",
]

SearchOutcome: TypeAlias = Literal[
    "first",
    "same",
    "equal",
    "within",
    "differs",
    "not run",
    "unreadable",
    "skipped",
    "passes",
    "fails",
]
"""Of something examined, beside what was run before it: the first one; the same module; equal results; results
within what its class allows; other results; what cannot be run; what cannot be read; what was left out.  By
itself: it passes a check, or fails."""

NamedComparison: TypeAlias = tuple[str, OutputComparison]
ChangedSide: TypeAlias = Literal["before", "after"]

_LONGEST: Final = 200
_PLAIN: Final = PrintOptions(metadata=False, layouts=False)


@dataclass(frozen=True)
class Examined:
    """A stage, pass or kernel that was examined.

    note   why, where that is not plain
    place  ``file:line:column`` of what cannot be read or run; empty where there is none
    """

    name: str
    outcome: SearchOutcome
    note: str = ""
    place: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "outcome": self.outcome,
            "note": self.note or None,
            "place": self.place or None,
        }


@dataclass(frozen=True)
class ChangedInstruction:
    """An instruction that a rewrite took away, made or changed; ``side`` is where it is.

    text      the instruction as HLO, cut where it is long
    place     ``file:line`` of the text it was read from; empty without one
    user      the line of the user's program that it comes from; empty where that is not known
    is_first  whether it is known to belong to the rewrite that gives the first value that differs
    """

    side: ChangedSide
    name: str
    text: str
    place: str = ""
    user: str = ""
    is_first: bool = False

    @classmethod
    def of(
        cls, entry: Instruction, side: ChangedSide, *, is_first: bool = False
    ) -> ChangedInstruction:
        """What is to be said of an instruction."""
        computation = entry.computation
        module = computation.module if computation is not None else None
        user = module.user_line(entry.metadata) if module is not None else ""
        place = instruction_place(entry)
        return cls(side, entry.name, instruction_line(entry), place, user, is_first)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "side": self.side,
            "name": self.name,
            "text": self.text,
            "place": self.place or None,
            "user": self.user or None,
            "first": self.is_first,
        }


@dataclass(frozen=True)
class Culprit:
    """What gives other results.

    name          of the pass, rewrite, fusion, kernel or instruction
    where         the stage, or the place in a pipeline, that it belongs to
    reason        why that is an error: what was allowed, and by which rule
    results       the results that differ, the worst element of each
    first         the instruction itself, or the first value that code generation makes wrong
    differences   where values begin to differ, in each of the places that results show
    rewritten     the instructions taken away, made and changed there
    remedy        a flag or option without which, or with which, the result is right; empty where none is known
    remedy_note   whether that was tried, and what came of it
    notes         what else is known: which stages are between that could not be run, that later ones repair it
    """

    name: str
    where: str
    reason: str
    results: tuple[NamedComparison, ...] = ()
    first: tuple[str, ...] = ()
    differences: tuple[FirstDifference, ...] = ()
    rewritten: tuple[ChangedInstruction, ...] = ()
    remedy: str = ""
    remedy_note: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "where": self.where,
            "reason": self.reason,
            "results": [{"result": name, **found.to_json()} for name, found in self.results],
            "first": list(self.first),
            "differences": [found.to_json() for found in self.differences],
            "rewritten": [found.to_json() for found in self.rewritten],
            "remedy": self.remedy or None,
            "remedy_note": self.remedy_note or None,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Bisection(Displayed):
    """A search for what changes the results of a module.

    kind      what was searched: ``stages`` of a dump, by results or by a ``check``; a ``pipeline``,
              ``kernels``, ``code generation``
    module    the module's name; ``file`` where it is from
    inputs    what the inputs are, a text for each trial
    examined  what was examined, in order
    culprits  what was found; none where all results are right
    summary   one sentence: what was found, or that all agree
    notes     what limits the answer
    failed    the exit code of what could not be read or run, where nothing was found; else 0
    """

    kind: str
    module: str
    file: str
    inputs: tuple[str, ...] = ()
    examined: tuple[Examined, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    failed: int = field(default=0)

    @property
    def exit_code(self) -> int:
        """1 where something was found, 0 where all results are right."""
        return 1 if self.culprits else self.failed

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "kind": self.kind,
            "module": self.module,
            "file": self.file,
            "found": bool(self.culprits),
            "summary": self.summary,
            "inputs": list(self.inputs),
            "culprits": [found.to_json() for found in self.culprits],
            "examined": [found.to_json() for found in self.examined],
            "notes": list(self.notes),
        }


def different_results(before: Run, found: RunsCompared) -> tuple[NamedComparison, ...]:
    """The results that are not right, by their names."""
    counts = [len(arrays) for arrays in before.results]
    names = [
        (f"participant {number}, " if len(counts) > 1 else "") + f"result {output}"
        for number, count in enumerate(counts)
        for output in range(count)
    ]
    rows = [*zip(names, found.results, strict=True), *found.written]
    return tuple((name, entry) for name, entry in rows if not entry.passed)


def instruction_line(entry: Instruction) -> str:
    """An instruction as HLO without metadata, cut where it is long."""
    text = print_instruction(entry, _PLAIN)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def instruction_place(entry: Instruction) -> str:
    """``file:line`` of the text an instruction was read from; empty without one."""
    computation = entry.computation
    module = computation.module if computation is not None else None
    if module is None or module.source is None or entry.offset < 0:
        return ""
    return f"{module.source.name}:{module.source.line(entry.offset)}"

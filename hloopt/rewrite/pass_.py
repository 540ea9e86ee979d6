"""What a pass is.

A pass is a frozen dataclass; its fields are its options, and ``name{key=value}`` text round-trips to it.
Its contract: a valid module in, a valid module out, and an honest answer whether anything changed.  The
runner verifies, times, prints and counts, so that a pass does none of that.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.types import Metadata

__all__ = ["Pass", "PassLog", "Remark", "RemarkKind", "remark_about"]

RemarkKind: TypeAlias = Literal["passed", "missed"]


@dataclass(frozen=True, slots=True)
class Remark:
    """A rewrite that was made (``passed``) or nearly made (``missed``), with its reason.

    ``rule`` is the equation or step, ``instruction`` the name of what it is about, as it was called before;
    ``metadata`` and ``offset`` are those of the instruction, by which its lines are found; ``otherwise`` has
    options of the pass (``max_work=99``), each of which by itself keeps the pass from the rewrite.  Of two
    instructions that are joined, ``into`` names the second; ``pair`` is what the pass called both, where these
    are fusions that it has made.  ``lost_us`` is what missing it costs in microseconds, predicted.
    """

    kind: RemarkKind
    rule: str
    instruction: str
    opcode: str
    computation: str
    reason: str
    metadata: Metadata | None = None
    offset: int = -1
    otherwise: tuple[str, ...] = ()
    into: str = ""
    pair: tuple[str, str] = ("", "")
    lost_us: float | None = None


@dataclass
class PassLog:
    """What a pass reports while it runs, and how far it may go.

    hits      how often each rule or step applied
    notes     sentences a user should see (a rule set that does not reach a fixpoint, a limit that stopped
              the work)
    records   whole plans, from which explanations are made
    remarks   each rewrite and near miss of the requested ``kinds``
    fuel      how many more rewrites the pass may make; None is without limit
    advice    what the user wants decided otherwise, for passes that know its kind
    """

    hits: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    records: list[object] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    kinds: frozenset[RemarkKind] = frozenset()
    fuel: int | None = None
    advice: object | None = None
    _logged: set[Remark] = field(default_factory=set, repr=False)

    def allows(self) -> bool:
        """Whether the pass may make another rewrite; every pass checks right before it makes one."""
        return self.fuel is None or self.fuel > 0

    def hit(
        self,
        rule: str,
        instruction: Instruction | None = None,
        reason: str = "",
        count: int = 1,
        *,
        home: str = "",
        otherwise: tuple[str, ...] = (),
    ) -> None:
        """Count an application of a rule, named by its equation, or of a step of the pass.

        ``count`` is 0 for an instruction that belongs to the rewrite counted just before, ``home`` the
        computation of one that has been taken out of it already; ``otherwise`` as in ``Remark``.
        """
        self.hits[rule] += count
        if self.fuel is not None:
            self.fuel -= count
        if instruction is not None and "passed" in self.kinds:
            self.remarks.append(remark_about("passed", rule, instruction, reason, home, otherwise))

    def miss(
        self,
        rule: str,
        instruction: Instruction,
        reason: str,
        *,
        home: str = "",
        lost_us: float | None = None,
    ) -> None:
        """Log a rewrite that was nearly made: all but ``reason`` was as the rule requires.

        A pass may visit an instruction repeatedly; equal remarks are logged once.  ``home`` as in ``hit``,
        ``lost_us`` as in ``Remark``.
        """
        if "missed" in self.kinds:
            remark = remark_about("missed", rule, instruction, reason, home)
            self.add_remark(remark if lost_us is None else replace(remark, lost_us=lost_us))

    def add_remark(self, remark: Remark) -> None:
        """Log a remark, if it is of a requested kind and none of those logged this way is equal."""
        if remark.kind in self.kinds and remark not in self._logged:
            self._logged.add(remark)
            self.remarks.append(remark)

    def note(self, sentence: str) -> None:
        """Log a sentence for the user that is not about a change."""
        self.notes.append(sentence)


def remark_about(
    kind: RemarkKind,
    rule: str,
    instruction: Instruction,
    reason: str,
    home: str = "",
    otherwise: tuple[str, ...] = (),
) -> Remark:
    """A remark with an instruction's name, opcode, lines and computation; ``home`` if it is in none."""
    return Remark(
        kind,
        rule,
        instruction.name,
        instruction.opcode,
        _home(instruction) or home,
        reason,
        instruction.metadata,
        instruction.offset,
        otherwise,
    )


def _home(instruction: Instruction) -> str:
    """The computation of an instruction; of one that has been replaced already, its operands'."""
    around = (instruction, *instruction.operands)
    return next((one.computation.name for one in around if one.computation is not None), "")


class Pass(ABC):
    """Base of all passes.  The first line of the docstring is what ``hloopt passes`` shows.

    ``keeps_schedule`` says that the order of the instructions that stay is untouched; after any other
    pass that changed the module the runner drops ``is_scheduled``.  ``rules`` are the equations of a pass
    that applies rules, each with whether it needs the option ``fast_math``.  ``example`` is the text of a
    module that the pass, with its default options, changes.  ``name`` is how pipelines call it: hloopt's own
    passes are called as their classes unless they say otherwise (``DotMerger`` is ``dot-merger``), others
    have to say it.  ``names_only`` says that what it changes are the
    names of instructions and computations, which the fingerprint of a module does not hold.  ``settles``
    says that a run leaves nothing for another one right after it, so that groups need none to know that.
    """

    name: ClassVar[str]
    keeps_schedule: ClassVar[bool] = False
    names_only: ClassVar[bool] = False
    settles: ClassVar[bool] = False
    rules: ClassVar[Mapping[str, bool]] = MappingProxyType({})
    example: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("hloopt.") and "name" not in vars(cls):
            cls.name = re.sub("(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    @abstractmethod
    def run(self, module: Module, log: PassLog) -> bool:
        """Change the module in place; say whether it changed."""

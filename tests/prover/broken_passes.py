"""Passes that break modules, each in a way of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.rewrite import Pass, PassLog, Rule, RulePass, RuleSet, apply_rules, op, var
from hloopt.types import array

__all__ = [
    "Crashes",
    "DropsTerm",
    "Invalid",
    "Lies",
    "Swaps",
    "Unmeasured",
    "Unsupported",
    "WrongRule",
]


def _sites(module: Module, opcode: str) -> Iterator[Instruction]:
    for entry in list(module.entry):
        if entry.opcode == opcode:
            yield entry


@dataclass(frozen=True)
class DropsTerm(Pass):
    """Swaps the operands of each ``opcode``, which is right, but drops one of the site number ``at``."""

    name: ClassVar[str] = "drops-term"
    at: int = 2
    opcode: str = "add"

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for number, entry in enumerate(_sites(module, self.opcode)):
            if not log.allows():
                break
            log.hit("A + B => B + A" if number != self.at else "A + B => A", entry)
            first, second = entry.operands
            made = first if number == self.at else build.make(entry, self.opcode, (second, first))
            edit.replace_instruction(entry, made)
            changed = True
        return changed


@dataclass(frozen=True)
class Swaps(Pass):
    """Swaps the operands of every ``subtract``: wrong once, right again when it runs once more."""

    name: ClassVar[str] = "swaps"

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for entry in _sites(module, "subtract"):
            if not log.allows():
                break
            log.hit("A - B => B - A", entry)
            edit.replace_instruction(
                entry, build.make(entry, "subtract", (entry.operands[1], entry.operands[0]))
            )
            changed = True
        return changed


@dataclass(frozen=True)
class Crashes(Pass):
    """Makes ``after`` rewrites and raises an error."""

    name: ClassVar[str] = "crashes"
    after: int = 2

    def run(self, module: Module, log: PassLog) -> bool:
        for number, entry in enumerate(_sites(module, "add")):
            if not log.allows():
                return number > 0
            if number == self.after:
                raise KeyError(entry.name)
            log.hit("A + B => B + A", entry)
            edit.replace_instruction(entry, build.make(entry, "add", entry.operands[::-1]))
        return True


@dataclass(frozen=True)
class Invalid(Pass):
    """Gives the first negation the shape of something else."""

    name: ClassVar[str] = "invalid"

    def run(self, module: Module, log: PassLog) -> bool:
        for entry in _sites(module, "negate"):
            if not log.allows():
                return False
            log.hit("-A => A[0]", entry)
            edit.set_shape(entry, array("f32", (3,)))
            return True
        return False


@dataclass(frozen=True)
class Unmeasured(Pass):
    """Drops a term without asking for fuel."""

    name: ClassVar[str] = "unmeasured"

    def run(self, module: Module, log: PassLog) -> bool:
        for entry in _sites(module, "add"):
            edit.replace_instruction(entry, entry.operands[0])
            return True
        return False


@dataclass(frozen=True)
class Lies(Pass):
    """Drops a term and says that nothing changed."""

    name: ClassVar[str] = "lies"

    def run(self, module: Module, log: PassLog) -> bool:
        Unmeasured().run(module, log)
        return False


@dataclass(frozen=True)
class Unsupported(Pass):
    """Puts a custom call that nothing can run in the place of negations, or takes it away."""

    name: ClassVar[str] = "unsupported"
    away: bool = False

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for entry in _sites(module, "custom-call" if self.away else "negate"):
            if not log.allows():
                break
            log.hit("to a call" if not self.away else "from a call", entry)
            attributes: dict[str, Any] = {} if self.away else {"custom_call_target": "nobody"}
            made = build.make(
                entry,
                "negate" if self.away else "custom-call",
                entry.operands,
                attributes,
                shape=entry.shape,
            )
            edit.replace_instruction(entry, made)
            changed = True
        return changed


_A, _B = var("A"), var("B")


@dataclass(frozen=True)
class WrongRule(RulePass):
    """A rule that is right beside one that is not."""

    name: ClassVar[str] = "wrong-rule"
    rule_set: ClassVar[RuleSet] = RuleSet(
        (
            Rule("-(-A) => A", op("negate", op("negate", _A)), _A),
            Rule("|A - B| => A - B", op("abs", op("subtract", _A, _B)), op("subtract", _A, _B)),
        )
    )
    disable: tuple[str, ...] = ()

    def run(self, module: Module, log: PassLog) -> bool:
        return apply_rules(module.entry, self.rule_set.without(self.disable, True), log)

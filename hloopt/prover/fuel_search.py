"""Which rewrite of a pass makes a module bad: the pass runs over copies of it with more and with less fuel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError
from hloopt.ir import Instruction, Module
from hloopt.ir.build import no_collection
from hloopt.prover.bisection import ChangedInstruction
from hloopt.prover.checks import CheckedModule, ModuleCheck
from hloopt.rewrite import Pass, PassLog
from hloopt.text.printer import print_instruction

__all__ = ["FoundRewrite", "RewriteSearch", "attempted", "error_text", "narrowed"]

_MOST_CHANGED: Final = 8
"""Instructions that are kept of each side of a rewrite."""
_MOST_REWRITES: Final = 1 << 20
"""Rewrites up to which a pass that fails is given fuel."""


Side: TypeAlias = Literal["before", "after"]
_Printed: TypeAlias = dict[tuple[str, str], tuple[Instruction, str]]


def narrowed(good: int, bad: int, ask: Callable[[int], CheckedModule]) -> tuple[int, int]:
    """Two numbers from ``good`` to ``bad``, the first good and the second bad, and none told between them.

    Without anything skipped they are neighbours.  Asks about as many numbers as halving needs, and more where
    some are skipped.
    """
    skipped: set[int] = set()
    while True:
        middle = (good + bad) // 2
        order = chain(range(max(middle, good + 1), bad), range(middle - 1, good, -1))
        number = next((one for one in order if one not in skipped), None)
        if number is None:
            return good, bad
        outcome = ask(number).outcome
        if outcome == "good":
            good = number
        elif outcome == "bad":
            bad = number
        else:
            skipped.add(number)


def error_text(error: Exception) -> str:
    """What an error of a pass says, and where it was raised where it was not meant for users."""
    if isinstance(error, HlooptError):
        return error.message
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return f"{type(error).__name__}: {error}"
    file = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{type(error).__name__}: {error} ({file}:{trace.tb_lineno})"


def attempted(change: Callable[[], object], module: Module, check: ModuleCheck) -> CheckedModule:
    """What a module is after a change that passes make to it; bad where they fail."""
    try:
        change()
    except Exception as error:  # noqa: BLE001 - what passes raise is what is looked for
        return CheckedModule("bad", error_text(error))
    return check(module)


@dataclass(frozen=True)
class FoundRewrite:
    """The rewrite, ``number`` of those of its run, with which the module is bad: ``found`` says how.

    unknown      how many rewrites right before it could not be checked
    rule         its equation or step, ``instruction`` what it is about; empty where the pass does not say
    otherwise    options of the pass that keep it from the rewrite
    changed      the instructions that it took away, made and changed; ``hidden`` counts those left out
    modules      the module with one rewrite less, and with it
    """

    number: int
    found: CheckedModule
    unknown: int = 0
    rule: str = ""
    instruction: str = ""
    otherwise: tuple[str, ...] = ()
    changed: tuple[ChangedInstruction, ...] = ()
    hidden: int = 0
    modules: tuple[Module, Module] | None = None


@dataclass
class RewriteSearch:
    """A search over the rewrites of one run of a pass; ``before`` makes the module that the run was given.

    That is made anew each time: a copy may have its computations, and so its rewrites, in another order.
    ``advice`` is what the pass gets with its log; ``tell`` is called with the fuel that is tried.
    """

    before: Callable[[], Module]
    instance: Pass
    check: ModuleCheck
    advice: object | None
    tell: Callable[[int], None]
    answers: dict[int, CheckedModule] = field(default_factory=dict)

    def run(self, made: int | None, *, failed: bool = False) -> FoundRewrite | str:
        """The rewrite; or why it is not known.

        ``made`` is how many rewrites the run made, None where it ``failed`` before it could say.
        """
        if self.ask(0).outcome != "good":
            what = "fails" if failed else "changes the module"
            return (
                f"the pass {what} without fuel, too (log.allows() comes right before each rewrite)"
            )
        most = made or 1
        while made is None and most < _MOST_REWRITES and self.ask(most).outcome != "bad":
            most *= 2
        if self.ask(most).outcome != "bad":
            return "run by itself with as much fuel, the pass does no harm"
        good, number = narrowed(0, most, self.ask)
        return self._described(good, number)

    def ask(self, fuel: int) -> CheckedModule:
        """What the module is after so many rewrites."""
        if fuel not in self.answers:
            self.tell(fuel)
            self.answers[fuel] = self._fuelled(fuel)[2]
        return self.answers[fuel]

    def _fuelled(self, fuel: int) -> tuple[Module, PassLog, CheckedModule]:
        """The pass over the module with so much fuel."""
        module, kinds = self.before(), frozenset[Any](("passed",))
        log = PassLog(kinds=kinds, fuel=fuel, advice=self.advice)

        def change() -> None:
            with no_collection():
                changed = self.instance.run(module, log)
            if changed and not self.instance.keeps_schedule:
                module.attributes.pop("is_scheduled", None)

        return module, log, attempted(change, module, self.check)

    def _described(self, good: int, bad: int) -> FoundRewrite:
        """What was rewritten after ``good`` rewrites, up to ``bad``."""
        old, less, _ = self._fuelled(good)
        new, more, found = self._fuelled(bad)
        rules = list(more.hits - less.hits)
        rewrite = FoundRewrite(bad, found, bad - good - 1, rules[0] if rules else "")
        if remarks := more.remarks[len(less.remarks) :]:
            one = remarks[0]
            rewrite = replace(
                rewrite, rule=one.rule, instruction=one.instruction, otherwise=one.otherwise
            )
        changed, hidden = _changed(old, new, rewrite.instruction)
        return replace(rewrite, changed=changed, hidden=hidden, modules=(old, new))


def _changed(
    before: Module, after: Module, first: str
) -> tuple[tuple[ChangedInstruction, ...], int]:
    """What one module has and the other has not, ``first`` before all and what is changed after all.

    Instructions are matched by name, which a pass keeps for what it leaves alone.  The second is how many
    are left out.
    """
    old, new = _printed(before), _printed(after)
    found: list[ChangedInstruction] = []
    hidden = 0
    sides: tuple[tuple[Side, _Printed, _Printed], ...] = (("before", old, new), ("after", new, old))
    for side, own, other in sides:
        keys = [key for key in own if key not in other or other[key][1] != own[key][1]]
        ranked = sorted((key[1] != first, key in other, key) for key in keys)
        kept = [key for *_, key in ranked[:_MOST_CHANGED]]
        found += [ChangedInstruction.of(own[key][0], side) for key in kept]
        hidden += len(keys) - len(kept)
    return tuple(found), hidden


def _printed(module: Module) -> _Printed:
    """Each instruction with its text, by its computation's name and its own."""
    return {
        (computation.name, entry.name): (entry, print_instruction(entry))
        for computation in module
        for entry in computation
    }

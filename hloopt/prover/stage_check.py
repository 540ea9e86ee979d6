"""Which stage of a dump a command no longer accepts: a search by halves, as ``git bisect run`` does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.prover.bisection import Bisection, Culprit, Examined
from hloopt.prover.checks import OUTCOMES, CheckedModule, CommandCheck
from hloopt.prover.dumped_stages import DumpStage, read_stage
from hloopt.prover.fuel_search import narrowed

__all__ = ["StageCheck"]


@dataclass
class StageCheck:
    """A search over the stages of one module of a dump, which come in the order of compilation.

    name    the module, as the dump calls it; ``folder`` is the dump
    status  what the search is at; another thread may read it
    """

    name: str
    folder: str
    stages: Sequence[DumpStage]
    check: CommandCheck
    status: str = ""
    answers: dict[int, CheckedModule] = field(default_factory=dict)

    def run(self) -> Bisection:
        """Ask about the first stage, the last, and as many between as it takes.

        Raises ``UsageError`` where there are fewer than two, or the first fails already; what reading a stage
        raises.
        """
        if len(self.stages) < 2:
            raise UsageError(f"{self.name}: it has one stage in this dump, and bisecting needs two")
        first = self._ask(0)
        if first.outcome != "good":
            label = self.stages[0].label
            raise UsageError(
                f"{self.name}: the first stage ({label}) fails already: {first.reason}"
            )
        last = len(self.stages) - 1
        while last and self._ask(last).outcome == "skipped":
            last -= 1
        if self.answers[last].outcome == "good":
            return self._record((), f"the last stage ({self.stages[last].label}) passes the check")
        good, bad = narrowed(0, last, self._ask)
        stage = self.stages[bad]
        unknown = [one.label for one in self.stages[good + 1 : bad]]
        notes = [f"{label} is between, and could not be checked" for label in unknown]
        notes += self._again(good, bad)
        notes.append(f"hloopt diff {self.stages[good].file} {stage.file} shows what was rewritten")
        name = stage.pass_name or stage.label
        culprit = Culprit(name, stage.label, self.answers[bad].reason, notes=tuple(notes))
        summary = f"{name} is the first after which the check fails: stage {stage.label}"
        return self._record((culprit,), summary)

    def _record(self, culprits: tuple[Culprit, ...], summary: str) -> Bisection:
        examined = tuple(
            Examined(self.stages[number].label, OUTCOMES[found.outcome], found.reason)
            for number, found in sorted(self.answers.items())
        )
        return Bisection("check", self.name, self.folder, (), examined, culprits, summary)

    def _ask(self, number: int) -> CheckedModule:
        if number not in self.answers:
            stage = self.stages[number]
            self.status = f"check of {stage.label}"
            self.answers[number] = self.check(read_stage(stage))
        return self.answers[number]

    def _again(self, good: int, bad: int) -> list[str]:
        """Whether the command says the same of both stages again."""
        for number, wanted in ((good, "good"), (bad, "bad")):
            text = read_stage(self.stages[number]).to_text()
            if self.check.ask(text, self.name).outcome != wanted:
                return [
                    f"the check is not steady: {self.stages[number].label} was {wanted}, and is not now"
                ]
        return []

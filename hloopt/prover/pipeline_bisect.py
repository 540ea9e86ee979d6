"""Which run of a pass makes a module wrong, and which of its rewrites: a search over a pipeline.

Results are compared after every run that changed the module, since a later pass may hide what an earlier one
did; a command is asked by halves, as it may take long.  The rewrite is found by fuel: the pass runs again and
again over the module as it was before, each time with leave for another number of rewrites.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from shlex import quote
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.prover.bisection import Bisection, Culprit, Examined, SearchOutcome
from hloopt.prover.checks import (
    OUTCOMES,
    CheckedModule,
    CommandCheck,
    ModuleCheck,
    ResultCheck,
)
from hloopt.prover.explained import Explained
from hloopt.prover.fuel_search import (
    FoundRewrite,
    RewriteSearch,
    attempted,
    error_text,
    narrowed,
)
from hloopt.rewrite import Controls, Pass, Pipeline, Watcher
from hloopt.rewrite.entries import select
from hloopt.rewrite.outcome import PassRun
from hloopt.rewrite.spec import pass_text

__all__ = ["PipelineSearch"]


@dataclass(frozen=True)
class _Stage:
    """The module after a run: ``number`` counts runs, ``failure`` is why there is no module.

    ``earlier`` are the rewrites that the pass made in its runs before this one, ``made`` those of this one.
    """

    number: int
    instance: Pass
    title: str
    earlier: int
    made: int | None
    failure: str = ""


class _Recorder(Watcher):
    """Remembers the runs that changed something, and the one that was entered last."""

    def __init__(self, after: Callable[[_Stage, Module], None] | None) -> None:
        self.stages: list[_Stage] = []
        self.entered: tuple[int, Pass] | None = None
        self._after = after
        self._hits: dict[str, int] = {}

    def before(self, number: int, instance: Pass, module: Module) -> None:
        self.entered = number, instance

    def after(self, run: PassRun, module: Module) -> None:
        name, made = run.instance.name, run.hits.total()
        if run.changed:
            stage = _Stage(run.number, run.instance, run.title, self._hits.get(name, 0), made)
            self.stages.append(stage)
            if self._after is not None:
                self._after(stage, module)
        self._hits[name] = self._hits.get(name, 0) + made

    def failed(self, error: Exception) -> None:
        """The last run raised an error."""
        assert self.entered is not None
        number, instance = self.entered
        title = f"run {number}: {pass_text(instance)}"
        earlier = self._hits.get(instance.name, 0)
        self.stages.append(_Stage(number, instance, title, earlier, None, error_text(error)))


class _FoundError(Exception):
    """Ends a run of the pipeline: the module is wrong."""


@dataclass
class PipelineSearch:
    """A search over the runs of a pipeline on a module, which stays as it is.

    check     what is asked of the module after a run; that of the given one has to be good
    controls  fuel, advice and the last run, as the pipeline would be run
    options   the command line's options that select the pipeline, for messages
    stage     what the search is at; another thread may read it
    file      what messages call the module's file
    """

    module: Module
    pipeline: Pipeline
    check: ModuleCheck
    controls: Controls = field(default_factory=Controls)
    options: str = ""
    stage: str = ""
    file: str = "FILE"
    examined: dict[int, Examined] = field(default_factory=dict)

    @property
    def asks_command(self) -> bool:
        """Whether a command of the user's decides."""
        return isinstance(self.check, CommandCheck)

    def run(self, file: str, inputs: tuple[str, ...] = ()) -> Bisection:
        """Search; ``file`` and ``inputs`` are for the record.

        Raises ``UsageError`` where the given module itself is bad, and for a pipeline that cannot be.
        """
        self.stage, self.file = "the module as given", quote(file)
        first = self.check(self.module)
        if first.outcome != "good":
            raise UsageError(f"{file}: the module as given fails already: {first.reason}")
        good, bad, found, count = self._by_command() if self.asks_command else self._by_results()
        examined = tuple(one for _, one in sorted(self.examined.items()))
        record = Bisection("pipeline", self.module.name, file, inputs, examined)
        if bad is None:
            verdict = "passes the check" if self.asks_command else "gives the same results"
            after = f"after each of the {count} runs of hloopt's passes that changed it"
            after = "after the only run of hloopt's passes that changed it" if count == 1 else after
            if not count:
                return replace(record, summary="no pass changed the module: nothing to search")
            after = "at the end" if self.asks_command else after
            return replace(record, summary=f"the module {verdict} {after}: nothing was found")
        culprit = self._culprit(good, bad, found)
        return replace(
            record,
            culprits=(culprit,),
            summary=f"{bad.title} is where it goes wrong: {culprit.reason}",
        )

    # ---- which run ----------------------------------------------------------------------------------

    def _by_results(self) -> tuple[list[_Stage], _Stage | None, CheckedModule, int]:
        """Check after each run; the stages before the bad one, good or not to be checked, and that."""
        before: list[_Stage] = []
        bad: list[tuple[_Stage, CheckedModule]] = []

        def look(stage: _Stage, module: Module) -> None:
            self.stage = f"results after {stage.title}"
            found = self.check(module)
            self._note(stage, found)
            if found.outcome == "bad":
                bad.append((stage, found))
                raise _FoundError
            if found.outcome == "good":
                before.clear()
            before.append(stage)

        recorder = self._rehearsed(look)
        if bad:
            return before, *bad[0], len(recorder.stages)
        last = recorder.stages[-1] if recorder.stages else None
        if last is not None and last.failure:
            found = CheckedModule("bad", last.failure)
            self._note(last, found)
            return before, last, found, len(recorder.stages)
        return before, None, CheckedModule(), len(recorder.stages)

    def _by_command(self) -> tuple[list[_Stage], _Stage | None, CheckedModule, int]:
        """Ask by halves, once the last run is known to be bad."""
        stages = self._rehearsed(None).stages
        answers: dict[int, CheckedModule] = {0: CheckedModule()}

        def ask(number: int) -> CheckedModule:
            stage = stages[number - 1]
            self.stage = f"check after {stage.title}"
            answers[number] = self._asked(stage)
            self._note(stage, answers[number])
            return answers[number]

        last = len(stages)
        while last and ask(last).outcome == "skipped":
            last -= 1
        if answers[last].outcome == "good":
            return [], None, CheckedModule(), len(stages)
        good, number = narrowed(0, last, ask)
        between = stages[max(good - 1, 0) : number - 1] if good else stages[: number - 1]
        return between, stages[number - 1], answers[number], len(stages)

    def _asked(self, stage: _Stage) -> CheckedModule:
        if stage.failure:
            return CheckedModule("bad", stage.failure)
        return self.check(self._module_after(stage.number))

    def _rehearsed(self, look: Callable[[_Stage, Module], None] | None) -> _Recorder:
        """Run the pipeline; ``look`` sees the module after each run that changed it."""
        recorder = _Recorder(look)
        self.stage = "running the passes"
        # Who asks a command has a question of their own: a module that is not valid is none of it.
        controls = replace(self.controls, verify_each=not self.asks_command)
        try:
            self.pipeline.run(clone_module(self.module), controls=controls, watchers=[recorder])
        except _FoundError:
            pass
        except Exception as error:
            if recorder.entered is None:
                raise
            recorder.failed(error)
        return recorder

    def _module_after(self, number: int) -> Module:
        """The module after so many runs."""
        module = clone_module(self.module)
        self.pipeline.run(module, controls=replace(self.controls, stop_after=number))
        return module

    def _note(self, stage: _Stage, found: CheckedModule) -> None:
        outcome: SearchOutcome = OUTCOMES[found.outcome]
        self.examined[stage.number] = Examined(stage.title, outcome, found.reason)

    # ---- which rewrite ------------------------------------------------------------------------------

    def _culprit(self, before: list[_Stage], bad: _Stage, found: CheckedModule) -> Culprit:
        notes: list[str] = []
        good = [stage.number for stage in before if not self._is_skipped(stage)]
        unknown = [stage.title for stage in before if self._is_skipped(stage)]
        name, where, rewrite = pass_text(bad.instance), bad.title, None
        if unknown:
            notes.append(
                f"could not be checked after {'; '.join(unknown)}: one of those may have done it"
            )
        else:
            rewrite = self._rewrite(bad, notes)
        if rewrite is not None:
            found = rewrite.found
            made = f" of {bad.made}" if bad.made else ""
            where += f", rewrite {rewrite.number}{made}"
            if rewrite.unknown:
                notes.append(
                    f"the {rewrite.unknown} rewrites before it could not be checked: it may be one of those"
                )
            if rewrite.rule:
                name = f"{bad.instance.name}: {rewrite.rule}"
            if rewrite.instruction:
                name += f" on %{rewrite.instruction}"
            if rewrite.hidden:
                notes.append(f"{rewrite.hidden} more instructions are other than before")
            if rewrite.otherwise:
                notes.append(f"not done with any of {', '.join(rewrite.otherwise)}")
            fuel, given = bad.earlier + rewrite.number, self.options and f" {self.options}"
            notes.append(
                f"to see it: hloopt optimize {self.file}{given} --stop-after {bad.number} "
                f"--fuel {bad.instance.name}={fuel}; with {fuel - rewrite.unknown - 1} it is right"
            )
        notes += self._aftermath(bad, good[0] if good else 0)
        shown = self._explained(bad, rewrite)
        notes += filter(None, (shown.note,))
        remedy, remedy_note = self._remedy(bad.instance, rewrite.rule if rewrite else "")
        return Culprit(
            name,
            where,
            found.reason,
            found.results,
            differences=shown.differences,
            rewritten=rewrite.changed if rewrite else (),
            remedy=remedy,
            remedy_note=remedy_note,
            notes=tuple(notes),
        )

    def _explained(self, bad: _Stage, rewrite: FoundRewrite | None) -> Explained:
        """Where results begin to differ, with the rewrite; with the whole run where it is not known."""
        if not isinstance(self.check, ResultCheck) or bad.failure:
            return Explained()
        self.stage = "the first value that differs"
        modules = rewrite.modules if rewrite is not None else None
        if modules is None:
            modules = (self._module_after(bad.number - 1), self._module_after(bad.number))
        return self.check.explained(*modules)

    def _is_skipped(self, stage: _Stage) -> bool:
        return self.examined[stage.number].outcome == "skipped"

    def _rewrite(self, bad: _Stage, notes: list[str]) -> FoundRewrite | None:
        """The rewrite of a run that makes the module bad, or None, with a note that says why not."""

        def tell(fuel: int) -> None:
            self.stage = f"{fuel} rewrites of {bad.title}"

        def before() -> Module:
            return self._module_after(bad.number - 1)

        search = RewriteSearch(before, bad.instance, self.check, self.controls.advice, tell)
        found = search.run(bad.made, failed=bool(bad.failure))
        if isinstance(found, str):
            notes.append(f"which rewrite of it is not known: {found}")
            return None
        return found

    # ---- what else is known -------------------------------------------------------------------------

    def _aftermath(self, bad: _Stage, good: int) -> list[str]:
        """Whether the runs after the bad one hide it."""
        if self.asks_command:
            return self._again(bad, good)
        self.stage = "the module after all passes"
        if bad.failure or self._tried(self.pipeline).outcome != "good":
            return []
        return ["after the whole pipeline the results are right again: a later run hides it"]

    def _again(self, bad: _Stage, good: int) -> list[str]:
        """Whether the command says the same of the same two modules again."""
        assert isinstance(self.check, CommandCheck)
        self.stage = "the check once more"
        for number, wanted in ((good, "good"), (bad.number, "bad")):
            if number == bad.number and bad.failure:
                continue
            text = self._module_after(number).to_text()
            if self.check.ask(text, self.module.name).outcome != wanted:
                where = f"after run {number}" if number else "as given"
                return [
                    f"the check is not steady: {self.module.name} {where} was {wanted}, and is not now"
                ]
        return []

    def _remedy(self, instance: Pass, rule: str) -> tuple[str, str]:
        """The option that leaves out the rule or the pass, and what came of trying it."""
        ways = []
        if rule in type(instance).rules and hasattr(instance, "disable"):
            ways.append((f"--disable '{rule}'", rule))
        ways.append((f"--disable {instance.name}", ""))
        for way, off in ways:
            self.stage = f"the pipeline with {way}"
            found = self._tried(self._without(instance.name, off))
            if found.outcome == "good":
                verdict = "passes the check" if self.asks_command else "gives the right results"
                return way, f"tried: the module {verdict} then"
        return ways[0][0], f"tried: that does not suffice: {found.reason}"

    def _without(self, name: str, rule: str) -> Pipeline:
        def keep(instance: Pass) -> Pass | None:
            if rule and rule in type(instance).rules and hasattr(instance, "disable"):
                off: Any = (*instance.disable, rule)
                return replace(instance, disable=off)  # type: ignore[type-var]
            return None if instance.name == name and not rule else instance

        return Pipeline(select(self.pipeline.entries, keep))

    def _tried(self, pipeline: Pipeline) -> CheckedModule:
        """What a pipeline gives on the whole."""
        module = clone_module(self.module)
        names = {instance.name for instance in pipeline.passes()}
        fuel = {name: amount for name, amount in self.controls.fuel.items() if name in names}
        controls = replace(self.controls, fuel=fuel)
        return attempted(lambda: pipeline.run(module, controls=controls), module, self.check)

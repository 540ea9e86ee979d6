"""The pipeline runner: order, fixed points, hooks, verification, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from hloopt.errors import VerifyError
from hloopt.ir import Computation, Module, build, edit
from hloopt.rewrite import Fix, Pass, PassLog, PassRun, Pipeline, Watcher
from hloopt.types import array

F32 = array("f32", (2,))


def make_module(negations: int = 3) -> Module:
    """``negate`` so many times over a parameter."""
    module = Module("m")
    entry = edit.add_computation(module, Computation("entry"))
    module.entry = entry
    last = build.make(entry, "parameter", (), {"parameter_number": 0}, shape=F32, name="x")
    for _ in range(negations):
        last = build.make(entry, "negate", (last,), shape=F32)
    entry.root = last
    module.attributes["is_scheduled"] = True
    return module


@dataclass(frozen=True)
class DropOne(Pass):
    """Drop the last negation, one a run."""

    name: ClassVar[str] = "drop-one"

    least: int = 0

    def run(self, module: Module, log: PassLog) -> bool:
        root = module.entry.root
        if len(module.entry) <= self.least + 1:
            return False
        edit.set_root(module.entry, root.operands[0])
        edit.remove(root)
        log.hit("drop")
        return True


@dataclass(frozen=True)
class AddOne(Pass):
    """Add a negation, always."""

    name: ClassVar[str] = "add-one"

    def run(self, module: Module, log: PassLog) -> bool:
        new = build.make(module.entry, "negate", (module.entry.root,), shape=F32)
        edit.set_root(module.entry, new)
        return True


@dataclass(frozen=True)
class Nothing(Pass):
    """Change nothing."""

    name: ClassVar[str] = "nothing"

    def run(self, module: Module, log: PassLog) -> bool:
        log.note("saw it")
        return False


@dataclass(frozen=True)
class Liar(Pass):
    """Say the opposite of what happened."""

    name: ClassVar[str] = "liar"

    changes: bool = True

    def run(self, module: Module, log: PassLog) -> bool:
        if self.changes:
            AddOne().run(module, log)
        return not self.changes


@dataclass(frozen=True)
class Breaker(Pass):
    """Give the root a shape its operand does not have."""

    name: ClassVar[str] = "breaker"

    def run(self, module: Module, log: PassLog) -> bool:
        edit.set_shape(module.entry.root, array("f32", (7,)))
        return True


@dataclass(frozen=True)
class KeepsSchedule(DropOne):
    """Like drop-one, and the order of the rest stays."""

    name: ClassVar[str] = "keeps-schedule"
    keeps_schedule: ClassVar[bool] = True


@dataclass(frozen=True)
class Renames(Pass):
    """Give the root a name; or, against what it says of itself, another shape."""

    name: ClassVar[str] = "renames"
    names_only: ClassVar[bool] = True

    honest: bool = True

    def run(self, module: Module, log: PassLog) -> bool:
        if self.honest:
            edit.rename(module.entry.root, "other")
        else:
            edit.set_shape(module.entry.root, array("f32", (7,)))
        return True


def test_a_pass_may_change_names_alone() -> None:
    """They are not in the fingerprint; a pass that says so must not change anything else."""
    report = Pipeline((Renames(),)).run(make_module(), verify_each=True)
    assert report.changed
    with pytest.raises(VerifyError, match="fingerprint did change"):
        Pipeline((Renames(honest=False),)).run(make_module(), verify_each=True)


@dataclass(frozen=True)
class DropAll(Pass):
    """Remove everything but the parameter."""

    name: ClassVar[str] = "drop-all"
    settles: ClassVar[bool] = True

    def run(self, module: Module, log: PassLog) -> bool:
        return bool([DropOne().run(module, log) for _ in range(module.instruction_count() - 1)])


def test_what_settles_is_not_run_to_see_that_it_has() -> None:
    """A group ends with the other passes that follow it; after a change by one of them it runs again."""
    report = Pipeline((Fix((DropAll(), Nothing(), Nothing())),)).run(make_module(3))
    assert [run.instance.name for run in report.runs] == ["drop-all", "nothing", "nothing"]
    assert report.groups[0].converged
    report = Pipeline((Fix((DropAll(), DropOne())),)).run(make_module(3))
    assert [run.instance.name for run in report.runs] == ["drop-all", "drop-one"]
    report = Pipeline((Fix((DropOne(), DropAll())),)).run(make_module(3))
    assert [run.instance.name for run in report.runs] == ["drop-one", "drop-all", "drop-one"]


def test_a_group_runs_until_nothing_changes() -> None:
    """fix(...) repeats its passes; a pass that saw the final module is not run again."""
    module = make_module(3)
    report = Pipeline((Fix((DropOne(), Nothing())),)).run(module)
    assert module.instruction_count() == 1
    assert [run.instance.name for run in report.runs] == ["drop-one", "nothing"] * 3 + ["drop-one"]
    assert [run.round for run in report.runs] == [1, 1, 2, 2, 3, 3, 4]
    (group,) = report.groups
    assert group.converged
    assert group.rounds == 4
    assert (report.instructions_before, report.instructions_after) == (4, 1)


def test_a_group_that_does_not_converge_says_so() -> None:
    """After the limit the runner stops and names the last pass that changed anything."""
    report = Pipeline((Fix((AddOne(), Nothing()), limit=4),)).run(make_module())
    assert len(report.runs) == 8
    assert report.notes[0] == (
        "fix{limit=4}(add-one,nothing): not converged after 4 rounds, last change by add-one"
    )


def test_a_long_group_is_told_in_short() -> None:
    """A message has to be found in it."""
    report = Pipeline((Fix((AddOne(), *(Nothing(),) * 40), limit=2),)).run(make_module())
    assert report.notes[0] == (
        "fix{limit=2}(add-one,nothing,nothing,nothing,nothi...g,nothing,nothing,nothing,"
        "nothing,nothing,nothing): not converged after 2 rounds, last change by add-one"
    )


def test_a_group_inside_a_group_counts_as_one_entry() -> None:
    """The outer group goes on while the inner one changed anything."""
    module = make_module(2)
    report = Pipeline((Fix((Fix((DropOne(),)), Nothing())),)).run(module)
    assert module.instruction_count() == 1
    assert all(group.converged for group in report.groups)
    assert report.changed


def test_watchers_see_every_pass() -> None:
    """A watcher is told before a pass and, with the run's facts, after it."""
    seen: list[str] = []

    class Notes(Watcher):
        def begin(self, module: Module) -> None:
            seen.append("begin")

        def before(self, number: int, instance: Pass, module: Module) -> None:
            seen.append(f"before {number} {instance.name}")

        def after(self, run: PassRun, module: Module) -> None:
            seen.append(f"after {run.number} {run.instance.name} {run.changed} {run.instructions}")

        def end(self, module: Module) -> None:
            seen.append("end")

    Pipeline((DropOne(), Nothing())).run(make_module(), watchers=(Notes(),))
    assert seen == [
        "begin",
        "before 1 drop-one",
        "after 1 drop-one True 3",
        "before 2 nothing",
        "after 2 nothing False 3",
        "end",
    ]


def test_statistics_are_summed_by_pass() -> None:
    """Hits, notes and seconds of all runs of a pass come together; what was noted before is not repeated."""
    report = Pipeline((Fix((DropOne(), Nothing())),)).run(make_module(3))
    assert report.hits()["drop-one"] == {"drop": 3}
    assert set(report.seconds()) == {"drop-one", "nothing"}
    assert report.notes == ["nothing: saw it"]


def test_a_change_drops_the_schedule() -> None:
    """is_scheduled goes with the first pass that may have moved something."""
    module = make_module()
    Pipeline((Nothing(), KeepsSchedule())).run(module)
    assert module.attributes == {"is_scheduled": True}
    Pipeline((DropOne(),)).run(module)
    assert module.attributes == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (True, "pass liar says it changed nothing, but its fingerprint did change"),
        (
            False,
            "pass liar{changes=false} says it changed the module, but its fingerprint did not change",
        ),
    ],
)
def test_an_untruth_about_changes_is_found(changes: bool, message: str) -> None:
    """verify_each compares what a pass says with the module's fingerprint."""
    with pytest.raises(VerifyError, match="fingerprint") as caught:
        Pipeline((Liar(changes),)).run(make_module(), verify_each=True)
    assert caught.value.message == message


def test_the_pass_that_broke_the_module_is_named() -> None:
    """verify_each verifies after each changing pass; without it nothing is verified."""
    with pytest.raises(VerifyError) as caught:
        Pipeline((DropOne(), Breaker())).run(make_module(), verify_each=True)
    assert caught.value.message.startswith("after pass breaker: ")
    Pipeline((Breaker(),)).run(make_module())

"""How far a pipeline goes: fuel, the last run, passes that fight; and what passes tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

import hloopt
from hloopt.errors import EvaluationError, UsageError
from hloopt.ir import Module, build, edit
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls, Fix, Pass, PassLog, Pipeline

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(a)
  c = f32[4] negate(b)
  d = f32[4] negate(c)
  e = f32[4] negate(d)
  ROOT f = f32[4] negate(e)
}
"""


def module() -> Module:
    return hloopt.parse(TEXT, "m.hlo")


@dataclass(frozen=True)
class Turn(Pass):
    """Make the root an op of another kind: two such passes never come to rest."""

    name: ClassVar[str] = "turn"
    old: ClassVar[str] = "negate"
    new: ClassVar[str] = "abs"

    def run(self, module: Module, log: PassLog) -> bool:
        root = module.entry.root
        if root.opcode != self.old or not log.allows():
            return False
        log.hit(f"{self.old} => {self.new}", root)
        edit.replace_instruction(root, build.make(root, self.new, root.operands))
        return True


@dataclass(frozen=True)
class Back(Turn):
    """The other way round."""

    name: ClassVar[str] = "back"
    old: ClassVar[str] = "abs"
    new: ClassVar[str] = "negate"


@dataclass(frozen=True)
class Once(Pass):
    """Change something in the first round only, and nothing to do with the others."""

    name: ClassVar[str] = "once"

    def run(self, module: Module, log: PassLog) -> bool:
        if "seen" in module.attributes.get("frontend_attributes", ""):
            return False
        module.attributes["frontend_attributes"] = "{seen=1}"
        return True


@dataclass(frozen=True)
class Greedy(Pass):
    """Never asks whether it may."""

    name: ClassVar[str] = "greedy"

    def run(self, module: Module, log: PassLog) -> bool:
        for _ in range(3):
            log.hit("take")
        return False


@dataclass(frozen=True)
class Failing(Pass):
    """Fails."""

    name: ClassVar[str] = "failing"

    def run(self, module: Module, log: PassLog) -> bool:
        raise KeyError("x")


def opcodes(found: Module) -> list[str]:
    return [instruction.opcode for instruction in found.entry]


@pytest.mark.parametrize(("fuel", "left"), [(0, 7), (1, 5), (2, 3), (3, 1), (9, 1)])
def test_fuel_counts_rewrites_over_all_runs(fuel: int, left: int) -> None:
    """Each double negation that goes takes one; the second run has what the first left over."""
    found = module()
    report = parse_pipeline("simplify,dce,simplify").run(
        found, controls=Controls({"simplify": fuel})
    )
    assert len(found.entry) == left
    assert sum(report.hits().get("simplify", {}).values()) == min(fuel, 3)
    out = [f"simplify: out of fuel after {fuel} rewrites"] if fuel <= 3 else []
    assert report.notes == out


def test_a_pass_that_takes_more_than_it_has_is_told() -> None:
    """A pass that does not ask is no reason to hide what it did."""
    report = Pipeline((Greedy(),)).run(module(), controls=Controls({"greedy": 2}))
    assert report.notes == ["greedy: 3 rewrites with fuel for 2"]


@pytest.mark.parametrize(
    ("fuel", "message"),
    [
        ({"css": 1}, r"cannot give fuel to 'css': it is not in the pipeline; did you mean 'cse'"),
        ({"cse": -1}, "the fuel of cse counts rewrites: -1 is less than 0"),
    ],
)
def test_fuel_for_nobody_is_a_mistake(fuel: dict[str, int], message: str) -> None:
    """Checked before anything runs."""
    with pytest.raises(UsageError, match=message):
        parse_pipeline("cse,dce").run(module(), controls=Controls(fuel))


@pytest.mark.parametrize(
    ("last", "runs", "note"),
    [
        (0, 0, "stopped before the first run"),
        (1, 1, "stopped after run 1, round 1: turn"),
        (3, 3, "stopped after run 3, round 2: turn"),
        (9, 9, "stopped after run 9: turn"),
        (12, 9, "the pipeline ended after 9 runs, before run 12"),
    ],
)
def test_the_runner_stops_where_it_is_told(last: int, runs: int, note: str) -> None:
    """Inside of a group, too; what was not begun is not counted."""
    pipeline = Pipeline((Fix((Turn(), Back()), limit=4), Turn()))
    report = pipeline.run(module(), controls=Controls(stop_after=last))
    assert len(report.runs) == runs
    assert report.notes[-1] == note


def test_passes_that_undo_each_other_are_stopped_and_named() -> None:
    """By the module that comes again, long before the limit; who changed nothing since is not named."""
    found = module()
    report = Pipeline((Fix((Once(), Turn(), Back(), parse_pipeline("dce").entries[0])),)).run(found)
    (group,) = report.groups
    assert not group.converged
    assert group.rounds < 8
    assert {run.instance.name for run in group.fighters} == {"turn", "back"}
    (note,) = report.notes
    assert note.startswith("fix(once,turn,back,dce): stopped after 5 rounds, the module is again")
    assert note.endswith("turn ('negate => abs') and back ('abs => negate') undo each other")
    hloopt.verify(found)


def test_remarks_have_rule_reason_and_lines() -> None:
    """Only when they are asked for; what is told again and again is told once."""
    silent = parse_pipeline("simplify").run(module())
    assert not silent.remarks()
    report = parse_pipeline("simplify").run(module(), controls=Controls(remarks=True))
    told = report.remarks()[0]
    assert (told.pass_name, told.remark.rule, told.remark.kind) == (
        "simplify",
        "-(-A) => A",
        "passed",
    )
    assert (told.remark.instruction, told.remark.computation) == ("b", "e")


def test_near_misses_are_merged_and_forgotten_once_made() -> None:
    """A miss that a later run makes good is none; one that stays is told once with a count."""

    @dataclass(frozen=True)
    class Hesitant(Pass):
        """Wait for the second run."""

        name: ClassVar[str] = "hesitant"

        def run(self, module: Module, log: PassLog) -> bool:
            first, second = list(module.entry)[1:3]
            for _ in range(2):
                log.miss("step", second, "too large: 4, limit 2")
            if module.attributes.pop("waited", None):
                log.hit("step", first)
            else:
                log.miss("step", first, "not yet")
                module.attributes["waited"] = True
            return False

    report = Pipeline((Hesitant(), Hesitant())).run(module(), controls=Controls(remarks=True))
    assert [(t.remark.kind, t.remark.instruction, t.count) for t in report.remarks()] == [
        ("missed", "b", 2),
        ("passed", "a", 1),
    ]


def test_a_miss_after_a_hit_stays() -> None:
    """What a rewrite left under the same name may nearly be rewritten again."""

    @dataclass(frozen=True)
    class Half(Pass):
        """Make one of two steps."""

        name: ClassVar[str] = "half"

        def run(self, module: Module, log: PassLog) -> bool:
            log.hit("step", module.entry.root)
            log.miss("step", module.entry.root, "too small: 1, least 2")
            return False

    report = Pipeline((Half(),)).run(module(), controls=Controls(remarks=True))
    assert [told.remark.kind for told in report.remarks()] == ["passed", "missed"]


def test_a_failing_pass_is_named() -> None:
    """With the run and the place: a plug-in's mistake is not hloopt's."""
    with pytest.raises(
        EvaluationError, match=r"pass failing failed in run 2: KeyError: 'x'"
    ) as caught:
        Pipeline((Turn(), Failing())).run(module())
    assert "test_controls.py:" in str(caught.value)


def test_a_failure_of_hloopts_own_is_passed_on_with_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A defect stays one, and says in which run it came up."""
    (dce,) = parse_pipeline("dce").entries

    def fail(*_: object) -> bool:
        raise KeyError("x")

    monkeypatch.setattr(type(dce), "run", fail)
    with pytest.raises(KeyError) as caught:
        parse_pipeline("cse,dce").run(module())
    assert caught.value.__notes__ == ["in run 2: dce"]

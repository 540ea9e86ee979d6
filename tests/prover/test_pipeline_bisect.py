"""A search over a pipeline names the run, the rewrite and its instruction, and says what it cannot tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.passes.dce import DeadCodeElimination
from hloopt.pipelines import parse_pipeline
from hloopt.prover.bisection import Bisection
from hloopt.prover.checks import CheckedModule, CommandCheck, ResultCheck
from hloopt.prover.dumped_stages import DumpStage
from hloopt.prover.executor import Executor
from hloopt.prover.fuel_search import narrowed
from hloopt.prover.pipeline_bisect import PipelineSearch
from hloopt.prover.stage_check import StageCheck
from hloopt.prover.trials import Trial, made
from hloopt.rewrite import Controls, Fix, Pass, Pipeline
from tests.prover.broken_passes import (
    Crashes,
    DropsTerm,
    Invalid,
    Lies,
    Swaps,
    Unmeasured,
    Unsupported,
    WrongRule,
)

TEXT = """HloModule sums

ENTRY main {
  a = f32[6] parameter(0)
  b = f32[6] parameter(1)
  c = f32[6] add(a, b), metadata={source_file="model.py" source_line=3}
  d = f32[6] add(c, a), metadata={source_file="model.py" source_line=4}
  e = f32[6] add(d, b), metadata={source_file="model.py" source_line=5}
  f = f32[6] subtract(e, c)
  g = f32[6] negate(f)
  h = f32[6] negate(g)
  ROOT i = f32[6] add(h, e)
}
"""


def search(
    *entries: Pass | Fix, text: str = TEXT, controls: Controls | None = None, check: str = ""
) -> Bisection:
    module = hloopt.parse(text, "sums.hlo")
    asked = (
        CommandCheck(check) if check else ResultCheck(module, Executor(), [made(module, Trial(0))])
    )
    found = PipelineSearch(module, Pipeline(entries), asked, controls or Controls()).run("sums.hlo")
    json.dumps(found.to_json())
    assert module.to_text() == hloopt.parse(text).to_text(), "the given module has changed"
    return found


def test_the_rewrite_is_found_by_fuel() -> None:
    found = search(DeadCodeElimination(), DropsTerm(at=1), DeadCodeElimination())
    (culprit,) = found.culprits
    assert found.exit_code == 1
    assert culprit.name == "drops-term: A + B => A on %d"
    assert culprit.where == "run 2: drops-term{at=1}, rewrite 2 of 4"
    old, *_, new = culprit.rewritten
    assert (old.side, old.text) == ("before", "%d = f32[6] add(%c, %a)")
    assert (old.place, old.user) == ("sums.hlo:7", "model.py:4")
    assert new.side == "after"
    (first,) = culprit.differences
    assert first.before is not None
    assert (first.before.name, first.after.name) == ("e", "e")
    assert [(one.name, one.user) for one in first.missing] == [("d", "model.py:4")]
    assert culprit.remedy == "--disable drops-term"
    assert culprit.remedy_note.startswith("tried: ")
    assert "--stop-after 2 --fuel drops-term=2; with 1 it is right" in culprit.notes[-1]
    ((name, result),) = culprit.results
    assert (name, result.mismatches) == ("result 0", 6)


def test_fuel_counts_the_rewrites_of_earlier_runs() -> None:
    """What is printed can be typed: the pass has run before, and in a group."""
    first = replace(DropsTerm(at=9), opcode="add")
    group = Fix((DeadCodeElimination(), WrongRule()))
    found = search(first, DropsTerm(at=3), group)
    (culprit,) = found.culprits
    assert culprit.where == "run 2: drops-term{at=3}, rewrite 4 of 4"
    assert "--stop-after 2 --fuel drops-term=8; with 7 it is right" in culprit.notes[-1]


def test_a_rule_in_a_group_is_named_with_what_switches_it_off() -> None:
    text = TEXT.replace("negate(g)", "abs(f)").replace("negate(f)", "abs(e)")
    group = Fix((DeadCodeElimination(), WrongRule()))
    (culprit,) = search(group, text=text).culprits
    assert culprit.name == "wrong-rule: |A - B| => A - B on %h"
    assert culprit.where.startswith("run 2, round 1: wrong-rule, rewrite 1 of ")
    assert culprit.remedy == "--disable '|A - B| => A - B'"
    assert "right results" in culprit.remedy_note


def test_what_a_later_run_hides_is_found() -> None:
    found = search(Swaps(), DeadCodeElimination(), Swaps())
    (culprit,) = found.culprits
    assert culprit.where == "run 1: swaps, rewrite 1 of 1"
    assert "after the whole pipeline the results are right again: a later run hides it" in (
        culprit.notes
    )


def test_a_crash_is_found_with_the_rewrite_that_leads_to_it() -> None:
    (culprit,) = search(DeadCodeElimination(), Crashes(after=2)).culprits
    assert culprit.where == "run 2: crashes, rewrite 3"
    assert "pass crashes failed" in culprit.reason or "KeyError: 'e'" in culprit.reason


def test_a_module_that_is_not_valid_any_more() -> None:
    (culprit,) = search(Invalid()).culprits
    assert culprit.name == "invalid: -A => A[0] on %g"
    assert culprit.reason.startswith("the module is not valid any more: ")


def test_a_pass_that_asks_for_no_fuel_is_named_itself() -> None:
    (culprit,) = search(Unmeasured()).culprits
    assert culprit.name == "unmeasured"
    assert (
        "which rewrite of it is not known: the pass changes the module without fuel"
        in (culprit.notes[0])
    )


def test_a_pass_that_says_it_changed_nothing_is_named() -> None:
    (culprit,) = search(DeadCodeElimination(), Lies()).culprits
    assert culprit.where == "run 2: lies"
    assert "says it changed nothing" in culprit.reason


def test_what_cannot_be_run_is_left_out_and_said() -> None:
    found = search(Unsupported(), DropsTerm(at=0), Unsupported(away=True))
    (culprit,) = found.culprits
    assert culprit.where == "run 3: unsupported{away=true}"
    assert [entry.outcome for entry in found.examined] == ["skipped", "skipped", "fails"]
    assert culprit.notes[0].startswith(
        "could not be checked after run 1: unsupported; run 2: drops-term{at=0}: "
    )


def test_nothing_is_found_where_all_is_right() -> None:
    found = search(DropsTerm(at=9), Fix((DeadCodeElimination(), WrongRule())))
    assert (found.exit_code, found.culprits) == (0, ())
    assert found.summary.startswith("the module gives the same results after each of the ")
    assert search(DeadCodeElimination()).summary == "no pass changed the module: nothing to search"


def test_a_pipeline_that_is_right_stays_right() -> None:
    module = hloopt.parse(TEXT)
    check = ResultCheck(module, Executor(), [made(module, Trial(1))])
    found = PipelineSearch(module, parse_pipeline("O2"), check).run("sums.hlo")
    assert found.culprits == ()


def test_a_remedy_that_does_not_suffice_is_called_that() -> None:
    (culprit,) = search(DropsTerm(at=0), Unmeasured()).culprits
    assert culprit.remedy == "--disable drops-term"
    assert culprit.remedy_note.startswith("tried: that does not suffice: other results")


def test_options_that_cannot_be_are_no_finding() -> None:
    with pytest.raises(UsageError, match="cannot give fuel to 'cse'"):
        search(DeadCodeElimination(), controls=Controls(fuel={"cse": 1}))


class TestCommands:
    def test_a_command_finds_the_rewrite(self) -> None:
        found = search(
            DeadCodeElimination(), DropsTerm(at=2), Swaps(), check="grep -q 'add(%[bd], %[bd])' {}"
        )
        (culprit,) = found.culprits
        assert culprit.name == "drops-term: A + B => A on %e"
        assert culprit.reason == "the check exits with 1"
        assert culprit.remedy_note == "tried: the module passes the check then"

    def test_the_path_follows_a_command_without_braces(self) -> None:
        found = search(Swaps(), check="grep -q 'subtract(%e'")
        assert found.culprits[0].name == "swaps: A - B => B - A on %f"

    def test_a_command_that_always_passes(self) -> None:
        found = search(DropsTerm(), Swaps(), check="true")
        assert found.summary == "the module passes the check at the end: nothing was found"
        assert found.exit_code == 0

    def test_a_module_that_fails_as_given(self) -> None:
        with pytest.raises(UsageError, match=r"as given fails already: the check exits with 3: so"):
            search(Swaps(), check="echo so; exit 3; true")

    def test_125_is_skipped(self) -> None:
        check = "if grep -q custom-call {}; then exit 125; fi; grep -q 'add(%c' {}"
        found = search(Unsupported(), DropsTerm(at=1), Unsupported(away=True), check=check)
        (culprit,) = found.culprits
        assert culprit.where.startswith("run 3: unsupported{away=true}")
        assert culprit.notes[0].startswith("could not be checked after run 1")

    @pytest.mark.parametrize(
        ("command", "said"),
        [("exit 200; :", "exits with 200"), ("kill -9 $$; :", "was ended by SIGKILL")],
    )
    def test_other_codes_stop_the_search(self, command: str, said: str) -> None:
        with pytest.raises(UsageError, match=f"the check {said}; that stops the search"):
            search(Swaps(), check=command)

    def test_a_command_that_takes_too_long_is_bad(self) -> None:
        module = hloopt.parse(TEXT)
        check = CommandCheck("sleep 20;:", seconds=0.2)
        assert check(module) == CheckedModule("bad", "the check took longer than 0.2 seconds")
        assert check(module).outcome == "bad"
        assert check.runs == 1

    def test_a_command_that_changes_its_mind_is_reported(self, tmp_path: Path) -> None:
        tally = f"{tmp_path}/tally"
        # The third and later times everything is accepted.
        check = f"echo x >> {tally}; test $(wc -l < {tally}) -gt 2 || grep -q 'subtract(%e' {{}}"
        (culprit,) = search(Swaps(), check=check).culprits
        assert "the check is not steady: sums after run 1 was bad, and is not now" in culprit.notes

    @pytest.mark.parametrize(
        ("skipped", "name", "notes"),
        [("nothing", "second", 1), ("add(%y, %y)", "third", 2)],
    )
    def test_stages_of_a_dump(self, tmp_path: Path, skipped: str, name: str, notes: int) -> None:
        texts = ["add(%x, %x)", "add(%y, %y)", "negate(%y)", "abs(%y)", "tanh(%y)"]
        stages = []
        for number, text in enumerate(texts):
            file = tmp_path / f"{number}.txt"
            text = text.replace("%y", "%x") if number == 0 else text
            file.write_text(
                "HloModule m\nENTRY e { x = f32[2] parameter(0)\n y = f32[2] exponential(x)\n"
                f" ROOT r = f32[2] {text} }}"
            )
            pass_name = ["", "second", "third", "fourth", "fifth"][number]
            stages.append(DumpStage(f"stage-{number}", pass_name, "", file))
        check = f"if grep -qF '{skipped}' {{}}; then exit 125; fi; grep -qF 'add(%x, %x)' {{}}"
        found = StageCheck("m", str(tmp_path), stages, CommandCheck(check)).run()
        (culprit,) = found.culprits
        assert (culprit.name, len(culprit.notes)) == (name, notes)
        assert len(found.examined) < len(stages) or skipped != "nothing"
        with pytest.raises(UsageError, match=r"the first stage \(stage-0\) fails already"):
            StageCheck("m", "", stages, CommandCheck("false")).run()
        passing = StageCheck("m", "", stages, CommandCheck("true")).run()
        assert passing.summary == "the last stage (stage-4) passes the check"

    def test_an_empty_command(self) -> None:
        with pytest.raises(UsageError, match="--check needs a command"):
            CommandCheck(" ")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({1: "good", 2: "bad"}, (1, 2)),
        ({1: "bad", 2: "bad"}, (0, 1)),
        ({1: "skipped", 2: "bad"}, (0, 2)),
        ({1: "skipped", 2: "good"}, (2, 3)),
        ({1: "skipped", 2: "skipped"}, (0, 3)),
    ],
)
def test_skipped_numbers_are_gone_around(
    outcomes: Mapping[int, str], expected: tuple[int, int]
) -> None:
    asked: list[int] = []

    def ask(number: int) -> CheckedModule:
        asked.append(number)
        return CheckedModule(outcomes[number])  # type: ignore[arg-type]

    assert narrowed(0, 3, ask) == expected
    assert len(asked) == len(set(asked))

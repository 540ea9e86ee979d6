"""What changes gain: in the whole module and in a part of it, once and together, and never with other results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

import pytest
from rich.console import Console

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import (
    FindingKind,
    FindingRemedy,
    Planner,
    SearchProgress,
    chosen_kinds,
    find,
    kind_examples,
    pipeline_for,
)
from hloopt.findings.ahead import TriedAhead, TriedBeside
from hloopt.findings.kind_tries import KindTries
from hloopt.findings.parts import cut_out
from hloopt.findings.trials import FindingCandidate, ModuleChange, Subject
from hloopt.ir import Instruction, Module, edit
from hloopt.process import notes
from hloopt.report.findings import show_findings
from hloopt.targets import find_target

LONG = """HloModule long
ENTRY main {{
  x = f32[256,256] parameter(0)
  n0 = f32[256,256] negate(x)
{chain}
  ids = s32[128] parameter(1)
  table = f32[3000,64] parameter(2)
  rows = s32[128,3000] broadcast(ids), dimensions={{0}}
  columns = s32[128,3000] iota(), iota_dimension=1
  hit = pred[128,3000] compare(rows, columns), direction=EQ
  picked = f32[128,3000] convert(hit)
  d = f32[128,64] dot(picked, table), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[256,256], f32[128,64]) tuple(n{last}, d)
}}
"""

SMALL_KERNELS = f"""HloModule small
ENTRY main {{
{"".join(f"  x{n} = f32[{64 + n}] parameter({n}){chr(10)}  y{n} = f32[{64 + n}] sine(x{n}){chr(10)}" for n in range(12))}
  ROOT r = ({", ".join(f"f32[{64 + n}]" for n in range(12))}) tuple({", ".join(f"y{n}" for n in range(12))})
}}
"""


def planner() -> Planner:
    """What XLA does for an H200."""
    target = find_target("h200")
    return Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))


def long_module(count: int) -> Module:
    """A one-hot product behind a long chain."""
    chain = "\n".join(
        f"  n{at} = f32[256,256] {('sine', 'cosine')[at % 2]}(n{at - 1})" for at in range(1, count)
    )
    return hloopt.parse(LONG.format(chain=chain, last=count - 1))


def test_another_process_tries_what_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings are those of one process, in the same order; kinds that look at the plan wait for it."""
    kinds = ["one-hot-product", "recomputed", "not-donated"]
    ahead: list[list[str]] = []
    found = TriedAhead.found

    def noted(self: TriedAhead) -> Mapping[str, KindTries]:
        answer = found(self)
        ahead.append(list(answer))
        return answer

    monkeypatch.setattr(TriedAhead, "found", noted)
    rows = []
    for beside in (False, True):
        monkeypatch.setattr("hloopt.findings.ahead.can_work_beside", lambda beside=beside: beside)
        rows.append(hloopt.why(long_module(1600), kinds=kinds).to_json())
    assert rows[0] == rows[1]
    assert rows[0]["findings"]
    assert rows[0]["findings"][0]["cost"]["share"] > 0
    assert ahead == [[], ["one-hot-product"]]


@pytest.mark.parametrize("fails", [False, True])
def test_kinds_that_need_the_plan_are_shared_out(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What the other process finds is what one process finds; where it fails, this one does its part."""
    kinds = ["one-hot-product", "small-kernels"]
    module = long_module(40)
    monkeypatch.setattr(TriedAhead, "found", lambda _: {})
    monkeypatch.setattr("hloopt.findings.trials._WHOLE", 10)
    monkeypatch.setattr("hloopt.findings.ahead.can_work_beside", lambda: False)
    alone = hloopt.why(module, kinds=kinds).to_json()
    assert [one["kind"] for one in alone["findings"]] == ["one-hot-product"]
    monkeypatch.setattr("hloopt.findings.ahead.can_work_beside", lambda: True)
    here, claimed, found = os.getpid(), TriedBeside._claimed, TriedBeside.found
    answers = list[Mapping[str, KindTries]]()

    def all_there(self: TriedBeside) -> Iterator[int]:
        if os.getpid() != here:
            yield from claimed(self)
            if fails:
                raise RuntimeError("the other process fails")

    def noted(self: TriedBeside) -> Mapping[str, KindTries]:
        answers.append(found(self))
        return answers[-1]

    monkeypatch.setattr(TriedBeside, "_claimed", all_there)
    monkeypatch.setattr(TriedBeside, "found", noted)
    monkeypatch.setattr("hloopt.process._NOTES", {})
    assert hloopt.why(module, kinds=kinds).to_json() == alone
    said = "a second process ended with exit code 70: one process has tried all changes instead"
    assert notes() == ((said,) if fails else ())
    assert list(answers[0]) == kinds
    for tries in answers[0].values():
        for _, tried in tries.found:
            assert (tried.compared is None) is not fails  # plans stay in the process that made them


def test_how_far_a_search_is() -> None:
    """The passes of the plan by name, then each change with its number, as a part of all that are tried."""

    class Noted(SearchProgress):
        """All that is shown, in turn."""

        def __init__(self) -> None:
            self.rows = list[tuple[str, float | None]]()
            super().__init__()

        def begin(self, doing: str) -> None:
            super().begin(doing)
            self.rows.append((doing, self.part))

        def at(self, done: int, doing: str) -> None:
            super().at(done, doing)
            self.rows.append((self.doing, self.part))

    progress = Noted()
    kinds = chosen_kinds(["one-hot-product", "small-kernels"])
    find(long_module(40), planner(), "xla-gpu-2026", kinds, progress=progress)
    shown = dict.fromkeys(doing for doing, _ in progress.rows)
    assert any(doing.startswith("priority-fusion, pass ") for doing in shown)
    tried = [(doing, part) for doing, part in progress.rows if part is not None]
    assert [part for _, part in tried] == [n / len(tried) for n in range(len(tried))]
    assert tried[0][0] == f"change 1 of {len(tried)}, one-hot-product"
    assert list(shown)[-1] == "ranking what gains"


def test_a_large_module_is_tried_in_a_part() -> None:
    """The gain is that of the whole small module, and the finding says how large the part was."""
    kinds = ["one-hot-product"]
    small = hloopt.why(long_module(4), kinds=kinds).rows[0].gain
    large = hloopt.why(long_module(1600), kinds=kinds).rows[0].gain
    assert small.part == 0
    assert 0 < large.part < 20
    assert large.saved == pytest.approx(small.saved)
    assert large.verdict == "equal"


def test_a_part_computes_the_same() -> None:
    """Its parameters are what it reads of the rest, its results what the rest reads."""
    module = long_module(40)
    part = cut_out([module["n20"]], 5)
    hloopt.verify(part.module)
    assert part.found[module["n20"]].computation is part.module.entry
    assert part.module.instruction_count() == 7
    assert len(part.module.entry.parameters) == 1


def _nothing(module: Module, places: Sequence[Instruction]) -> bool:
    return True


def _kind(change: ModuleChange) -> FindingKind:
    def look(subject: Subject) -> list[FindingCandidate]:
        sites = [one for one in subject.module.instructions() if one.opcode == "sine"]
        remedies = (FindingRemedy("model", "change it"),)
        return [FindingCandidate((one,), "it is a sine", remedies, change) for one in sites]

    return FindingKind("test", "a sine", "time", look)


def test_a_change_of_the_results_is_no_finding() -> None:
    """However fast it is."""

    def without(module: Module, places: Sequence[Instruction]) -> bool:
        for one in places:
            edit.replace_instruction(one, one.operands[0])
        return True

    text = "HloModule m\nENTRY e { x = f32[900000] parameter(0) ROOT r = f32[900000] sine(x) }"
    found = find(hloopt.parse(text), planner(), "xla-gpu-2026", [_kind(without)])
    assert not found.rows
    (tried,) = found.useless
    assert (tried.kind, tried.instruction, tried.remedy) == ("test", "r", "change it")
    assert tried.reason == "the results would differ"
    assert tried.after < tried.before


def test_a_change_without_gain_is_no_finding() -> None:
    """The price decides, not the detector."""
    module = "HloModule m\nENTRY e { x = f32[900000] parameter(0) ROOT r = f32[900000] sine(x) }"
    found = find(hloopt.parse(module), planner(), "xla-gpu-2026", [_kind(_nothing)])
    assert not found.rows
    (tried,) = found.useless
    assert (tried.reason, tried.before) == ("no gain", tried.after)
    text = StringIO()
    show_findings(found, Console(width=80, file=text))
    shown = " ".join(text.getvalue().split())
    assert "test for %r: 14 us -> 14 us, no gain (change it)" in shown


def test_what_stands_at_one_line_is_one_finding() -> None:
    """All of it is changed, and the finding lists the others."""
    step = kind_examples()["one-hot-product"].example
    body = step.split("{", 1)[1].rsplit("}", 1)[0].replace("ROOT r =", "r =")
    tagged = body.replace(
        "rhs_contracting_dims={0}",
        'rhs_contracting_dims={0}, metadata={source_file="f.py" source_line=3}',
    )
    other = "\n".join(
        line.replace("r = ", "r2 = ") for line in tagged.splitlines() if "dot(" in line
    ).replace("table", "table2")
    text = (
        "HloModule m\nENTRY main {\n"
        + tagged
        + "  table2 = f32[3000,64] parameter(2)\n"
        + other
        + "\n  ROOT t = (f32[128,64], f32[128,64]) tuple(r, r2)\n}\n"
    )
    (row,) = hloopt.why(hloopt.parse(text), kinds=["one-hot-product"]).rows
    assert (row.instruction, row.others) == ("r", ("r2",))
    assert row.lines == ("f.py:3",)


def test_kernels_around_an_instruction_are_told_from_its_own() -> None:
    """A thin product joined with a wide one of the same factor changes both; a product alone is its own."""
    text = """HloModule router
ENTRY main {{
  x = f32[512,256] parameter(0)
  other = f32[512,256] parameter(3)
  wide = f32[256,4096] parameter(1)
  thin = f32[256,8] parameter(2)
  d = f32[512,4096] dot(x, wide), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[512,8] dot({factor}, thin), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[512,4096] tanh(d)
  e = f32[512,8] exponential(r)
  ROOT both = (f32[512,4096], f32[512,8]) tuple(t, e)
}}
"""
    for factor, beside in (("x", True), ("other", False)):
        module = hloopt.parse(text.format(factor=factor))
        rows = [row for row in hloopt.why(module, kinds=["thin-product"]).rows if row.gain.saved]
        assert [row.cost.mostly_beside for row in rows] == [beside] * len(rows)
        assert rows or not beside

"""The scoring itself: what is excused, what counts as a fall, what a hang or a crash costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import hloopt
from hloopt.backends.native import check_native
from hloopt.errors import DeviceError, ParseError
from hloopt.workers.process import Worker
from hloopt.workers.records import NoAnswer
from tests.corpus import memory, native_stages, score
from tests.corpus.emulated import EMULATED_STAGES
from tests.corpus.known import NEWER, RULES, excuse
from tests.corpus.native_stages import NATIVE_STAGES, examine_natively
from tests.corpus.parts import XLA_STAGES, Task
from tests.corpus.stages import REFUSAL_STAGES, RESULT_STAGES, TEXT_STAGES, examine

ELIDED = "the value of this constant is left out of the text ({...}); dump with --xla_dump_..."
MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


def test_a_rule_covers_what_is_said() -> None:
    """By its words, at the stages it names and at no others."""
    said = f"refused: some.hlo:3:4: error: c: {ELIDED}"
    assert "elided" in excuse("ran", said)
    assert not excuse("printed", said)
    assert not excuse("ran", "failed: some.hlo:3:4: error: c: no such thing")


def test_a_negative_zero_is_another_module_to_xla() -> None:
    """That alone, not another constant."""
    said = "failed: tmp_0 = f32[] constant({}) is read as tmp_0 = f32[] constant({})"
    assert excuse("same", said.format("0", "-0"))
    assert not excuse("same", said.format("0", "1"))
    assert not excuse("same", said.format("1", "-0"))


def test_no_rule_matches_the_name_of_a_file() -> None:
    """A file that is called as a rule reads is not let off."""
    for rule in RULES:
        for stage in rule.stages:
            assert not excuse(stage, f"refused: {rule.message}.hlo:1:2: error: x: not supported")


@pytest.mark.parametrize(
    ("said", "form"),
    [
        ('unexpected attribute "is_stable". Allowed: k', "t = (f32[2]) topk(x), is_stable=true"),
        ("cannot parse as an instruction name or as a nested instruction:", "r = f32[] abs(%t#0)"),
        ("expects attribute name", "sharding={mesh['x'=2], [{}], unreduced=max{'x'}}"),
        ("sub-attribute column is expected but not seen", "1 {file_name_id=1 line=2}"),
        ("expects nested array in rank 1, but sees 0", "c = f32[16] constant(1.0)"),
    ],
)
def test_newer_forms_are_told_from_mistakes(said: str, form: str) -> None:
    """What XLA says of a form it is too old for is let off for that form alone."""
    message = "failed: it is read; XLA says: was parsing 3:4: error: {}\n  {}\n  ^"
    assert NEWER in excuse("refused", message.format(said, form))
    assert not excuse("refused", message.format(said, "r = f32[] abs(absent)"))
    assert not excuse("parsed", message.format(said, form))


def test_every_rule_is_about_a_stage_that_exists() -> None:
    """A rule for a stage of another name would cover nothing."""
    assert {stage for rule in RULES for stage in rule.stages} <= {
        *(*TEXT_STAGES, *RESULT_STAGES, *REFUSAL_STAGES, *XLA_STAGES, *EMULATED_STAGES),
        *NATIVE_STAGES,
    }


def test_the_score_counts_and_excuses() -> None:
    """Files by what became of them, a stage at a time."""
    results = {
        "jax.h200": {
            "a": {"parsed": "ok", "ran": "ok"},
            "b": {"parsed": "ok", "ran": f"refused: b:1:1: error: c: {ELIDED}"},
            "c": {"parsed": "failed: no"},
        }
    }
    assert score.score(results) == {
        "jax.h200": {
            "files": {"ok": 3},
            "parsed": {"failed": 1, "ok": 2},
            "ran": {"excused": 1, "ok": 1},
        }
    }


def test_a_fall_is_any_lower_figure() -> None:
    """A stage or a part that is gone has fallen to nothing; more is no fall."""
    old = {"jax": {"parsed": {"ok": 2}, "ran": {"ok": 1}}, "models": {"parsed": {"ok": 1}}}
    assert score.falls(old, old) == []
    assert score.falls(old, {**old, "jax": {"parsed": {"ok": 3}, "ran": {"ok": 1}}}) == []
    assert score.falls(old, {"jax": {"parsed": {"ok": 1}}}) == [
        "jax.parsed: 2 -> 1",
        "jax.ran: 1 -> 0",
        "models.parsed: 1 -> 0",
    ]


def test_counts_of_files_are_summed() -> None:
    """What is counted within files is; one that could not be examined brings nothing."""
    results = {
        "fusion.partition": {
            "a": {"same": "ok", "kernels": "ok: ours 3, theirs 4", "common": "ok: 3 of 4"},
            "b": {
                "same": "failed: no",
                "kernels": "failed: ours 3, theirs 2",
                "common": "ok: 1 of 2",
            },
            "c": {"fused": "failed: no"},
        }
    }
    board = score.score(results)
    assert board["fusion.partition"] == {
        "files": {"ok": 3},
        "fused": {"failed": 1},
        "same": {"failed": 1, "ok": 1},
        "kernels": {"failed": 1, "ok": 1, "ours": 6, "theirs": 6},
        "common": {"ok": 4, "of": 6},
    }
    assert score.told(board["fusion.partition"]) == (
        "same 1  kernels 1 (6 to 6)  common 4/6  files 3"
    )


def test_more_kernels_beside_theirs_are_a_fall() -> None:
    """As many beside as many more of theirs are none, and neither are fewer."""
    row = {"ok": 1, "ours": 100, "theirs": 100}
    old = {"fusion.partition": {"kernels": row}}
    for ours, theirs in ((100, 100), (99, 100), (200, 200)):
        new = {"fusion.partition": {"kernels": {"ok": 1, "ours": ours, "theirs": theirs}}}
        assert score.falls(old, new) == []
    new = {"fusion.partition": {"kernels": {**row, "ours": 101}}}
    assert score.falls(old, new) == [
        "fusion.partition.kernels beside XLA's: 1 (100 to 100) -> 1 (101 to 100)"
    ]


def child(body: str) -> tuple[str, ...]:
    """A worker that does ``body`` for each line it reads."""
    return (sys.executable, "-c", f"import sys, time\nfor line in sys.stdin:\n    {body}\n")


@pytest.mark.parametrize(
    ("body", "limit", "message"),
    [
        ("sys.exit(3)", 60, "the process died with exit code 3"),
        ("sys.stdout.write('[1'); sys.exit(3)", 60, "the process died with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", 60, "the process died of SIGSEGV"),
        ("time.sleep(60)", 0.5, "no answer in time"),
    ],
)
def test_a_worker_that_dies_or_hangs_costs_one_task(body: str, limit: float, message: str) -> None:
    """The next one gets a new process."""
    worker = Worker(child(body), limit)
    try:
        with pytest.raises(NoAnswer, match=message):
            worker.ask("a")
        worker.command, worker.time_limit = child("print('[1]', flush=True)"), 60
        assert worker.ask("b") == [1]
    finally:
        worker.close()


def test_an_interrupt_of_the_run_is_none_of_its_children() -> None:
    """Ctrl-C goes to the foreground group: a child that died of it would count as one that crashed."""
    worker = Worker(child("import os; print([os.getpid(), os.getpgrp()], flush=True)"), 60)
    try:
        number, group = worker.ask("a")
        assert number == group
    finally:
        worker.close()


def test_a_file_is_examined_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The real child answers what ``examine`` answers here."""
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    examiner = score.Examiner(tmp_path)
    try:
        outcome = examiner.outcome(Task("models", path, TEXT_STAGES))
    finally:
        examiner.close()
    assert outcome == examine(path, TEXT_STAGES) == dict.fromkeys(TEXT_STAGES, "ok")


def test_what_xla_refuses_is_to_be_refused(tmp_path: Path) -> None:
    """A mistake is, one that only we read is told with what XLA says of it."""
    path = tmp_path / "m.hlo"
    path.write_text(MODULE.replace("f32[]", "f32"))
    assert examine(path, REFUSAL_STAGES) == {"answered": "ok", "refused": "ok"}
    path.write_text(MODULE)
    task = Task("xla-tests.refused", path, REFUSAL_STAGES, "was parsing 4:5: error: no\n  line")
    examiner = score.Examiner(tmp_path)
    try:
        outcome = examiner.outcome(task)
    finally:
        examiner.close()
    said = "failed: it is read; XLA says: was parsing 4:5: error: no\n  line"
    assert outcome == {"answered": "ok", "refused": said}


def test_a_crash_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a mistake at a place that the text does not have."""
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)

    def parse(text: str, name: str, *, strict: bool) -> None:
        if strict:
            raise ParseError("no", line=99, column=1)
        raise KeyError("x")

    monkeypatch.setattr(hloopt, "parse", parse)
    outcome = examine(path, REFUSAL_STAGES)
    assert outcome["answered"].startswith("failed: no line 99:1")
    assert outcome["refused"] == "ok"


def test_results_are_reused_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run examines nothing; a changed file is examined again, a torn line is passed over."""
    monkeypatch.setattr(score, "CACHE", tmp_path / "cache")
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    monkeypatch.setattr(score, "tasks", lambda corpus, xla: [Task("models", path, ("parsed",))])
    asked = []

    def outcome(self: score.Examiner, task: Task) -> dict[str, str]:
        asked.append(task.path.read_text())
        return {"parsed": "ok"}

    monkeypatch.setattr(score.Examiner, "outcome", outcome)
    first = score.examine_all(score.tasks(tmp_path, xla=False), 1)
    again = score.examine_all(score.tasks(tmp_path, xla=False), 1)
    assert first == again == {"models": {"m.hlo": {"parsed": "ok"}}}
    assert asked == [MODULE]

    (store,) = (tmp_path / "cache").glob("*.jsonl")
    store.write_text(store.read_text() + '{"key": "half')
    assert score.examine_all(score.tasks(tmp_path, xla=False), 1) == first
    path.write_text(MODULE + "\n")
    score.examine_all(score.tasks(tmp_path, xla=False), 1)
    assert asked == [MODULE, MODULE + "\n"]
    assert score.examine_all(score.tasks(tmp_path, xla=False), 1, only="xla-tests") == {}


def test_memory_is_told_in_times_the_file(tmp_path: Path) -> None:
    """A process of its own reads the file; the board has the most that one took."""
    path = tmp_path / "m.hlo"
    # Enough of them to show beside what the process takes for a text of one line.
    many = "".join(f"  x{at} = f32[{at % 7 + 1},{at}] parameter({at})\n" for at in range(1, 20_000))
    path.write_text(
        MODULE.replace("ROOT p = f32[] parameter(0)\n", f"ROOT p = f32[] parameter(0)\n{many}")
    )
    said = memory.outcome(path)
    assert memory.times(said) > 0
    path.write_text("HloModule")
    assert memory.outcome(path).startswith(f"failed: {path}:1:10: error: ")
    files = {
        "a": {"memory": "ok: 2.5 times the file"},
        "b": {"memory": "failed: 31.0 times the file"},
    }
    assert score.score({"models": files})["models"]["memory"] == {"failed": 1, "ok": 1, "most": 31}


def test_damaged_texts_are_counted() -> None:
    """Those that broke something lower the figure that may only rise."""
    found = {"counts": {"refused": 5, "valid": 2, "failed": 1}, "broken": {"7": "failed: no"}}
    assert score.damaged(found) == {
        "files": {"ok": 8},
        "answered": {"ok": 7, "failed": 1},
        "refused": {"count": 5},
        "valid": {"count": 2},
    }


def test_without_xla_its_figures_stay() -> None:
    """They are those of the last run, and no fall."""
    old = {"models": {"parsed": {"ok": 2}, "reread": {"ok": 2}, "same": {"ok": 1}}}
    new = {"models": {"parsed": {"ok": 3}}}
    kept = score.not_asked(old, new)
    assert kept == {"models": {"parsed": {"ok": 3}, "reread": {"ok": 2}, "same": {"ok": 1}}}
    assert score.falls(old, kept) == []


def test_lower_figures_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script fails and leaves the scoreboard; with a reason it writes."""
    board = tmp_path / "scoreboard.json"
    board.write_text(json.dumps({"models": {"parsed": {"ok": 2}}}))
    before = board.read_text()
    monkeypatch.setattr(score, "SCOREBOARD", board)
    monkeypatch.setattr(score, "CACHE", tmp_path)
    monkeypatch.setattr(
        score, "examine_all", lambda wanted, workers, only: {"models": {"m": {"parsed": "ok"}}}
    )
    monkeypatch.setattr(score, "available", lambda: True)
    monkeypatch.setattr(score, "tasks", lambda corpus, xla: [])
    nothing = {"counts": {}, "broken": {}}
    monkeypatch.setattr(score.fuzz, "fuzz", lambda package, total, workers: nothing)
    monkeypatch.setenv("HLOOPT_CORPUS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["score.py"])
    assert score.main() == 1
    assert board.read_text() == before

    monkeypatch.setattr(sys, "argv", ["score.py", "--allow-fall", "a part was taken out"])
    assert score.main() == 0
    assert json.loads(board.read_text())["models"]["parsed"] == {"ok": 1}


def test_a_part_is_written_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--part`` writes when told to: the parts of its kind, where they did not fall, and no others."""
    board = tmp_path / "scoreboard.json"
    before = {"models": {"parsed": {"ok": 2}}, "fusion.times": {"exact": {"ok": 2, "of": 3}}}
    board.write_text(json.dumps(before))
    answers = {"exact": "ok: 1 of 3"}
    found = {"fusion.times": {"m": answers}, "fusion.refusals": {"m": {"refused": "ok: 4 of 5"}}}
    monkeypatch.setattr(score, "SCOREBOARD", board)
    monkeypatch.setattr(score, "CACHE", tmp_path)
    monkeypatch.setattr(score, "examine_all", lambda wanted, workers, only: found)
    monkeypatch.setattr(score, "tasks", lambda corpus, xla: [])
    monkeypatch.setattr(score.fuzz, "fuzz", lambda package, total, workers: {"broken": {}})
    monkeypatch.setenv("HLOOPT_CORPUS", str(tmp_path))

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["score.py", "--part", "fusion", *arguments])
        return score.main()

    assert run() == 0
    assert run("--write") == 1
    assert json.loads(board.read_text()) == before
    answers["exact"] = "ok: 3 of 3"
    assert run("--write") == 0
    assert json.loads(board.read_text()) == {
        "models": before["models"],
        "fusion.times": {"exact": {"ok": 3, "of": 3}, "files": {"ok": 1}},
        "fusion.refusals": {"refused": {"ok": 4, "of": 5}, "files": {"ok": 1}},
    }
    monkeypatch.setattr(sys, "argv", ["score.py", "--write"])
    with pytest.raises(SystemExit):
        score.main()


def test_a_part_is_asked_for_by_its_name_or_its_kind() -> None:
    """A name that only begins alike is another part's."""
    assert score.belongs("fusion.times", "fusion")
    assert score.belongs("fusion.times", "fusion.times")
    assert score.belongs("xla-tests.refused", "")
    assert not score.belongs("fusion.times", "fusion.refusals")
    assert not score.belongs("xla-tests", "xla")


@pytest.mark.parametrize("kind", ["emulated", "native"])
def test_figures_of_kernels_and_of_texts_are_each_others_guests(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--emulated`` and ``--native`` write their parts and leave the others, and the other way round."""
    board = tmp_path / "scoreboard.json"
    others = {
        "models": {"parsed": {"ok": 2}},
        "emulated.jax.before": {"clean": {"ok": 3}},
        "native.jax.before": {"native": {"ok": 4}},
    }
    before = {**others, f"{kind}.models": {"clean": {"ok": 1}}}
    del before[f"{kind}.jax.before"]
    board.write_text(json.dumps(before))
    monkeypatch.setattr(score, "SCOREBOARD", board)
    monkeypatch.setattr(score, "CACHE", tmp_path)
    monkeypatch.setattr(score, f"{kind}_tasks", lambda corpus: [])
    found = {f"{kind}.models": {"m": {"clean": "ok"}, "n": {"clean": "ok"}}}
    monkeypatch.setattr(score, "examine_all", lambda wanted, workers, only: found)
    nothing = {"counts": {}, "broken": {}}
    monkeypatch.setattr(score.fuzz, "fuzz", lambda package, total, workers: nothing)
    monkeypatch.setenv("HLOOPT_CORPUS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["score.py", f"--{kind}"])
    assert score.main() == 0
    written = json.loads(board.read_text())
    assert written.pop(f"{kind}.models")["clean"] == {"ok": 2}
    del before[f"{kind}.models"]
    assert written == before


ADDS = """HloModule m

ENTRY e {{
  x = {0}[7] parameter(0)
  ROOT y = {0}[7] add(x, x)
}}
"""


@pytest.fixture
def compiler() -> None:
    """Skip where the host has no C++ compiler."""
    try:
        check_native()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("compiler")
def test_what_is_run_natively(tmp_path: Path) -> None:
    """Each level for itself; what shows nothing says why, and what is not run is refused by both."""
    path = tmp_path / "m.hlo"
    path.write_text(ADDS.format("f32"))
    assert examine_natively(path, NATIVE_STAGES) == dict.fromkeys(NATIVE_STAGES, "ok")
    path.write_text(ADDS.format("f32").replace("f32[7] add(x, x)", "f32[8] add(x, x)"))
    assert examine_natively(path, ("native",))["native"].startswith("skipped: not valid: ")
    path.write_text(
        ADDS.format("f32").replace("add(x, x)", 'custom-call(x), custom_call_target="own"')
    )
    assert "has no evaluation" in examine_natively(path, ("native",))["native"]
    path.write_text(ADDS.format("f32").replace("[7]", "[70000000]"))
    answer = examine_natively(path, ("native",))["native"]
    assert answer.startswith("skipped: ")
    assert "too many" in answer


@pytest.mark.usefixtures("compiler")
def test_a_wrong_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is asked, so that a device that is wrong fails."""
    monkeypatch.setattr(
        native_stages.NativeProgram, "run", lambda _, inputs: [array + 1 for array in inputs]
    )
    path = tmp_path / "m.hlo"
    path.write_text(ADDS.format("s32"))
    assert examine_natively(path, ("native",))["native"].startswith("failed: out_0: ")

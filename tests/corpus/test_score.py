"""The scoring itself: what is excused, what counts as a fall, what a hang or a crash costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import score
from known import RULES, excuse
from stages import RESULT_STAGES, TEXT_STAGES, examine

ELIDED = "the value of this constant is left out of the text ({...}); dump with --xla_dump_..."
MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


def test_a_rule_covers_what_is_said() -> None:
    """By its words, at the stages it names and at no others."""
    said = f"refused: some.hlo:3:4: error: c: {ELIDED}"
    assert "elided" in excuse("ran", said)
    assert not excuse("printed", said)
    assert not excuse("ran", "failed: some.hlo:3:4: error: c: no such thing")


def test_no_rule_matches_the_name_of_a_file() -> None:
    """A file that is called as a rule reads is not let off."""
    for rule in RULES:
        for stage in rule.stages:
            assert not excuse(stage, f"refused: {rule.message}.hlo:1:2: error: x: not supported")


def test_every_rule_is_about_a_stage_that_exists() -> None:
    """A rule for a stage of another name would cover nothing."""
    assert {stage for rule in RULES for stage in rule.stages} <= {*TEXT_STAGES, *RESULT_STAGES}


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


def child(body: str) -> tuple[str, ...]:
    """A worker that does ``body`` for each line it reads."""
    return (sys.executable, "-c", f"import sys, time\nfor line in sys.stdin:\n    {body}\n")


@pytest.mark.parametrize(
    ("body", "limit", "message"),
    [
        ("sys.exit(3)", 60, "failed: the process died"),
        ("sys.stdout.write('{\"parsed'); sys.exit(3)", 60, "failed: the process died"),
        ("time.sleep(60)", 0.5, "failed: no answer in time"),
    ],
)
def test_a_worker_that_dies_or_hangs_costs_one_file(body: str, limit: float, message: str) -> None:
    """The next file gets a new process."""
    worker = score.Worker(child(body), limit)
    try:
        assert worker.ask(Path("a.hlo"), ("parsed",)) == {"parsed": message}
        worker.command, worker.time_limit = child('print(\'{"parsed": "ok"}\', flush=True)'), 60
        assert worker.ask(Path("b.hlo"), ("parsed",)) == {"parsed": "ok"}
    finally:
        worker.close()


def test_a_worker_examines_a_file(tmp_path: Path) -> None:
    """The real child answers what ``examine`` answers here."""
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    worker = score.Worker()
    try:
        assert worker.ask(path, TEXT_STAGES) == examine(path, TEXT_STAGES)
    finally:
        worker.close()
    assert examine(path, TEXT_STAGES) == dict.fromkeys(TEXT_STAGES, "ok")


def test_results_are_reused_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run examines nothing; a changed file is examined again, a torn line is passed over."""
    monkeypatch.setattr(score, "CACHE", tmp_path / "cache")
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    monkeypatch.setattr(score, "parts", lambda corpus: {"models": [path]})
    asked = []

    def ask(self: score.Worker, path: Path, stages: tuple[str, ...]) -> dict[str, str]:
        asked.append(path.read_text())
        return {"parsed": "ok"}

    monkeypatch.setattr(score.Worker, "ask", ask)
    first = score.examine_all(tmp_path, 1)
    assert first == score.examine_all(tmp_path, 1) == {"models": {"m.hlo": {"parsed": "ok"}}}
    assert asked == [MODULE]

    (store,) = (tmp_path / "cache").glob("*.jsonl")
    store.write_text(store.read_text() + '{"key": "half')
    assert score.examine_all(tmp_path, 1) == first
    path.write_text(MODULE + "\n")
    score.examine_all(tmp_path, 1)
    assert asked == [MODULE, MODULE + "\n"]


def test_lower_figures_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script fails and leaves the scoreboard; with a reason it writes."""
    board = tmp_path / "scoreboard.json"
    board.write_text(json.dumps({"models": {"parsed": {"ok": 2}}}))
    before = board.read_text()
    monkeypatch.setattr(score, "SCOREBOARD", board)
    monkeypatch.setattr(score, "CACHE", tmp_path)
    monkeypatch.setattr(
        score, "examine_all", lambda corpus, jobs: {"models": {"m": {"parsed": "ok"}}}
    )
    monkeypatch.setenv("HLOOPT_CORPUS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["score.py"])
    assert score.main() == 1
    assert board.read_text() == before

    monkeypatch.setattr(sys, "argv", ["score.py", "--allow-fall", "a part was taken out"])
    assert score.main() == 0
    assert json.loads(board.read_text())["models"]["parsed"] == {"ok": 1}

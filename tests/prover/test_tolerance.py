"""A slice of what ``make tolerance`` measures: wrong changes are caught, right ones are not called wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from tests.prover.tolerance import RULES, SAMPLES, alarms, examined, subjects, table
from tests.prover.tolerance_mutations import KINDS, wrong_rewrites

FILES = [str(SAMPLES / f"{name}.hlo") for name in ("cartpole_step", "gather", "scatter")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file).stem)
def test_wrong_changes_are_caught(file: str) -> None:
    """All of these, and no fewer than without bounds."""
    (subject,) = subjects([file], 0)
    rows = [row for row in examined(subject, 1, seed=1) if row["outcome"] == "differs"]
    assert len(rows) >= 4
    assert [row for row in rows if not row["judge"]] == []
    assert "all" in table(rows)
    assert all(rule in table(rows) for rule in RULES)


@pytest.mark.parametrize("file", FILES[:2], ids=lambda file: Path(file).stem)
def test_right_ones_are_not(file: str) -> None:
    """After any pipeline, on the processor's executor."""
    (subject,) = subjects([file], 0)
    found = list(alarms(subject, ["cpu"]))
    assert found
    assert [what for what in found if what[1]] == []


def test_changes_are_what_they_say() -> None:
    """Each is valid, of a kind that is listed, and leaves the module it is made of as it was."""
    module = hloopt.parse(Path(FILES[0]).read_text(), "m")
    before = module.to_text()
    found = wrong_rewrites(module, 0, 2)
    assert module.to_text() == before
    assert len({kind for kind, _, _ in found}) >= 8
    for kind, _, changed in found:
        assert kind in KINDS
        hloopt.verify(changed)
        assert changed.to_text() != before

"""The comparison of times: a whole log of XLA agrees, and a wrong time is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.cost_models.model import Comparison
from hloopt.fusion.xla_log import read_log
from hloopt.source import Source
from tests.corpus.fusion_times import Agreement, Pricing, main, pricings


@pytest.fixture(name="log")
def _log(root: Path) -> Path:
    return root / "tests" / "fusion" / "xla" / "steps.priority_fusion_dump.txt"


def test_all_times_of_a_log(log: Path) -> None:
    """Each step of XLA's log has our model's times, those that tell a change only among them."""
    found = list(pricings(read_log(Source(log.read_text(), log.name))))
    assert len(found) == 13
    assert [entry for entry in found if not entry.is_exact] == []
    assert sum(entry.theirs.unfused_us < 2 for entry in found) > 1


def test_a_wrong_time_is_told(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With its place, what is priced, and both sides' times."""
    folder = tmp_path / "jax"
    folder.mkdir()
    text = log.read_text().replace("us_unfused: 2.0285", "us_unfused: 4.057", 1)
    (folder / "steps.fusion_log.txt").write_text(text)
    monkeypatch.setenv("HLOOPT_CORPUS", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["fusion_times.py", "steps"])
    assert main() == 0
    out = capsys.readouterr().out
    assert "13 priced: exact  92.308%" in out
    assert "50.00% steps.fusion_log.txt:2:19 " in out
    assert "unfused_us=4.057" in out


def test_counts() -> None:
    """Infinite times agree with infinite ones alone."""
    endless, short = float("inf"), 1.0
    agreement = Agreement()
    for ours, theirs in ((endless, endless), (short, endless), (1.05, short), (1.01, short)):
        agreement.take(Pricing("", "x", Comparison(1.0, theirs), Comparison(1.0, ours)))
    assert (agreement.priced, agreement.exact) == (4, 1)
    assert (agreement.near, agreement.close) == (2, 3)
    assert agreement.groups == {"x": 3}

"""A seeded slice of the corpus; ``make corpus`` is the whole."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from stages import RESULT_STAGES, TEXT_STAGES, examine

pytestmark = pytest.mark.corpus

SIZE_LIMIT = 120_000  # characters; larger files belong to make corpus


def _slice(folder: str, pattern: str, count: int, limit: int = SIZE_LIMIT) -> list[Path]:
    root = os.environ.get("HLOOPT_CORPUS")
    if not root:
        return []
    paths = sorted((Path(root) / folder).glob(pattern))
    paths = [path for path in paths if path.stat().st_size < limit]
    return random.Random(2023).sample(paths, min(count, len(paths)))


def _cases() -> list[tuple[Path, tuple[str, ...]]]:
    full = TEXT_STAGES + RESULT_STAGES
    return [
        *((path, full) for path in _slice("jax", "*.before.hlo", 24)),
        *((path, full) for path in _slice("jax", "*.after.hlo", 12)),
        *((path, full) for path in _slice("jax", "*.h200.hlo", 12)),
        *((path, TEXT_STAGES) for path in _slice("jax", "*.prefusion.hlo", 4)),
        *((path, TEXT_STAGES) for path in _slice("jax", "*.fused.hlo", 4)),
        *((path, TEXT_STAGES) for path in _slice("models", "*.hlo", 2, 300_000)),
    ] or [(Path("none"), ())]


CASES = _cases()


@pytest.mark.parametrize(("path", "stages"), CASES, ids=[path.name for path, _ in CASES])
def test_slice(path: Path, stages: tuple[str, ...]) -> None:
    """Every stage holds, or the module is refused by a rule with a reason."""
    from known import excuse

    outcome = examine(path, stages)
    wrong = {
        stage: answer
        for stage, answer in outcome.items()
        if answer != "ok" and not excuse(stage, answer)
    }
    assert not wrong

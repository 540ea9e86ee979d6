"""A seeded slice of the corpus; ``make corpus`` is the whole."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hloopt.backends.native import check_native
from hloopt.errors import DeviceError
from tests.corpus.native_stages import NATIVE_STAGES
from tests.corpus.stages import RESULT_STAGES, TEXT_STAGES, examine

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


def _native_cases() -> list[Path]:
    """Small programs, and XLA's own tests that have recorded results."""
    tests = _slice("xla-tests", "texts/*.hlo", 80, 4_000)
    golden = [path for path in tests if (path.parents[1] / "golden" / f"{path.stem}.npz").exists()]
    return [*_slice("jax", "*.before.hlo", 2, 12_000), *golden[:6]] or [Path("none")]


CASES = _cases()
NATIVE_CASES = _native_cases()


@pytest.mark.parametrize(("path", "stages"), CASES, ids=[path.name for path, _ in CASES])
def test_slice(path: Path, stages: tuple[str, ...]) -> None:
    """Every stage holds, or the module is refused by a rule with a reason."""
    from tests.corpus.known import excuse

    outcome = examine(path, stages)
    wrong = {
        stage: answer
        for stage, answer in outcome.items()
        if answer != "ok" and not excuse(stage, answer)
    }
    assert not wrong


@pytest.mark.parametrize("path", NATIVE_CASES, ids=[path.name for path in NATIVE_CASES])
def test_native_slice(path: Path) -> None:
    """What is compiled for this processor gives the recorded results, as it is and after -O2."""
    from tests.corpus.known import excuse

    try:
        check_native()
    except DeviceError as error:
        pytest.skip(str(error))
    outcome = examine(path, (NATIVE_STAGES[0], NATIVE_STAGES[2]))
    wrong = {
        stage: answer
        for stage, answer in outcome.items()
        if answer != "ok" and not excuse(stage, answer)
    }
    assert not wrong

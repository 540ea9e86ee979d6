"""XLA's words for not fusing, and our codes for the same."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hloopt.fusion.decision import REASONS
from hloopt.fusion.xla_reasons import XLA_REASONS, code_of


def test_every_row_has_a_code_that_exists_and_is_reached() -> None:
    """Parts are in small letters, and no earlier row takes a later row's words for another reason."""
    for part, code in XLA_REASONS:
        assert code in REASONS
        assert part == part.lower()
        assert code_of(f"%fusion.1: {part.upper()} (64)") == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("the producer is not fusible", "producer-not-fusible"),
        ("not fusing because there are only bitcast users", "only-bitcast-users"),
        (
            "fusion into output of a reduce fusion would create a loop fusion",
            "loses-reduction-kernel",
        ),
        ("Unsupported opcode gather", "triton-unsupported"),
        (
            "Fusion can not be tiled with SymbolicTileAnalysis: Unsupported tiling",
            "triton-not-tiled",
        ),
        ("Producer fusion has multiple non-elementwise ops, bailing.", "in-place-several-accesses"),
        ("shared memory usage would be over the budget of 49152B", "shared-memory"),
        ("fusion.3 and fusion.4 are connected", "siblings-connected"),
        ("the moon is full", None),
    ],
)
def test_words_have_codes(words: str, code: str | None) -> None:
    """Names and figures do not matter; words that nobody has seen have none."""
    assert code_of(words) == code


@pytest.mark.corpus
def test_the_words_of_the_corpus_have_codes() -> None:
    """Every reason in every log that the corpus has."""
    folder = os.environ["HLOOPT_CORPUS"]
    found: set[str] = set()
    for path in (Path(folder) / "jax").glob("*.fusion_log.txt"):
        found.update(
            re.findall(r'^    reason: "((?:[^"\\]|\\.)*)"', path.read_text(), re.MULTILINE)
        )
    assert found
    assert [words for words in found if code_of(words) is None] == []

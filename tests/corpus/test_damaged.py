"""A slice of the damaged texts; ``make corpus`` has 100,000 of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.errors import ParseError
from hloopt.workers.process import Worker
from hloopt.workers.records import NoAnswer
from tests.corpus import fuzz
from tests.corpus.judge import judge
from tests.corpus.mutate import MUTATIONS, Mutator
from tests.helpers.rarely import one_in

MODULE = "HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p)\n}\n"


@pytest.mark.parametrize("first", one_in(2, [0, 250]))
def test_damaged_samples_are_answered(first: int) -> None:
    """Every text is refused at a place of it, or read, printed and read again; none crashes."""
    small = [text for text in fuzz.sources(None) if len(text) < 25_000]
    mutator = Mutator(small, fuzz.SEED)
    counts = Counter(fuzz.judged(mutator, index) for index in range(first, first + 250))
    assert set(counts) == {"refused", "invalid", "valid", "optimised"}
    assert counts["refused"] > 50
    assert counts["optimised"] > 5


def test_the_seed_and_the_number_make_the_text() -> None:
    """Another seed or number makes another text, the same ones the same."""
    texts = fuzz.sources(None)
    first, again, other = Mutator(texts, 1), Mutator(texts, 1), Mutator(texts, 2)
    made = [first.text(index) for index in range(20)]
    assert made == [again.text(index) for index in range(20)]
    assert len(set(made)) == 20
    assert made != [other.text(index) for index in range(20)]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_takes_any_text(mutation: Any) -> None:
    """Also an empty one, one without brackets or numbers, and one of a single token."""
    import random

    from tests.corpus.mutate import _Text

    for text in ("", " ", "x", "7", "{", MODULE):
        for seed in range(20):
            chance = random.Random(seed)
            mutation(_Text(text, chance), _Text(MODULE, chance))


def test_what_is_judged() -> None:
    """How far a text comes is told; a place outside the text and a wrong print are found."""
    assert judge("HloModule m\nENTRY e {", optimize=True) == "refused"
    assert judge(MODULE, optimize=False) == "valid"
    assert judge(MODULE, optimize=True) == "optimised"
    assert judge(MODULE.replace("ROOT n = f32[2]", "n = f32[3]"), optimize=True) == "invalid"


@pytest.mark.parametrize(("line", "column"), [(0, 1), (9, 1), (1, 0), (1, 13)])
def test_a_place_outside_the_text_is_a_defect(
    line: int, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge does not take a ParseError for an answer when its place does not exist."""

    def parse(text: str, name: str = "", *, strict: bool = False) -> Any:
        raise ParseError("no", name=name, line=line, column=column)

    monkeypatch.setattr(hloopt, "parse", parse)
    with pytest.raises(AssertionError, match=r"no line|no column"):
        judge("HloModule m\n", optimize=False)


def test_a_text_printed_wrongly_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A printer that writes another module is found."""
    printed = MODULE.replace("negate", "abs")
    monkeypatch.setattr(hloopt.Module, "to_text", lambda module: printed)
    with pytest.raises(AssertionError, match="reads as another module"):
        judge(MODULE, optimize=False)


def test_a_text_that_takes_too_long_is_named(tmp_path: Path) -> None:
    """The child ends itself by its processor time, wherever it spends it."""
    body = "import re, sys, signal\nfor line in sys.stdin:\n"
    body += "    signal.setitimer(signal.ITIMER_PROF, 0.2)\n    re.match('(a+)+b', 'a' * 60)\n"
    told = "too much processor time"
    with (
        closing(Worker((sys.executable, "-c", body), 60)) as worker,
        pytest.raises(NoAnswer, match=told),
    ):
        worker.ask(1)


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks that are kept are not judged again; what failed stays named."""
    asked = []

    def ask(self: Worker, index: int) -> str:
        asked.append(index)
        if index == 7:
            raise NoAnswer("the process died")
        return "failed: KeyError: 'x'" if index == 8 else "refused"

    monkeypatch.setattr(fuzz, "CACHE", tmp_path)
    monkeypatch.setattr(Worker, "ask", ask)
    wanted = {
        "counts": {"refused": 2 * fuzz.BLOCK - 2, "failed": 2},
        "broken": {"7": "failed: the process died", "8": "failed: KeyError: 'x'"},
    }
    assert fuzz.fuzz("package", 2 * fuzz.BLOCK) == wanted
    assert asked == list(range(2 * fuzz.BLOCK))
    (store,) = tmp_path.glob("*.jsonl")
    lines = store.read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines[1:]] == ["0", str(fuzz.BLOCK)]

    store.write_text("\n".join([*lines[:2], lines[2][:20]]))
    asked.clear()
    assert fuzz.fuzz("package", 2 * fuzz.BLOCK) == wanted
    assert asked == list(range(fuzz.BLOCK, 2 * fuzz.BLOCK))
    assert fuzz.fuzz("another package", fuzz.BLOCK)["counts"]["failed"] == 2

"""XLA's log as a history: names through time, and what its prices come to."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.fusion.xla_history import XlaHistory
from hloopt.fusion.xla_log import XlaLog, read_log
from hloopt.source import Source

ROOT = Path(__file__).parents[2]
LOGS = (*(ROOT / "samples" / "xla_dump").glob("*priority_fusion_dump.txt"),
        *(ROOT / "tests" / "fusion" / "xla").glob("*priority_fusion_dump.txt"))  # fmt: skip


def log_of(path: Path) -> XlaLog:
    return read_log(Source(path.read_text(), path.name))


def story_of(path: Path) -> XlaHistory:
    log = log_of(path)
    module = path.with_name(path.name.replace(".priority_fusion_dump.txt", ".before.hlo"))
    text = log.module_text or module.read_text()
    return XlaHistory.read(hloopt.parse(text), log)


@pytest.fixture(scope="module")
def history() -> XlaHistory:
    return story_of(LOGS[0])


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_the_producer_fused_next_is_the_one_that_gains_most(path: Path) -> None:
    """Prices that are changes add up to what XLA's queue had: no other producer waited with a larger gain."""
    waiting: dict[str, float] = {}
    checked = 0
    before = None
    for moment in story_of(path).moments:
        if moment.action == "priced":
            assert moment.gain_us is not None
            waiting[moment.producer] = moment.gain_us
        elif moment.action == "refused":
            waiting.pop(moment.producer, None)
        else:
            gain = waiting.pop(moment.producer, None)
            if gain is not None and moment.producer != before:
                assert gain >= max(waiting.values(), default=gain) - 1e-4, moment
                checked += 1
            if moment.fusion != moment.consumers[0]:
                waiting.pop(moment.consumers[0], None)
        before = moment.producer if moment.action == "fused" else None
    assert checked > 3


def test_names_before_between_and_after(history: XlaHistory) -> None:
    """An instruction, a fusion that is gone, and one that stays, are all found in today's kernels."""
    assert history.kernels_of("exp.4.0") == ["fusion.23", "fusion.13"]
    assert history.kernels_of("fusion.11") == ["fusion.23", "fusion.13"]
    assert history.kernels_of("fusion.23") == ["fusion.23"]
    with pytest.raises(UsageError, match=r"have no instruction 'exp\.9'"):
        history.kernels_of("exp.9")


def test_members_are_the_bodies(history: XlaHistory) -> None:
    """What the history says a kernel is made of is what its body computes."""
    plain = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element"}
    before = hloopt.parse(log_of(LOGS[0]).module_text).entry.by_name

    def stem(name: str) -> str:  # copies of one producer have numbers of their own
        return name.rpartition(".")[0]

    for name, kernel in history.kernels.items():
        if kernel.opcode != "fusion" or kernel.attributes["kind"] == "kCustom":
            continue
        body = kernel.attributes["calls"]
        inside = {stem(entry.name) for entry in body if entry.opcode not in plain}
        members = {stem(one) for one in history.members[name] if before[one].opcode not in plain}
        assert inside == members, name


def test_a_kernel_keeps_the_last_word_under_its_old_name(history: XlaHistory) -> None:
    """Constants made the first kernel a fusion in the end; what XLA said of the reduction before still counts."""
    (kernel,) = history.kernels_of("reduce_max.21.0")
    assert kernel != "reduce_max.21.0"
    word = history.last_word(kernel)
    assert word is not None
    assert (word.producer, word.code) == ("reduce_max.21.0", "loses-reduction-kernel")


def test_borders_are_what_goes_through_memory(history: XlaHistory) -> None:
    """Every kernel but those that only the result reads, with who reads it."""
    found = {
        border.producer.name: [one.name for one in border.readers] for border in history.borders()
    }
    assert found["fusion.13"] == ["fusion.4"]
    assert found["fusion.23"] == ["fusion.14", "fusion.13"]
    assert "fusion.4" not in found

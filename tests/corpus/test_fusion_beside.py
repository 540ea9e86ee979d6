"""Priority fusion beside XLA's on the short programs of the corpus; ``fusion_beside.py`` measures all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hloopt.fusion.xla_log import read_log
from hloopt.source import Source
from tests.corpus.fusion_beside import BOTH, Verdicts, compare, verdicts

SHORT = 30_000
"""Bytes of a log up to which its program is tried here."""

PAIR = """HloModule m
ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] abs(x)
  b = f32[64] negate(a)
  c = f32[64] custom-call(b), custom_call_target="f"
  ROOT r = f32[64] custom-call(c, a), custom_call_target="g"
}
"""
LOG = """fusion_steps { producer_ineligible { producer_name: "a" reason: "the consumer is not fusible" } }
fusion_steps { producer_ineligible { producer_name: "b" reason: "the consumer is not fusible" } }
fusion_steps { producer_ineligible { producer_name: "c" reason: "No users to fuse" } }
fusion_steps { update_priority { producer_name: "b" consumer_names: "c" us_fused: 1 us_unfused: 2 } }
"""


def _folder() -> Path:
    return Path(os.environ["HLOOPT_CORPUS"]) / "jax"


def _short_programs() -> list[str]:
    logs = _folder().glob("*.fusion_log.txt")
    names = (log.name.removesuffix(".fusion_log.txt") for log in logs if log.stat().st_size < SHORT)
    return sorted(names)


@pytest.mark.corpus
def test_short_programs_are_fused_as_xla_fuses_them() -> None:
    """The same kernels in four of five programs, and as many in all within two in a hundred."""
    found = []
    for name in _short_programs():
        before, after = (
            (_folder() / f"{name}.{stage}.hlo").read_text() for stage in ("prefusion", "fused")
        )
        found.append(compare(before, after, BOTH)[0])
    assert len(found) > 10
    assert sum(outcome.same for outcome in found) >= 0.8 * len(found)
    ours, theirs = (sum(getattr(one, side) for one in found) for side in ("ours", "theirs"))
    assert abs(ours - theirs) <= 0.02 * theirs


@pytest.mark.corpus
def test_short_programs_refuse_what_xla_refuses() -> None:
    """The same producers, for the same reasons, in 97 of a hundred."""
    total = Verdicts()
    for name in _short_programs():
        log = (_folder() / f"{name}.fusion_log.txt").read_text()
        before = (_folder() / f"{name}.prefusion.hlo").read_text()
        verdicts(before, read_log(Source(log, name)), total)
    assert total.refused > 100
    assert total.same_reason >= 0.97 * total.refused
    assert total.allowed_too >= 0.97 * total.allowed


def test_differences_are_counted() -> None:
    """A refusal for another reason, and one where XLA sees a gain, are told apart."""
    total = Verdicts()
    verdicts(PAIR, read_log(Source(LOG)), total)
    assert (total.refused, total.refused_too, total.same_reason) == (3, 3, 2)
    assert (total.allowed, total.allowed_too) == (1, 0)
    assert sum(total.others.values()) == 2


@pytest.mark.parametrize(("pipeline", "same"), [("priority-fusion", True), ("cse", False)])
def test_kernels_are_compared_by_what_they_compute(pipeline: str, same: bool) -> None:
    """Names do not count, and a module that was not fused has other kernels."""
    before = PAIR.replace("negate(a)", "negate(x)")
    before = before.replace("  c = f32[64]", "  d = f32[64] floor(b)\n  c = f32[64]")
    before = before.replace("custom-call(b)", "custom-call(d)")
    after = """HloModule other
body { p = f32[64] parameter(0) q = f32[64] negate(p) ROOT s = f32[64] floor(q) }
ENTRY e {
  y = f32[64] parameter(0)
  k = f32[64] abs(y)
  f = f32[64] fusion(y), kind=kLoop, calls=body
  c = f32[64] custom-call(f), custom_call_target="f"
  ROOT r = f32[64] custom-call(c, k), custom_call_target="g"
}
"""
    outcome, lines = compare(before, after, pipeline)
    assert outcome.same is same
    assert bool(lines) is not same

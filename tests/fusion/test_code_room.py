"""A kernel that would have too much code is not made, where code is bounded; XLA's own decisions stay."""

from __future__ import annotations

from math import log

import pytest

import hloopt
from hloopt.analysis.code_size import MOST_CODE, Room, executed_instructions
from hloopt.analysis.written_code import written
from hloopt.fusion import code_room
from hloopt.fusion.code_room import CodeRoom
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.pipelines import make_pipeline
from hloopt.presets import XLA_PRESETS
from tests.helpers.large_bodies import wavelet
from tests.helpers.support import count_calls


def _fused(text: str, *, bounded: bool) -> tuple[hloopt.Module, FusionPlan]:
    module = hloopt.parse(text)
    return module, PriorityFusion(bounded_code=bounded).fuse(module)


def _fusions(module: hloopt.Module) -> list[hloopt.ir.Instruction]:
    return [one for one in module.entry if one.opcode == "fusion"]


@pytest.mark.every_value
@pytest.mark.parametrize("level", ["O2", "O3"])
@pytest.mark.parametrize("levels", [6, 12, 24])
def test_each_kernel_has_room(level: str, levels: int) -> None:
    """However deep the transform; without a bound kernels have more."""
    module = hloopt.optimize(hloopt.parse(wavelet(levels)), level)
    assert _fusions(module)
    for fusion in _fusions(module):
        most = MOST_CODE.of(executed_instructions(fusion))
        assert written(fusion, 10 * most).size <= most
    free = hloopt.optimize(hloopt.parse(wavelet(levels)), "priority-fusion,cse,dce")
    assert any(
        written(fusion, 10**7).size > MOST_CODE.of(executed_instructions(fusion))
        for fusion in _fusions(free)
    )


def test_the_refusal_has_limit_and_value() -> None:
    _, plan = _fused(wavelet(12), bounded=True)
    decisions = [one.decision for one in plan.refusals if one.decision.code == "code-size"]
    assert decisions
    for decision in decisions:
        assert decision.limit is not None
        assert decision.actual is not None
        assert decision.actual > decision.limit > 20_000
        assert f"{decision.actual} bytes of code or more, {decision.limit} at most" in str(decision)


def test_xla_has_no_such_bound() -> None:
    """The presets decide as XLA does; the levels are the ones that ask."""
    _, plan = _fused(wavelet(12), bounded=False)
    assert all(one.decision.code != "code-size" for one in plan.refusals)
    for name in XLA_PRESETS:
        assert "bounded_code" not in str(make_pipeline(name))
    for level in ("O2", "O3"):
        assert str(make_pipeline(level)).count("bounded_code=true") == 2


SIBLINGS = """HloModule siblings
one {
  x = f32[64] parameter(0)
  a = f32[64] sine(x)
  ROOT b = f32[64] negate(a)
}
two {
  x = f32[64] parameter(0)
  a = f32[64] cosine(x)
  ROOT b = f32[64] negate(a)
}
ENTRY main {
  x = f32[64] parameter(0)
  p = f32[64] fusion(x), kind=kLoop, calls=one
  q = f32[64] fusion(x), kind=kLoop, calls=two
  ROOT r = (f32[64], f32[64]) tuple(p, q)
}
"""

PRODUCER = """HloModule producer
one {
  x = f32[64] parameter(0)
  ROOT a = f32[64] sine(x)
}
two {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT b = f32[64] multiply(x, y)
}
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  p = f32[64] fusion(x), kind=kLoop, calls=one
  q = f32[64] fusion(p, y), kind=kLoop, calls=two
  ROOT r = (f32[64], f32[64]) tuple(p, q)
}
"""


@pytest.mark.parametrize("text", [SIBLINGS, PRODUCER], ids=["siblings", "producer"])
def test_kernels_with_several_results_need_room_for_all(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = MultiOutputFusion(bounded_code=True)
    assert bounded.fuse(hloopt.parse(text)).steps
    monkeypatch.setattr(code_room, "MOST_CODE", Room(60, 0, 10**6))
    plan = bounded.fuse(hloopt.parse(text))
    assert not plan.steps
    assert [one.decision.code for one in plan.refusals if one.decision.limit == 60] == ["code-size"]
    assert MultiOutputFusion().fuse(hloopt.parse(text)).steps


def test_what_is_known_of_a_pair_goes_with_either() -> None:
    """A fusion that has grown is gone through again; so is one of which nobody knows how it reads an operand."""
    module = hloopt.parse(PRODUCER)
    producer, consumer = _fusions(module)
    room = CodeRoom()
    first = room.of_pair(producer, consumer)
    assert room.of_fused(producer, consumer) == first
    room.became(consumer, first)
    assert producer not in first.reads
    assert room.of_pair(producer, consumer) == first
    room.forget(consumer)
    assert room.of_fused(producer, consumer) is None
    assert room.of_pair(producer, consumer) == first


def test_work_grows_with_the_module() -> None:
    """Pairs are gone through where they could be too long, and only as far as there is room."""

    def work(levels: int) -> int:
        module = hloopt.parse(wavelet(levels))
        return count_calls(lambda: PriorityFusion(bounded_code=True).fuse(module))

    work(2)
    assert log(work(48) / work(12)) / log(4) < 1.2

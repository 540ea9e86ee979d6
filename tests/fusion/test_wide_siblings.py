"""A value that very many kernels read: siblings are found at a cost near their number."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision
from hloopt.fusion.multi_output import run
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.support import count_calls


def _wide(count: int, rows: int) -> Module:
    """Fusions that each read the first rows of one parameter, of ``rows`` different sizes."""
    bodies, entry, shapes = "", "", []
    for at in range(count):
        size = at % rows + 1
        shape = f"f32[{size},128]"
        bodies += f"""body{at} {{
  x = f32[1024,128] parameter(0)
  y = {shape} slice(x), slice={{[0:{size}], [0:128]}}
  ROOT r = {shape} {("negate", "sine")[at // rows % 2]}(y)
}}
"""
        entry += f"k{at} = {shape} fusion(x), kind=kLoop, calls=body{at}\n"
        shapes.append(shape)
    names = ", ".join(f"k{at}" for at in range(count))
    root = f"ROOT t = ({', '.join(shapes)}) tuple({names})"
    return hloopt.parse(
        f"HloModule m\n{bodies}ENTRY e {{\nx = f32[1024,128] parameter(0)\n{entry}{root}\n}}\n"
    )


def test_many_readers_of_different_sizes_cost_what_they_are() -> None:
    """Four times the readers are four times the work, not sixteen times."""

    def calls(count: int) -> int:
        module = _wide(count, count)
        return count_calls(lambda: MultiOutputFusion().fuse(module))

    assert calls(800) < 6 * calls(200)


def test_the_same_siblings_are_joined_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether each pair is asked, or only those of one size."""
    wide, pairs = _wide(120, 40), _wide(120, 40)
    steps = MultiOutputFusion().fuse(wide).steps
    monkeypatch.setattr(run, "_TOLD_IN_PAIRS", 1000)
    plan = MultiOutputFusion().fuse(pairs)
    assert len(steps) == 80
    assert steps == plan.steps
    assert wide.to_text() == pairs.to_text()
    assert plan.reasons()["different-loops"] > 0


class _Joiner:
    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        names = {producer.name, consumer.name}
        return Decision(True, words="I want it") if names == {"k0", "k1"} else None


def test_the_users_wish_is_answered_among_many_readers() -> None:
    """Two kernels of different sizes stay apart, and the plan says why."""
    plan = MultiOutputFusion().fuse(_wide(100, 100), PassLog(advice=Advice([_Joiner()])))
    assert plan.steps == []
    (word,) = (
        refusal.decision.code
        for refusal in plan.refusals
        if {refusal.producer, refusal.consumer} == {"k0", "k1"}
    )
    assert word == "different-loops"

"""A value that very many kernels read: siblings are found at a cost near their number."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision
from hloopt.fusion.multi_output import run, siblings
from hloopt.fusion.multi_output.forms import Era
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.growing import SHAPES
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


def _mixed(seed: int, count: int = 90) -> Module:
    """Fusions that read one parameter: in chains, in part or whole, with an operand of their own or another's
    result, of two sizes, some with reductions of either dimension.
    """
    draw = random.Random(seed)
    bodies, entry, results = "", "", list[str]()
    for at in range(count):
        rows = draw.choice([4, 4, 64])
        begin = draw.randrange(65 - rows)
        shape, reduces = f"f32[{rows},128]", draw.random() < 0.3
        before = [f"k{one}" for one, result in enumerate(results) if result == shape]
        given = draw.choice(before) if before and draw.random() < 0.4 else f"y{at}"
        entry += f"y{at} = {shape} iota(), iota_dimension=1\n" if given == f"y{at}" else ""
        axis = draw.randrange(2)
        results.append(f"f32[{(128, rows)[axis]}]" if reduces else shape)
        root = f"reduce(m, z), dimensions={{{axis}}}, to_apply=sum" if reduces else "tanh(m)"
        bodies += f"""body{at} {{
  p = f32[64,128] parameter(0)
  q = {shape} parameter(1)
  s = {shape} slice(p), slice={{[{begin}:{begin + rows}], [0:128]}}
  m = {shape} multiply(s, q)
  z = f32[] constant(0)
  ROOT r = {results[-1]} {root}
}}
"""
        kind = "kInput" if reduces else "kLoop"
        entry += f"k{at} = {results[-1]} fusion(x, {given}), kind={kind}, calls=body{at}\n"
    names = ", ".join(f"k{at}" for at in range(count))
    return hloopt.parse(f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
{bodies}
ENTRY e {{
x = f32[64,128] parameter(0)
{entry}ROOT t = ({", ".join(results)}) tuple({names})
}}
""")


@pytest.mark.every_value
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("era", ["2023", "2026"])
def test_readers_are_left_out_only_where_a_rule_refuses_them(
    seed: int, era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether every pair is asked, one for all that are alike, or each by a walk of the graph."""
    made = []
    for told, few in ((1000, 1000), (1000, 0), (0, 0)):
        monkeypatch.setattr(run, "_TOLD_IN_PAIRS", told)
        monkeypatch.setattr(siblings, "_FEW", few)
        module = _mixed(seed)
        plan = MultiOutputFusion(era=era, max_operands=24, bounded_code=True).fuse(module)
        made.append((plan.steps, module.to_text(), plan))
    assert made[0][:2] == made[1][:2] == made[2][:2]
    assert len(made[0][0]) > 20
    walked, kept, short = (plan.reasons() for *_, plan in made)
    assert walked == kept
    assert "siblings-connected" in kept
    assert ("disjoint-slices" in kept) == (era == "2026")
    assert short.total() < kept.total()


def test_readers_beyond_a_limit_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a note says so."""
    monkeypatch.setattr(run, "_AT_ONCE", 40)
    log = PassLog()
    module = _wide(120, 40)
    steps = MultiOutputFusion().fuse(module, log).steps
    assert steps == []
    assert log.notes == ["%x has 120 readers: siblings are looked for among 40 of them at a time"]


def test_a_chain_of_layers_with_one_weight_costs_what_it_is_long() -> None:
    """Each layer depends on all before it: no walk for each pair, and no reason either."""

    def calls(count: int) -> int:
        module = hloopt.parse(SHAPES["layers"](count))
        return count_calls(lambda: MultiOutputFusion().fuse(module))

    assert calls(400) < 6 * calls(100)

"""The facts of an explanation: which kernel has what, what stands between two instructions, what changes it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import hloopt
from hloopt.cost_models.model import Comparison
from hloopt.fusion.advice import advised
from hloopt.fusion.decision import REASONS, forbid
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.provenance import Provenance
from hloopt.fusion.remedies import HELD, OPTIONS, is_advisable, remedies
from hloopt.pipelines import PASSES, parse_pipeline
from hloopt.rewrite import Controls

# ``e`` is expensive and has two users; ``dot`` is never fused; ``t`` reads elements of a tuple.
TEXT = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  a = f32[64,64] add(x, y)
  e = f32[64,64] log(a)
  b = f32[64,64] multiply(e, x)
  total = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  dot = f32[64,64] dot(b, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] negate(dot)
  n = f32[64,64] negate(y)
  ROOT out = (f32[64,64], f32[64], f32[64,64]) tuple(c, total, n)
}
"""


def explained(text: str, passes: str, times: Any = None) -> tuple[Explanation, Provenance]:
    """The explanation of a module after passes."""
    module = hloopt.parse(text)
    pipeline, advice = advised(parse_pipeline(passes))
    provenance = Provenance(advice.histories)
    pipeline.run(module, controls=Controls(advice=advice, remarks=True), watchers=(provenance,))
    return Explanation(provenance, times, "a model"), provenance


def pair(passes: str, first: str, second: str, times: Any = None) -> Any:
    """Two instructions of ``TEXT``."""
    made, provenance = explained(TEXT, passes, times)
    return made.pair(provenance.nodes["main", first], provenance.nodes["main", second])


def test_two_in_one_kernel() -> None:
    """The kernel with its members in order, and the step that brought them together."""
    found = pair("instruction-fusion", "a", "e")
    (kernel,) = found.common
    assert kernel.members == ("a", "e")
    assert kernel.outputs == ("e",)
    assert kernel.kind == "kLoop"
    (edge,) = found.edges
    (joined,) = edge.joined
    assert (joined.step.producer, joined.step.consumer) == ("a", "e")
    assert joined.pass_name == "instruction-fusion"
    assert not edge.words


def test_two_that_a_rule_keeps_apart() -> None:
    """The code, who said it, whether advice would be heard; times by the model where the strategy has none."""
    asked: list[tuple[str, str, str]] = []

    def times(computation: str, producer: str, consumer: str, multi_output: bool) -> Comparison:
        assert not multi_output
        asked.append((computation, producer, consumer))
        return Comparison(5.0, 3.0)

    found = pair("instruction-fusion", "e", "b", times)
    assert not found.common
    ((word,),) = [edge.words for edge in found.edges]
    assert word.decision.code == "expensive-to-duplicate"
    assert word.advisable
    assert word.comparison == Comparison(5.0, 3.0)
    assert word.model == "a model"
    (asked_of,) = set(asked)
    assert asked_of[2] == "b"


def test_the_order_of_the_two_does_not_matter() -> None:
    """The one that needs the other comes second."""
    found = pair("instruction-fusion", "b", "a")
    assert (found.first.name, found.second.name) == ("a", "b")
    assert found.relation == "path"


def test_a_path_through_several_kernels() -> None:
    """Each edge with its kernels: what crosses, what does not, and what is never fused."""
    found = pair("instruction-fusion", "a", "c")
    assert [(edge.producer.name, edge.consumer.name) for edge in found.edges] == [
        ("a", "e"),
        ("e", "b"),
        ("b", "dot"),
        ("dot", "c"),
    ]
    assert [bool(edge.common) for edge in found.edges] == [True, False, False, False]
    assert not found.edges[2].consumer.fusible


def test_two_that_only_read_the_same() -> None:
    """Neither needs the other: siblings; those of nothing in common are told apart."""
    found = pair("instruction-fusion", "a", "n")
    assert (found.relation, found.shared) == ("siblings", ("y",))
    assert pair("instruction-fusion", "total", "c").relation == "none"


def test_siblings_in_one_kernel() -> None:
    """A kernel of several results has both."""
    found = pair("priority-fusion,multi-output-fusion", "b", "total")
    (kernel,) = found.common
    assert {"b", "total"} <= set(kernel.outputs)


def test_a_copy_in_each_of_two_kernels() -> None:
    """An instruction that was computed twice is in both."""
    made, provenance = explained(TEXT, "priority-fusion")
    around = made.around(provenance.nodes["main", "a"])
    assert len(around.kernels) == 2
    assert all({"a", "e"} <= set(kernel.members) for kernel in around.kernels)
    assert not around.apart


def test_neighbours_that_are_in_no_common_kernel() -> None:
    """Operands and users, plumbing left out; each with the reason."""
    made, provenance = explained(TEXT, "instruction-fusion")
    around = made.around(provenance.nodes["main", "b"])
    assert [edge.producer.name for edge in around.apart] == ["e", "b"]
    codes = [edge.words[-1].decision.code for edge in around.apart]
    assert codes == ["expensive-to-duplicate", "consumer-not-loop-or-input-fusible"]


def test_names_of_the_file_are_followed() -> None:
    """An instruction of a function that is inlined has become the node of the caller."""
    text = """HloModule m
twice { p = f32[8] parameter(0) ROOT d = f32[8] add(p, p) }
ENTRY main {
  x = f32[8] parameter(0)
  d = f32[8] negate(x)
  ROOT r = f32[8] call(d), to_apply=twice
}
"""
    _, provenance = explained(text, "call-inliner,instruction-fusion")
    ((home, name),) = provenance.became["twice", "d"]
    assert home == "main"
    assert provenance.nodes[home, name].opcode == "add"
    assert provenance.became["main", "d"] == [("main", "d")]
    gone = provenance.gone["main", "r"]
    assert (gone.pass_name, gone.run) == ("call-inliner", 1)


def test_a_rule_that_took_an_instruction_away_is_named() -> None:
    """By the remark of the run."""
    text = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={}
  a = f32[8] multiply(x, ones)
  ROOT r = f32[8] negate(a)
}
"""
    _, provenance = explained(text, "simplify,dce,instruction-fusion")
    rewrite = provenance.gone["main", "a"].rewrite
    assert rewrite is not None
    assert rewrite.rule == "A * 1 => A"
    assert provenance.gone["main", "ones"].pass_name in ("simplify", "dce")


def test_kernels_are_called_as_after_all_passes() -> None:
    """A pass that names fusions anew comes after the strategies."""
    made, provenance = explained(TEXT, "instruction-fusion,rename-fusions")
    (kernel,) = made.around(provenance.nodes["main", "a"]).kernels
    assert kernel.now == "loop_log_fusion"
    assert kernel.name != kernel.now


def test_an_op_that_is_wrapped_afterwards_is_the_fusion() -> None:
    """``fusion-wrapper`` comes after the strategies, too."""
    made, provenance = explained(TEXT, "instruction-fusion,fusion-wrapper")
    (kernel,) = made.around(provenance.nodes["main", "n"]).kernels
    assert kernel.now.startswith("wrapped_negate")
    assert kernel.kind == ""


def test_what_costs_most_comes_first() -> None:
    """One row a producer, those that fusing would make slower left out."""
    gains = {"b": 2.0, "total": 1.0, "dot": -1.0}  # ``zero`` goes into ``total``, too

    def times(computation: str, producer: str, consumer: str, multi_output: bool) -> Comparison:
        return Comparison(10.0, 10.0 - gains.get(consumer, 0.0))

    made, _ = explained(TEXT, "instruction-fusion", times)
    rows = made.lost(10, {})
    assert [(row.word.producer, row.word.consumer) for row in rows] == [
        ("e", "b"),
        ("zero", "total"),
    ]
    assert rows[0].others == 1
    assert rows[0].lost_us == 2.0
    assert made.lost(0, {}) == []


def test_a_story_without_strategies() -> None:
    """Every op is a kernel by itself, and nobody has said a word."""
    made, provenance = explained(TEXT, "dce")
    assert made.kernels["main", "a"].members == ("a",)
    assert ("main", "x") not in made.kernels
    assert not made.edge(provenance.nodes["main", "a"], provenance.nodes["main", "e"]).words


@pytest.mark.parametrize("code", sorted(OPTIONS))
def test_every_remedy_is_an_option_of_some_pass(code: str) -> None:
    """And its code is a reason."""
    assert code in REASONS
    names = {
        field.name
        for kind in PASSES.values()
        if kind.__module__.startswith("hloopt.fusion")
        for field in fields(kind)  # type: ignore[arg-type]
    }
    for remedy in OPTIONS[code]:
        assert remedy.option in names


def test_reasons_that_hold_are_reasons() -> None:
    """A code that is renamed is renamed here, too."""
    assert REASONS.keys() >= HELD


def test_the_option_that_would_do() -> None:
    """With the value that lets the pair through; none for a pass that has no such option."""
    instance = PASSES["priority-fusion"]()
    decision = forbid("operands", limit=96, actual=97)
    assert remedies(decision, instance) == ["priority-fusion{max_operands=97}"]
    assert remedies(decision, PASSES["dce"]()) == []
    assert remedies(decision, None) == []
    both = forbid("both-reduce", limit=16, actual=40)
    assert remedies(both, instance) == ["priority-fusion{significant_ratio=41}"]
    assert remedies(forbid("would-cycle"), instance) == []
    assert not is_advisable(decision)
    assert is_advisable(both)


def test_of_several_limits_the_one_that_was_met() -> None:
    """Horizontal fusion has one for loops and one for single ops."""
    instance = PASSES["horizontal-loop-fusion"]()
    decision = forbid("horizontal-size", limit=instance.elements, actual=1 << 20)  # type: ignore[attr-defined]
    assert remedies(decision, instance) == ["horizontal-loop-fusion{elements=1048576}"]

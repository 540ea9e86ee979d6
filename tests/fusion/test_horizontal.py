"""Kernels beside each other that become one: which, which not and why, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.horizontal_input_fusion import HorizontalInputFusion
from hloopt.fusion.horizontal_loop_fusion import HorizontalLoopFusion
from hloopt.ir import Instruction, Module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pass, PassLog
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples
from tests.passes.proof import check, inputs, ordinary

LOOP, SLICED = HorizontalLoopFusion(), HorizontalLoopFusion(era="2020")
HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
"""


def _entry(*lines: str) -> str:
    """A module of instructions over eight vectors, a matrix by columns and two by rows."""
    vectors = [f"v{number} = f32[8]{{0}} parameter({number})" for number in range(8)]
    others = [
        "c0 = f32[2,3]{0,1} parameter(8)",
        "m0 = f32[4,64]{1,0} parameter(9)",
        "m1 = f32[4,64]{1,0} parameter(10)",
        "zero = f32[] constant(0)",
    ]
    return HEAD + "ENTRY e {\n" + "\n".join([*vectors, *others, *lines]) + "\n}\n"


def _vectors(count: int, opcode: str = "negate") -> list[str]:
    return [f"x{at} = f32[8]{{0}} {opcode}(v{at})" for at in range(count)]


def _tuple(names: list[str], shape: str = "f32[8]{0}") -> str:
    return f"ROOT r = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"


def _run(text: str, instance: Pass, advice: Advice | None = None) -> tuple[Module, FusionPlan]:
    module, log = hloopt.parse(text), PassLog(advice=advice)
    instance.run(module, log)
    hloopt.verify(module)
    (plan,) = log.records
    assert isinstance(plan, FusionPlan)
    return module, plan


def _kernels(module: Module) -> list[str]:
    """What the fusions of the entry are made of, without parameters."""
    bodies = [one.attributes["calls"] for one in module.entry if one.opcode == "fusion"]
    return [" ".join(op.opcode for op in body if op.opcode != "parameter") for body in bodies]


def _refusals(plan: FusionPlan) -> dict[str, tuple[str, int | None, int | None]]:
    return {
        row.producer: (row.decision.code, row.decision.limit, row.decision.actual)
        for row in plan.refusals
    }


def test_equal_shapes_stand_side_by_side() -> None:
    """One kLoop fusion with all results, whatever the element type of what is read."""
    text = _entry(*_vectors(3), _tuple(["x0", "x1", "x2"]))
    module, _ = check(text, LOOP)
    assert _kernels(module) == ["negate negate negate tuple"]
    assert [one.attributes["kind"] for one in module.entry if one.opcode == "fusion"] == ["kLoop"]


def test_other_shapes_are_parts_of_one_array() -> None:
    """In memory's order: an array by columns goes in as it lies and comes back by columns."""
    text = _entry(
        "a = f32[8]{0} negate(v0)",
        "b = f32[2,3]{0,1} abs(c0)",
        "ROOT r = (f32[8]{0}, f32[2,3]{0,1}) tuple(a, b)",
    )
    module, _ = check(text, LOOP)
    assert _kernels(module) == ["abs negate bitcast reshape concatenate slice slice tuple"]
    _, plan = _run(text, SLICED)
    assert _refusals(plan) == {
        "a": ("horizontal-alone", None, None),
        "b": ("horizontal-layout", None, None),
    }


def test_a_reader_of_the_whole_tuple_gets_one() -> None:
    """Fusions with several results are joined, too; who reads all of them reads a tuple of the new ones."""
    body = "f{n} {{ p = f32[8]{{0}} parameter(0) a = f32[8]{{0}} negate(p) b = f32[8]{{0}} abs(p)"
    body += " ROOT t = (f32[8]{{0}}, f32[8]{{0}}) tuple(a, b) }}\n"
    shape = "(f32[8]{0}, f32[8]{0})"
    text = HEAD + body.format(n=0) + body.format(n=1)
    text += f"""ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  x = {shape} fusion(p), kind=kLoop, calls=f0
  y = {shape} fusion(q), kind=kLoop, calls=f1
  y1 = f32[8]{{0}} get-tuple-element(y), index=1
  ROOT r = ({shape}, f32[8]{{0}}) tuple(x, y1)
}}
"""
    for instance in (LOOP, SLICED):
        module, _ = check(text, instance)
        assert len(_kernels(module)) == 1
        assert [one.opcode for one in module.entry].count("tuple") == 2


def test_bitcasts_and_results_in_between_are_looked_through() -> None:
    """From 2024 on; the computation's result may stand before the reader that both have."""
    text = _entry(
        "a = f32[8]{0} negate(v0)",
        "b = f32[8]{0} abs(v1)",
        "d = f32[2,4]{1,0} bitcast(a)",
        "f = f32[2,4]{1,0} bitcast(b)",
        "ROOT r = (f32[8]{0}, f32[2,4]{1,0}) tuple(a, f)",
        "late = f32[2,4]{1,0} add(d, f)",
    )
    module, _ = check(text, LOOP)
    assert _kernels(module) == ["negate abs tuple"]
    assert _kernels(_run(text, SLICED)[0]) == []


def test_what_one_needs_of_the_other_through_the_result_stays() -> None:
    """A result of the computation that is read in turn could close a circle."""
    text = _entry(
        "a = f32[8]{0} negate(v0)",
        "ROOT r = f32[8]{0} exponential(a)",
        "b = f32[8]{0} abs(r)",
        "late = f32[8]{0} add(a, b)",
    )
    _, plan = _run(text, LOOP)
    assert not plan.steps
    assert _refusals(plan)["a"][0] == "horizontal-other-users"


def test_new_fusions_are_readers_in_turn() -> None:
    """What both members read, and nothing else, is joined in the same run."""
    text = _entry(
        "a = f32[8]{0} negate(v0)",
        "b = f32[8]{0} abs(v1)",
        "f = f32[8]{0} sine(a)",
        "g = f32[8]{0} cosine(b)",
        _tuple(["f", "g"]),
    )
    module, _ = check(text, LOOP)
    assert _kernels(module) == ["negate abs tuple", "sine cosine tuple"]


@pytest.mark.parametrize(
    ("instance", "lines", "refused"),
    [
        (
            HorizontalLoopFusion(loop_elements=7, elements=7),
            _vectors(2),
            {"x0": ("horizontal-size", 7, 8), "x1": ("horizontal-size", 7, 8)},
        ),
        (
            HorizontalLoopFusion(parameter_bytes=32),
            _vectors(2),
            {"x0": ("horizontal-parameters", 32, 32), "x1": ("horizontal-alone", None, None)},
        ),
        (
            HorizontalLoopFusion(loop_op_outputs=2, outputs=2),
            _vectors(2),
            {"x0": ("horizontal-outputs", 2, 2), "x1": ("horizontal-alone", None, None)},
        ),
        (
            HorizontalLoopFusion(era="2020", outputs=1),
            _vectors(2),
            {"x0": ("horizontal-outputs", 1, 2), "x1": ("horizontal-alone", None, None)},
        ),
        (
            SLICED,
            ["x0 = f32[8]{0} negate(v0)", "x1 = f32[8]{0} abs(v0)"],
            dict.fromkeys(("x0", "x1"), ("horizontal-shares-parameter", None, None)),
        ),
        (
            LOOP,
            ["x0 = f32[8]{0} negate(v0)", "x1 = f32[8]{0} abs(v1)", "y = f32[8]{0} sine(x1)"],
            {
                "x0": ("horizontal-alone", None, None),
                "x1": ("horizontal-other-users", None, None),
            },
        ),
    ],
)
def test_refusals_have_their_limits(
    instance: Pass,
    lines: list[str],
    refused: dict[str, tuple[str, int | None, int | None]],
) -> None:
    """Nothing is joined, and each one says which limit it meets, and with what."""
    module, plan = _run(_entry(*lines, _tuple(["x0", "x1"])), instance)
    assert _kernels(module) == []
    found = _refusals(plan)
    assert {name: found[name] for name in refused} == refused


@pytest.mark.parametrize(
    "instance",
    [
        HorizontalLoopFusion(loop_elements=8),
        HorizontalLoopFusion(parameter_bytes=33),
        HorizontalLoopFusion(loop_op_outputs=3),
        HorizontalLoopFusion(era="2020", outputs=2),
        HorizontalLoopFusion(era="2020", elements=8),
        HorizontalLoopFusion(era="2020", parameter_bytes=17),
    ],
)
def test_limits_may_be_met(instance: Pass) -> None:
    """One more than what was refused is enough."""
    module, _ = _run(_entry(*_vectors(2), _tuple(["x0", "x1"])), instance)
    assert len(_kernels(module)) == 1


def test_instructions_of_fusions_are_counted() -> None:
    """Parameters and tuple included; in sliced fusions of old all members have as many."""
    bodies = """f { p = f32[8]{0} parameter(0) a = f32[8]{0} negate(p) ROOT b = f32[8]{0} abs(a) }
g { p = f32[8]{0} parameter(0) ROOT a = f32[8]{0} negate(p) }
"""
    text = _entry(
        "x = f32[8]{0} fusion(v0), kind=kLoop, calls=f",
        "y = f32[8]{0} fusion(v1), kind=kLoop, calls=g",
        _tuple(["x", "y"]),
    ).replace("ENTRY", bodies + "ENTRY")
    tight = HorizontalLoopFusion(loop_instructions=2, instructions=2)
    _, plan = _run(text, tight)
    assert _refusals(plan)["x"] == ("horizontal-instructions", 2, 3)
    assert _kernels(_run(text, HorizontalLoopFusion(loop_instructions=3))[0]) == [
        "negate negate abs tuple"
    ]
    assert len(_kernels(_run(text, SLICED)[0])) == 2


def test_a_limit_ends_a_group_and_the_next_begins() -> None:
    """Five kernels with room for two results each."""
    names = [f"x{at}" for at in range(5)]
    limited = HorizontalLoopFusion(loop_op_outputs=3, loop_outputs=3, outputs=3)
    module, _ = check(_entry(*_vectors(5), _tuple(names)), limited)
    assert _kernels(module) == ["negate negate tuple", "negate negate tuple"]


def test_a_prefix_begins_the_names() -> None:
    """XLA joins the copies that keep buffers apart in a run of its own, and calls them so."""
    text = _entry(*_vectors(2, "copy"), _tuple(["x0", "x1"]))
    module, _ = _run(text, HorizontalLoopFusion(prefix="copy_"))
    fusion = module.entry.by_name["copy_fusion"]
    assert fusion.attributes["calls"].name == "copy_horizontally_fused_computation"
    with pytest.raises(hloopt.UsageError, match="prefix=a b: no name begins like that"):
        HorizontalLoopFusion(prefix="a b")


@pytest.mark.parametrize("instance", [LOOP, SLICED])
def test_executors_run_joined_kernels(instance: Pass) -> None:
    """As the interpreter does, in both forms."""
    text = _entry(
        "a = f32[8]{0} exponential(v0)",
        "b = f32[8]{0} add(v1, v2)",
        "m = f32[4,64]{1,0} negate(m0)",
        "ROOT r = (f32[8]{0}, f32[8]{0}, f32[4,64]{1,0}) tuple(a, b, m)",
    )
    module, _ = _run(text, instance)
    arrays = ordinary(inputs(module, 3))
    got = hloopt.compile(module, device="cpu", exact=True).run(arrays)
    for one, other in zip(hloopt.evaluate(hloopt.parse(text), arrays), got, strict=True):
        np.testing.assert_array_equal(one, other)


class _Says:
    """An adviser with one answer for pairs of two names."""

    def __init__(self, allowed: bool, *names: str) -> None:
        self.allowed, self.names = allowed, set(names)

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        if {producer.name, consumer.name} == self.names:
            return Decision(self.allowed, "" if self.allowed else "advised", words="by hand")
        return None


def test_the_user_keeps_two_apart() -> None:
    """The others are joined all the same."""
    text = _entry(*_vectors(4), _tuple(["x0", "x1", "x2", "x3"]))
    module, plan = _run(text, LOOP, Advice((_Says(False, "x0", "x2"),)))
    assert _kernels(module) == ["negate negate negate tuple"]
    assert {step.producer for step in plan.steps} == {"x1", "x3"}


def test_the_user_wants_two_together() -> None:
    """Limits of profit give way, a second reader does not."""
    lines = ["x0 = f32[8]{0} negate(v0)", "x1 = f32[8]{0} abs(v0)"]
    wanted = Advice((_Says(True, "x0", "x1"),))
    small = HorizontalLoopFusion(loop_elements=1, elements=1)
    assert len(_kernels(_run(_entry(*lines, _tuple(["x0", "x1"])), small, wanted)[0])) == 1
    other = ["y = f32[8]{0} sine(x1)", _tuple(["x0", "x1", "y"])]
    assert _kernels(_run(_entry(*lines, *other), small, wanted)[0]) == []


def _reduce(name: str, matrix: str) -> str:
    return f"{name} = f32[4]{{0}} reduce({matrix}, zero), dimensions={{1}}, to_apply=sum"


def test_reductions_of_one_form_are_joined() -> None:
    """Three ops, one kernel; the results of each come out in the places of old."""
    text = _entry(
        _reduce("a", "m0"),
        _reduce("b", "m1"),
        "m2 = f32[4,64]{1,0} add(m0, m1)",
        _reduce("d", "m2"),
        _tuple(["a", "b", "d"], "f32[4]{0}"),
    )
    module, _ = check(text, HorizontalInputFusion())
    assert _kernels(module) == ["reduce reduce reduce tuple"]


@pytest.mark.parametrize(
    ("instance", "refused"),
    [
        (HorizontalInputFusion(max_reductions=1), ("reductions", 1, 2)),
        (HorizontalInputFusion(shared_memory=255), ("shared-memory", 255, 256)),
        (HorizontalInputFusion(max_operands=4), ("operands", 4, 5)),
    ],
)
def test_kernels_have_room_for_so_many(
    instance: Pass, refused: tuple[str, int | None, int | None]
) -> None:
    """Each limit is met by the second of two reductions."""
    text = _entry(_reduce("a", "m0"), _reduce("b", "m1"), _tuple(["a", "b"], "f32[4]{0}"))
    module, plan = _run(text, instance)
    assert _kernels(module) == []
    assert _refusals(plan)["b"] == refused


def test_other_reductions_and_other_readers_stand_apart() -> None:
    """One over rows beside one over all elements, then one that somebody else reads."""
    whole = "b = f32[] reduce(m1, zero), dimensions={0,1}, to_apply=sum"
    root = "ROOT r = (f32[4]{0}, f32[]) tuple(a, b)"
    _, plan = _run(_entry(_reduce("a", "m0"), whole, root), HorizontalInputFusion())
    assert _refusals(plan) == {"b": ("different-reductions", None, None)}
    lines = [_reduce("a", "m0"), _reduce("b", "m1"), "n = f32[4]{0} negate(b)"]
    _, plan = _run(_entry(*lines, _tuple(["a", "b", "n"], "f32[4]{0}")), HorizontalInputFusion())
    assert not plan.steps
    assert _refusals(plan)["b"] == ("horizontal-other-users", None, None)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs(), era=st.sampled_from(["2020", "2024"]))
def test_random_programs_keep_every_bit(text: str, era: str) -> None:
    """Fused down and across, and once more: valid, and the same results."""
    module = hloopt.parse(text)
    before = results(module)
    across = f"horizontal-loop-fusion{{era={era}}},horizontal-input-fusion,cse,dce"
    pipeline = parse_pipeline(f"instruction-fusion{{may_duplicate=false}},fix({across})")
    pipeline.run(module, verify_each=True)
    assert results(module) == before
    parse_pipeline("rename-fusions,copy-insertion,copy-fusion,fusion-wrapper").run(
        module, verify_each=True
    )
    assert results(module) == before


def test_what_waits_for_the_result_is_no_neighbour() -> None:
    """Fused with ``a``, ``b`` would wait for itself: its operand runs after the result."""
    text = """HloModule m
ENTRY e {
  x = f32[16] parameter(0)
  y = f32[16] parameter(1)
  a = f32[16] exponential(x)
  ROOT r = (f32[16]) tuple(a)
  w = f32[16] copy(y), control-predecessors={r}
  b = f32[16] exponential(w)
  c = (f32[16], f32[16]) tuple(a, b)
}
"""
    module, _ = _run(text, LOOP)
    assert _kernels(module) == []

    module, _ = _run(text.replace(", control-predecessors={r}", ""), LOOP)
    assert _kernels(module) != []


def _adam(sizes: list[int]) -> str:
    """An optimizer's step over some vectors: the new parameter and the new momentum of each."""
    lines, names = [], []
    for at, size in enumerate(sizes):
        kind = f"f32[{size}]{{0}}"
        lines += [f"p{at} = {kind} parameter({2 * at})", f"g{at} = {kind} parameter({2 * at + 1})"]
        lines += [f"a{at} = {kind} multiply(g{at}, g{at})", f"b{at} = {kind} add(p{at}, a{at})"]
        names.append(f"b{at}")
    shapes = ", ".join(f"f32[{size}]{{0}}" for size in sizes)
    joined = "\n".join(lines)
    return f"{HEAD}ENTRY e {{\n{joined}\nROOT r = ({shapes}) tuple({', '.join(names)})\n}}\n"


GUARDED = HorizontalLoopFusion(cost_model="xla-2026")


def test_a_group_is_joined_where_the_model_prices_it_lower() -> None:
    text = _adam([16, 32, 48, 64])
    fused = hloopt.optimize(hloopt.parse(text), "priority-fusion", target="h200").to_text()
    module, plan = _run(fused, GUARDED)
    assert len(_kernels(module)) == 1
    assert all(step.comparison is not None and step.comparison.gain_us > 2 for step in plan.steps)
    check(fused, GUARDED)


def test_a_group_that_the_model_prices_higher_is_left_apart() -> None:
    """One kernel reads all that it reads as it has to read the transposed array: not by whole transactions."""
    lines = [
        "p = f32[4096,3]{1,0} parameter(0)",
        "q = f32[3,4096]{1,0} parameter(1)",
        "t = f32[4096,3]{1,0} transpose(q), dimensions={1,0}",
        "a = f32[4096,3]{1,0} add(p, t)",
        "x = f32[260000]{0} parameter(2)",
        "b = f32[260000]{0} multiply(x, x)",
        "ROOT r = (f32[4096,3]{1,0}, f32[260000]{0}) tuple(a, b)",
    ]
    text = f"{HEAD}ENTRY e {{\n" + "\n".join(lines) + "\n}\n"
    fused = hloopt.optimize(hloopt.parse(text), "priority-fusion", target="h200").to_text()
    rules, _ = _run(fused, HorizontalLoopFusion())
    module, plan = _run(fused, GUARDED)
    assert len(_kernels(rules)) == 1
    assert not plan.steps
    refused = [one.decision for one in plan.refusals if one.decision.code == "slower"]
    assert all(one.comparison is not None and one.comparison.gain_us <= 0 for one in refused)
    assert len(refused) == 2
    assert not [one for one in module if one.name.startswith("horizontally")]


def test_a_loop_body_is_looked_at_with_a_model_only() -> None:
    body = _adam([16, 32]).replace("ENTRY e", "ENTRY main")
    inner = body[len(HEAD) :].replace("ENTRY main", "inner")
    text = (
        f"{HEAD}{inner}ENTRY e {{\n"
        + "\n".join(f"q{at} = f32[{16 * (at // 2 + 1)}]{{0}} parameter({at})" for at in range(4))
        + "\nROOT r = (f32[16]{0}, f32[32]{0}) call(q0, q1, q2, q3), to_apply=inner\n}\n"
    )
    fused = hloopt.optimize(hloopt.parse(text), "priority-fusion", target="h200").to_text()
    assert _run(fused, HorizontalLoopFusion())[1].steps == []
    assert _run(fused, GUARDED)[1].steps


def test_a_device_without_threads_is_left_alone() -> None:
    fused = _adam([16, 32])
    assert not _run(fused, HorizontalLoopFusion(cost_model="xla-2026", target="host"))[1].steps


WEIGHED = HorizontalInputFusion(cost_model="xla-2026")


def _sums(first: str) -> str:
    """Two sums over rows, as they are fused: of ``first``, and of squares."""
    lines = [
        "p = f32[2048,512]{1,0} parameter(0)",
        "q = f32[512,2048]{1,0} parameter(1)",
        "x = f32[2048,512]{1,0} parameter(2)",
        "zero = f32[] constant(0)",
        "t = f32[2048,512]{1,0} transpose(q), dimensions={1,0}",
        f"a = f32[2048,512]{{1,0}} {first}",
        "b = f32[2048,512]{1,0} multiply(x, x)",
        "s = f32[2048]{0} reduce(a, zero), dimensions={1}, to_apply=sum",
        "u = f32[2048]{0} reduce(b, zero), dimensions={1}, to_apply=sum",
        "ROOT r = (f32[2048]{0}, f32[2048]{0}) tuple(s, u)",
    ]
    text = f"{HEAD}ENTRY e {{\n" + "\n".join(lines) + "\n}\n"
    return hloopt.optimize(hloopt.parse(text), "priority-fusion", target="h200").to_text()


def test_reductions_are_joined_where_the_model_prices_them_lower() -> None:
    """What is tried leaves no trace: a second computation that the sums call has as many callers as before."""
    text = _sums("negate(p)")
    module, plan = _run(text, WEIGHED)
    (step,) = plan.steps
    assert step.comparison is not None
    assert step.comparison.gain_us > 0
    assert len(_kernels(module)) == 1
    assert len(module.computations["sum"].callers) == 2
    lines = [_reduce("a", "m0"), _reduce("b", "m1"), _tuple(["a", "b"], "f32[4]{0}")]
    assert _kernels(check(_entry(*lines), WEIGHED)[0]) == ["reduce reduce tuple"]


def test_reductions_that_the_model_prices_no_lower_are_left_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a launch cost nothing, one kernel would read and write what both do."""
    monkeypatch.setattr(Xla2026, "launch_ns", 0.0)
    text = _sums("add(p, t)")
    assert len(_kernels(_run(text, HorizontalInputFusion())[0])) == 1
    module, plan = _run(text, WEIGHED)
    assert module.to_text() == hloopt.parse(text).to_text()
    (refused,) = [one.decision for one in plan.refusals if one.decision.code == "slower"]
    assert refused.comparison is not None
    assert refused.comparison.gain_us <= 0


def test_reductions_on_a_device_without_threads_are_left_alone() -> None:
    instance = HorizontalInputFusion(cost_model="xla-2026", target="host")
    assert not _run(_sums("negate(p)"), instance)[1].steps


@pytest.mark.parametrize("cost_model", ["", "xla-2026"])
@pytest.mark.parametrize("kind", [HorizontalInputFusion, HorizontalLoopFusion])
def test_a_misspelt_target_is_refused_with_and_without_a_model(
    kind: type[HorizontalInputFusion | HorizontalLoopFusion], cost_model: str
) -> None:
    with pytest.raises(hloopt.UsageError, match="unknown target 'h20'; did you mean 'h200'"):
        _run(_sums("negate(p)"), kind(cost_model=cost_model, target="h20"))

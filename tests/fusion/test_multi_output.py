"""Kernels with several results: which siblings and producers share one, and each reason why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.partition import compare_partitions, partition
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples
from tests.helpers.support import count_calls

FOLDER = Path(__file__).parent / "xla"
SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
BIG = "f32[64,2048]"


def _loop(name: str, opcode: str = "negate", shape: str = BIG) -> str:
    """A body of one elementwise op."""
    return f"{name} {{ x = {shape} parameter(0) ROOT r = {shape} {opcode}(x) }}\n"


def _row_sums(name: str, shape: str, kept: str, dimensions: str = "{1}") -> str:
    return f"""{name} {{
  x = {shape} parameter(0)
  z = f32[] constant(0)
  n = {shape} negate(x)
  ROOT r = {kept} reduce(n, z), dimensions={dimensions}, to_apply=sum
}}
"""


def _turned(name: str, source: str, result: str) -> str:
    return f"""{name} {{
  x = {source} parameter(0)
  n = {source} negate(x)
  ROOT r = {result} transpose(n), dimensions={{1,0}}
}}
"""


def _module(entry: str, bodies: str) -> Module:
    return hloopt.parse(f"HloModule m\n{SUM}{bodies}ENTRY e {{\n{entry}\n}}\n")


def _run(
    entry: str,
    bodies: str = "",
    options: MultiOutputFusion | None = None,
    advice: Advice | None = None,
) -> tuple[Module, FusionPlan]:
    module = _module(entry, bodies)
    plan = (options or MultiOutputFusion()).fuse(module, PassLog(advice=advice))
    hloopt.verify(module)
    return module, plan


def _siblings(first: str, second: str, shape: str, shared: str = BIG) -> str:
    """Two fusions that read ``x``."""
    return f"""x = {shared} parameter(0)
f = {shape.split("|", maxsplit=1)[0]} fusion(x), kind={first}
g = {shape.rsplit("|", maxsplit=1)[-1]} fusion(x), kind={second}
ROOT r = ({shape.split("|", maxsplit=1)[0]}, {shape.rsplit("|", maxsplit=1)[-1]}) tuple(f, g)"""


def _codes(plan: FusionPlan) -> dict[tuple[str, str], str]:
    return {
        (refusal.producer, refusal.consumer): refusal.decision.code for refusal in plan.refusals
    }


def _sample(stage: str) -> Module:
    return hloopt.parse((FOLDER / f"steps.{stage}.hlo").read_text())


def test_the_partition_is_xlas() -> None:
    """From XLA's module before its pass to that after it."""
    module = _sample("before_multi_output")
    plan = MultiOutputFusion().fuse(module)
    hloopt.verify(module)
    assert len(plan.steps) == 1
    assert not compare_partitions(partition(module), partition(_sample("after_multi_output")))
    assert compare_partitions(partition(module), partition(_sample("before_multi_output")))


def test_siblings_become_one_kernel() -> None:
    """What both read is read once; the plan has the step, and the kernel the names XLA gives it."""
    module, plan = _run(
        _siblings("kLoop, calls=a", "kLoop, calls=b", BIG), _loop("a") + _loop("b", "abs")
    )
    (step,) = plan.steps
    assert (step.producer, step.consumer, step.fusion) == ("g", "f", "f")
    assert (step.multi_output, step.duplicated, step.kind) == (True, False, "kLoop")
    assert (plan.strategy, plan.cost_model, plan.target) == (
        "multi-output-fusion", "xla-2026", "h200",
    )  # fmt: skip
    fusion = module.entry.by_name["f"]
    body = fusion.attributes["calls"]
    assert [entry.opcode for entry in body] == ["parameter", "abs", "negate", "tuple"]
    assert [parameter.name for parameter in body.parameters] == ["param_0"]
    assert "b" not in module.computations


def test_a_reduction_makes_the_kernel_kinput() -> None:
    """A loop over what the reduction reads has room in its kernel."""
    _, plan = _run(
        _siblings("kLoop, calls=a", "kInput, calls=s", f"{BIG}|f32[64]"),
        _loop("a") + _row_sums("s", BIG, "f32[64]"),
    )
    assert [step.kind for step in plan.steps] == ["kInput"]


def test_siblings_need_not_be_fusions_but_one() -> None:
    """An op joins a fusion; of two ops, none is there to be joined."""
    entry = f"""x = {BIG} parameter(0)
f = {BIG} fusion(x), kind=kLoop, calls=a
g = {BIG} abs(x)
ROOT r = ({BIG}, {BIG}) tuple(f, g)"""
    _, plan = _run(entry, _loop("a"))
    assert [step.producer_opcode for step in plan.steps] == ["abs"]
    _, plan = _run(entry.replace("fusion(x), kind=kLoop, calls=a", "negate(x)"))
    assert plan.steps == []


PAIRS = {
    "different-loops": (
        _siblings("kLoop, calls=a", "kLoop, calls=b", f"{BIG}|f32[64,1024]"),
        _loop("a") + "b { x = f32[64,2048] parameter(0) "
        "ROOT r = f32[64,1024] slice(x), slice={[0:64], [512:1536]} }\n",
    ),
    "different-reductions": (
        _siblings("kInput, calls=a", "kInput, calls=b", "f32[64]|f32[2048]"),
        _row_sums("a", BIG, "f32[64]") + _row_sums("b", BIG, "f32[2048]", "{0}"),
    ),
    "different-transposes": (
        """x = f32[128,64,32] parameter(0)
f = f32[32,64,128] fusion(x), kind=kInput, calls=a
g = f32[64,32,128] fusion(x), kind=kInput, calls=b
ROOT r = (f32[32,64,128], f32[64,32,128]) tuple(f, g)""",
        "".join(
            f"{name} {{ x = f32[128,64,32] parameter(0) ROOT t = {shape} transpose(x), "
            f"dimensions={dims} }}\n"
            for name, shape, dims in (
                ("a", "f32[32,64,128]", "{2,1,0}"),
                ("b", "f32[64,32,128]", "{1,2,0}"),
            )
        ),
    ),
    "reduction-and-transpose": (
        _siblings("kInput, calls=a", "kInput, calls=b", "f32[64]|f32[2048,64]"),
        _row_sums("a", BIG, "f32[64]") + _turned("b", BIG, "f32[2048,64]"),
    ),
    "transpose-without-tiles": (
        """x = f32[3,4096] parameter(0)
f = f32[3] fusion(x), kind=kInput, calls=a
g = f32[4096,3] fusion(x), kind=kLoop, calls=b
ROOT r = (f32[3], f32[4096,3]) tuple(f, g)""",
        _row_sums("a", "f32[3,4096]", "f32[3]") + _turned("b", "f32[3,4096]", "f32[4096,3]"),
    ),
    "disjoint-slices": (
        _siblings("kLoop, calls=a", "kLoop, calls=b", "f32[32,2048]"),
        "".join(
            f"{name} {{ x = {BIG} parameter(0) ROOT r = f32[32,2048] slice(x), "
            f"slice={{[{start}:{start + 32}], [0:2048]}} }}\n"
            for name, start in (("a", 0), ("b", 32))
        ),
    ),
    "several-updates": (
        f"""x = {BIG} parameter(0)
i = s32[] parameter(1)
f = {BIG} fusion(x, i), kind=kLoop, calls=a
g = {BIG} fusion(x), kind=kLoop, calls=b
ROOT r = ({BIG}, {BIG}) tuple(f, g)""",
        f"a {{ x = {BIG} parameter(0) i = s32[] parameter(1) "
        "s = f32[1,2048] slice(x), slice={[0:1], [0:2048]} "
        f"ROOT r = {BIG} dynamic-update-slice(x, s, i, i) }}\n" + _loop("b"),
    ),
    "shared-memory": (
        _siblings("kInput, calls=a", "kInput, calls=b", "f64[2048]", "f64[512,2048]"),
        "add64 { a = f64[] parameter(0) b = f64[] parameter(1) ROOT c = f64[] add(a, b) }\n"
        + "".join(
            f"{name} {{ x = f64[512,2048] parameter(0) z = f64[] constant(0) "
            f"n = f64[512,2048] {opcode}(x) "
            "ROOT r = f64[2048] reduce(n, z), dimensions={0}, to_apply=add64 }\n"
            for name, opcode in (("a", "negate"), ("b", "abs"))
        ),
    ),
}


@pytest.mark.parametrize("code", PAIRS)
def test_siblings_that_stay_apart(code: str) -> None:
    """Each rule forbids, with its code; the shared-memory case has room where blocks have more."""
    entry, bodies = PAIRS[code]
    _, plan = _run(entry, bodies)
    assert plan.steps == []
    assert _codes(plan) == {("g", "f"): code}
    if code == "shared-memory":
        _, plan = _run(entry, bodies, MultiOutputFusion(shared_memory=10**6))
        assert [step.producer for step in plan.steps] == ["g"]


def test_slices_of_small_values_may_have_nothing_in_common() -> None:
    """The limit is an option, and negative it is off, as in 2023."""
    entry, bodies = PAIRS["disjoint-slices"]
    for options in (
        MultiOutputFusion(slice_overlap_bytes=10**6),
        MultiOutputFusion(slice_overlap_bytes=-1),
        MultiOutputFusion(era="2023"),
    ):
        _, plan = _run(entry, bodies, options)
        assert [step.producer for step in plan.steps] == ["g"]
    _, plan = _run(entry, bodies.replace("[32:64]", "[31:63]"))
    assert [step.producer for step in plan.steps] == ["g"]


def test_the_rules_of_2023() -> None:
    """Any transpose goes with a reduction that it shares a loop with; reductions have equal shapes, not forms."""
    entry, bodies = PAIRS["transpose-without-tiles"]
    _, plan = _run(entry, bodies, MultiOutputFusion(era="2023", cost_model="xla-2023"))
    assert [step.producer for step in plan.steps] == ["g"]
    entry = """x = f32[64,32,64] parameter(0)
b = f32[64,2048] bitcast(x)
f = f32[64] fusion(x), kind=kInput, calls=p
g = f32[64] fusion(b), kind=kInput, calls=q
h = f32[64] fusion(x), kind=kInput, calls=s
ROOT r = (f32[64], f32[64], f32[64]) tuple(f, g, h)"""
    bodies = (
        _row_sums("p", "f32[64,32,64]", "f32[64]", "{1,2}")
        + _row_sums("q", "f32[64,2048]", "f32[64]")
        + "s { x = f32[64,32,64] parameter(0) z = f32[] constant(0) b = f32[64,2048] bitcast(x) "
        "ROOT r = f32[64] reduce(b, z), dimensions={1}, to_apply=sum }\n"
    )
    assert [step.producer for step in _run(entry, bodies)[1].steps] == ["h"]
    _, plan = _run(entry, bodies, MultiOutputFusion(era="2023"))
    assert plan.steps == []
    assert _codes(plan)["h", "f"] == "different-reductions"


def test_a_scalar_is_no_shared_value() -> None:
    """Reading it twice costs nothing; in 2023 that held for constants."""
    bodies = "".join(
        f"{name} {{ x = f32[] parameter(0) b = {BIG} broadcast(x), dimensions={{}} "
        f"ROOT r = {BIG} {opcode}(b) }}\n"
        for name, opcode in (("a", "negate"), ("b", "abs"))
    )
    entry = _siblings("kLoop, calls=a", "kLoop, calls=b", BIG, "f32[]")
    _, plan = _run(entry, bodies)
    assert plan.steps == []
    assert _codes(plan) == {("x", ""): "shared-is-scalar"}
    _, plan = _run(entry, bodies, MultiOutputFusion(era="2023"))
    assert [step.producer for step in plan.steps] == ["g"]


def test_one_that_needs_the_other_is_no_sibling() -> None:
    """Nor are two that meet through a third."""
    entry = f"""x = {BIG} parameter(0)
f = {BIG} fusion(x), kind=kLoop, calls=a
s = {BIG} sort(f), dimensions={{1}}, to_apply=less
g = {BIG} fusion(s, x), kind=kLoop, calls=b
ROOT r = ({BIG}, {BIG}) tuple(f, g)"""
    bodies = (
        _loop("a")
        + f"b {{ x = {BIG} parameter(0) y = {BIG} parameter(1) ROOT r = {BIG} add(x, y) }}\n"
        "less { p = f32[] parameter(0) q = f32[] parameter(1) "
        "ROOT c = pred[] compare(p, q), direction=LT }\n"
    )
    _, plan = _run(entry, bodies)
    assert plan.steps == []
    assert _codes(plan)["g", "f"] == "siblings-connected"


DIAMOND = f"""x = {BIG} parameter(0)
p = {BIG} fusion(x), kind=kLoop, calls=a
c = {BIG} fusion(p), kind=kLoop, calls=b
s = {BIG} sort(p), dimensions={{1}}, to_apply=less
ROOT r = ({BIG}, {BIG}) tuple(c, s)"""
LESS = (
    "less { p = f32[] parameter(0) q = f32[] parameter(1) "
    "ROOT c = pred[] compare(p, q), direction=LT }\n"
)


def test_a_producer_joins_one_user_and_keeps_its_result() -> None:
    """The others read the kernel; the plan has the times that decided."""
    module, plan = _run(DIAMOND, _loop("a") + _loop("b", "abs") + LESS)
    (step,) = plan.steps
    assert (step.producer, step.consumer, step.multi_output) == ("p", "c", True)
    assert step.comparison is not None
    assert step.comparison.fused_us < step.comparison.unfused_us
    fusion = module.entry.by_name["c"]
    assert [entry.opcode for entry in fusion.attributes["calls"].root.operands] == ["abs", "negate"]
    assert _codes(plan)["p", "s"] == "not-multi-output-root"


def test_a_producer_of_one_user_was_decided_about() -> None:
    """Unless that has several results by now, or the user of hloopt wants it."""
    entry = f"""x = {BIG} parameter(0)
p = {BIG} fusion(x), kind=kLoop, calls=a
ROOT c = {BIG} fusion(p), kind=kLoop, calls=b"""
    _, plan = _run(entry, _loop("a") + _loop("b", "abs"))
    assert (plan.steps, plan.refusals) == ([], [])
    _, plan = _run(
        entry, _loop("a") + _loop("b", "abs"), advice=Advice((_Wanted({("p", "c"): True}),))
    )
    assert [(step.producer, step.multi_output) for step in plan.steps] == [("p", False)]


def test_fusions_with_several_results_are_preferred() -> None:
    """They stay able to take in more; of equals the first one counts."""
    entry = f"""x = {BIG} parameter(0)
p = {BIG} fusion(x), kind=kLoop, calls=a
o = {BIG} floor(p)
c = {BIG} fusion(p), kind=kLoop, calls=b
m = ({BIG}, {BIG}) fusion(p), kind=kLoop, calls=two
m0 = {BIG} get-tuple-element(m), index=0
m1 = {BIG} get-tuple-element(m), index=1
ROOT r = ({BIG}, {BIG}, {BIG}, {BIG}) tuple(o, c, m0, m1)"""
    two = (
        f"two {{ x = {BIG} parameter(0) y = {BIG} sine(x) z = {BIG} cosine(x) "
        f"ROOT t = ({BIG}, {BIG}) tuple(y, z) }}\n"
    )
    _, plan = _run(entry, _loop("a") + _loop("b", "abs") + two, MultiOutputFusion(siblings=False))
    assert [(step.producer, step.consumer) for step in plan.steps] == [("p", "m")]
    entry = entry.replace(
        "fusion(p), kind=kLoop, calls=two", 'custom-call(p), custom_call_target="k"'
    )
    _, plan = _run(entry, _loop("a") + _loop("b", "abs"), MultiOutputFusion(siblings=False))
    assert [(step.producer, step.consumer) for step in plan.steps] == [("p", "c")]


@pytest.mark.parametrize(
    ("producer", "bodies", "code"),
    [
        (f"({BIG}, {BIG}) fusion(x), kind=kLoop, calls=two", "", "producer-is-multi-output"),
        (
            f"{BIG} fusion(x, u, i), kind=kLoop, calls=upd",
            (
                f"upd {{ x = {BIG} parameter(0) u = f32[1,2048] parameter(1) "
                f"i = s32[] parameter(2) ROOT r = {BIG} dynamic-update-slice(x, u, i, i) }}\n"
            ),
            "producer-in-place",
        ),
        (f"{BIG} copy(x)", "", "producer-transposes"),
        (f"{BIG} sort(x), dimensions={{1}}, to_apply=less", LESS, "producer-not-loop-fusible"),
    ],
)  # fmt: skip
def test_producers_that_are_no_result(producer: str, bodies: str, code: str) -> None:
    """What such a kernel could not compute element by element beside its user's results."""
    value = "p"
    if "calls=two" in producer:
        bodies = (
            f"two {{ x = {BIG} parameter(0) y = {BIG} sine(x) z = {BIG} cosine(x) "
            f"ROOT t = ({BIG}, {BIG}) tuple(y, z) }}\n"
        )
        value = "p0"
    element = ""
    if value == "p0":
        element = "".join(f"p{n} = {BIG} get-tuple-element(p), index={n}\n" for n in range(2))
    entry = f"""x = {BIG} parameter(0)
u = f32[1,2048] parameter(1)
i = s32[] parameter(2)
p = {producer}
{element}c = {BIG} abs({value})
d = {BIG} floor({value})
ROOT r = ({BIG}, {BIG}) tuple(c, d)"""
    _, plan = _run(entry, bodies)
    assert plan.steps == []
    assert _codes(plan)["p", ""] == code


def test_no_cycle_is_made() -> None:
    """A user that needs the producer through another instruction, too."""
    entry = f"""x = {BIG} parameter(0)
p = {BIG} fusion(x), kind=kLoop, calls=a
s = {BIG} sort(p), dimensions={{1}}, to_apply=less
ROOT c = {BIG} fusion(p, s), kind=kLoop, calls=b"""
    bodies = (
        _loop("a")
        + f"b {{ x = {BIG} parameter(0) y = {BIG} parameter(1) ROOT r = {BIG} add(x, y) }}\n"
        + LESS
    )
    _, plan = _run(entry, bodies)
    assert plan.steps == []
    assert _codes(plan)["p", "c"] == "would-cycle"
    advised = _Wanted({("p", "c"): True})
    _, plan = _run(entry, bodies, advice=Advice((advised,)))
    assert _codes(plan)["p", "c"] == "would-cycle"


def test_what_would_take_longer_stays() -> None:
    """The reads of the producer would be repeated for each of the wider user's elements."""
    entry = """x = f32[1,4096] parameter(0)
p = f32[1,4096] fusion(x), kind=kLoop, calls=a
c = f32[1] fusion(p), kind=kInput, calls=s
s = f32[1,4096] sort(p), dimensions={1}, to_apply=less
ROOT r = (f32[1], f32[1,4096]) tuple(c, s)"""
    bodies = (
        "a { x = f32[1,4096] parameter(0) " + "".join(
            f"e{n + 1} = f32[1,4096] {'power' if n < 40 else 'add'}(" + ("x, x" if not n else f"e{n}, x") + ") "
            for n in range(40)
        ) + "ROOT r = f32[1,4096] negate(e40) }\n"
    )  # fmt: skip
    bodies += _row_sums("s", "f32[1,4096]", "f32[1]") + LESS
    _, plan = _run(entry, bodies)
    refusal = next(entry for entry in plan.refusals if entry.consumer == "c")
    assert refusal.decision.code == "slower"
    assert refusal.decision.comparison is not None
    assert refusal.decision.comparison.fused_us > refusal.decision.comparison.unfused_us
    _, plan = _run(entry, bodies, advice=Advice((_Wanted({("p", "c"): True}),)))
    assert [step.producer for step in plan.steps] == ["p"]


def test_code_stays_small() -> None:
    """The limit on the code of both together is an option."""
    bodies = _loop("a") + _loop("b", "abs") + LESS
    _, plan = _run(DIAMOND, bodies, MultiOutputFusion(max_ir_size=1))
    assert _codes(plan)["p", "c"] == "ir-size"
    _, plan = _run(DIAMOND, bodies, MultiOutputFusion(max_operands=4))
    assert _codes(plan) == {("p", "s"): "not-multi-output-root"}
    _, plan = _run(DIAMOND, bodies, MultiOutputFusion(max_operands=2))
    assert _codes(plan)["p", "c"] == "operands"


def test_each_half_can_be_left_out() -> None:
    """Siblings alone, producers alone."""
    entry, bodies = (
        _siblings("kLoop, calls=a", "kLoop, calls=b", BIG),
        _loop("a") + _loop("b", "abs"),
    )
    assert not _run(entry, bodies, MultiOutputFusion(siblings=False))[1].steps
    bodies += LESS
    assert not _run(DIAMOND, bodies, MultiOutputFusion(producer_consumer=False))[1].steps


class _Wanted:
    """Answers by the names of both."""

    def __init__(self, answers: dict[tuple[str, str], bool]) -> None:
        self.answers = answers

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        known = self.answers.get((producer.name, consumer.name))
        if known is None:
            return None
        return Decision(True, "advised", words="yes") if known else forbid("advised", words="no")


def test_the_users_word() -> None:
    """A no keeps siblings apart; a yes outweighs slices and scalars, not the form of the kernel."""
    entry, bodies = (
        _siblings("kLoop, calls=a", "kLoop, calls=b", BIG),
        _loop("a") + _loop("b", "abs"),
    )
    _, plan = _run(entry, bodies, advice=Advice((_Wanted({("g", "f"): False}),)))
    assert plan.steps == []
    assert _codes(plan) == {("g", "f"): "advised"}
    yes = Advice((_Wanted({("g", "f"): True}),))
    for code, stays in (
        ("disjoint-slices", False),
        ("several-updates", False),
        ("different-loops", True),
    ):
        _, plan = _run(*PAIRS[code], advice=yes)
        assert bool(plan.steps) is not stays


def test_fuel() -> None:
    """The refusal says so, of siblings and of producers."""
    entry, bodies = (
        _siblings("kLoop, calls=a", "kLoop, calls=b", BIG),
        _loop("a") + _loop("b", "abs"),
    )
    _, plan = _run(entry, bodies, MultiOutputFusion(fuel=0))
    assert _codes(plan) == {("g", "f"): "out-of-fuel"}
    _, plan = _run(DIAMOND, bodies + LESS, MultiOutputFusion(fuel=0))
    assert _codes(plan)["p", "c"] == "out-of-fuel"


def test_what_is_made_elsewhere_takes_no_part() -> None:
    """Custom fusions neither join nor are joined, nor does one that shares buffers by the number of results."""
    entry = _siblings("kCustom, calls=a", "kLoop, calls=b", BIG)
    bodies = _loop("a") + _loop("b", "abs")
    assert not _run(entry, bodies)[1].steps
    entry = _siblings(
        "kLoop, calls=a", "kLoop, calls=b, output_to_operand_aliasing={{}: (0, {})}", BIG
    )
    assert not _run(entry, bodies)[1].steps


def test_a_reduce_of_two_arrays_keeps_its_tuple() -> None:
    """It is one result of the kernel, and its elements are read from there."""
    bodies = """both {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  m = f32[] maximum(b, d)
  ROOT t = (f32[], f32[]) tuple(s, m)
}
two {
  x = f32[4,64] parameter(0)
  z = f32[] constant(0)
  n = f32[4,64] negate(x)
  ROOT r = (f32[4], f32[4]) reduce(x, n, z, z), dimensions={1}, to_apply=both
}
"""
    entry = """x = f32[4,64] parameter(0)
f = (f32[4], f32[4]) fusion(x), kind=kInput, calls=two
f0 = f32[4] get-tuple-element(f), index=0
f1 = f32[4] get-tuple-element(f), index=1
g = f32[4,64] fusion(x), kind=kLoop, calls=a
ROOT r = (f32[4], f32[4], f32[4,64]) tuple(f0, f1, g)"""
    bodies += _loop("a", "abs", "f32[4,64]")
    module, plan = _run(entry, bodies)
    assert [step.producer for step in plan.steps] == ["g"]
    assert str(module.entry.by_name["f"].shape) == "((f32[4], f32[4]), f32[4,64])"
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    before, after = (hloopt.evaluate(each, [values]) for each in (_module(entry, bodies), module))
    assert [part.tobytes() for part in before] == [part.tobytes() for part in after]


def test_loops_bodies_are_gone_through() -> None:
    """While bodies and conditions, not the bodies of fusions."""
    module = hloopt.parse(f"""HloModule m
{_loop("a")}{_loop("b", "abs")}
body {{
  s = (s32[], {BIG}, {BIG}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {BIG} get-tuple-element(s), index=1
  f = {BIG} fusion(x), kind=kLoop, calls=a
  g = {BIG} fusion(x), kind=kLoop, calls=b
  ROOT t = (s32[], {BIG}, {BIG}) tuple(i, f, g)
}}
condition {{
  s = (s32[], {BIG}, {BIG}) parameter(0)
  ROOT c = pred[] constant(false)
}}
ENTRY e {{
  s = (s32[], {BIG}, {BIG}) parameter(0)
  ROOT w = (s32[], {BIG}, {BIG}) while(s), condition=condition, body=body
}}
""")
    plan = MultiOutputFusion().fuse(module)
    hloopt.verify(module)
    assert [step.computation for step in plan.steps] == ["body"]


@pytest.mark.parametrize(
    "options", [{"cost_model": "no"}, {"target": "no"}], ids=["model", "target"]
)
def test_unknown_names(options: dict[str, str]) -> None:
    """Models and targets nobody knows are mistakes of usage."""
    with pytest.raises(UsageError, match="no"):
        MultiOutputFusion(**options).fuse(_module("ROOT x = f32[] parameter(0)", ""))


@pytest.mark.parametrize("era", ["2023", "2026"])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_random_programs_keep_every_bit(era: str, text: str) -> None:
    """After instruction fusion, as pipelines have it; a fused text is read back."""
    module = hloopt.parse(text)
    before = results(module)
    InstructionFusion().fuse(module)
    model = "xla-2023" if era == "2023" else "xla-2026"
    MultiOutputFusion(era=era, cost_model=model).fuse(module)  # type: ignore[arg-type]
    hloopt.verify(module)
    assert results(module) == before
    assert hloopt.parse(module.to_text()).to_text() == module.to_text()


def _many(count: int) -> Module:
    """Pairs of siblings, each pair behind the other."""
    lines = [f"v0 = {BIG} parameter(0)"]
    for at in range(count):
        lines += [
            f"first{at} = {BIG} fusion(v{at}), kind=kLoop, calls=a",
            f"other{at} = {BIG} fusion(v{at}), kind=kLoop, calls=b",
            f'v{at + 1} = {BIG} custom-call(first{at}, other{at}), custom_call_target="k"',
        ]
    lines[-1] = "ROOT " + lines[-1]
    return _module("\n".join(lines), _loop("a") + _loop("b", "abs"))


def test_work_is_linear() -> None:
    """Twice the pairs take about twice the work: nothing is built anew after each edit."""
    small, large = _many(60), _many(120)
    few = count_calls(lambda: MultiOutputFusion().fuse(small))
    assert count_calls(lambda: MultiOutputFusion().fuse(large)) < 2.3 * few

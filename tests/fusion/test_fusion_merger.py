"""Merging loop fusions into all of their users by cost: what is merged, and each reason why not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision
from hloopt.fusion.fusion_merger import FusionMerger
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples

HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
scale { x = f32[64] parameter(0) y = f32[64] parameter(1) ROOT s = f32[64] multiply(x, y) }
shift { s = f32[64] parameter(0) y = f32[64] parameter(1) ROOT t = f32[64] add(s, y) }
clip { s = f32[64] parameter(0) y = f32[64] parameter(1) ROOT u = f32[64] minimum(s, y) }
"""
SHARED = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
p = f32[64] fusion(x, y), kind=kLoop, calls=scale
a = f32[64] fusion(p, y), kind=kLoop, calls=shift
b = f32[64] fusion(p, x), kind=kLoop, calls=clip
ROOT r = (f32[64], f32[64]) tuple(a, b)"""


def _module(entry: str, bodies: str = "") -> Module:
    return hloopt.parse(f"{HEAD}{bodies}\nENTRY e {{\n{entry}\n}}\n")


def _plan(entry: str, bodies: str = "", options: FusionMerger | None = None) -> FusionPlan:
    module = _module(entry, bodies)
    plan = (options or FusionMerger()).fuse(module)
    hloopt.verify(module)
    return plan


def _refusal(entry: str, bodies: str = "", options: FusionMerger | None = None) -> Decision:
    """Why ``p`` was not merged: the decision of the user that could not take it."""
    plan = _plan(entry, bodies, options)
    assert "p" not in {step.producer for step in plan.steps}, plan.steps
    (found,) = (
        refusal.decision
        for refusal in plan.refusals
        if refusal.producer == "p" and refusal.decision.code != "not-into-all"
    )
    return found


def _is_merged(entry: str, bodies: str = "", options: FusionMerger | None = None) -> bool:
    plan = _plan(entry, bodies, options)
    return "p" in {step.producer for step in plan.steps}


def test_a_fusion_goes_into_all_of_its_users_and_is_gone() -> None:
    """A copy in each; the steps tell which copies are duplicates, and the times of all together."""
    module = _module(SHARED)
    plan = FusionMerger().fuse(module)
    hloopt.verify(module)
    assert {entry.opcode for entry in module.entry} == {"parameter", "fusion", "tuple"}
    assert "p" not in module.entry.by_name
    first = module.entry.by_name["a"].attributes["calls"]
    assert [entry.opcode for entry in first] == ["parameter", "parameter", "multiply", "add"]
    assert [parameter.name for parameter in first.parameters] == ["param_0", "param_1"]
    told = [
        (step.consumer, step.consumer_opcode, step.fusion, step.duplicated) for step in plan.steps
    ]
    assert told == [("a", "add", "a", True), ("b", "minimum", "b", False)]
    assert plan.strategy == "fusion-merger"
    assert (plan.cost_model, plan.target) == ("xla-2023", "h200")
    times = plan.steps[0].comparison
    assert times is not None
    assert times.unfused_us > 3 > times.fused_us > 2


def test_a_plain_user_becomes_a_fusion() -> None:
    """A reduction an input fusion, anything else a loop fusion."""
    entry = """x = f32[64] parameter(0)
z = f32[] constant(0)
p = f32[64] fusion(x, x), kind=kLoop, calls=scale
a = f32[] reduce(p, z), dimensions={0}, to_apply=sum
b = f32[64] negate(p)
ROOT r = (f32[], f32[64]) tuple(a, b)"""
    module = _module(entry)
    plan = FusionMerger().fuse(module)
    hloopt.verify(module)
    assert [(step.consumer, step.kind) for step in plan.steps] == [("a", "kInput"), ("b", "kLoop")]
    assert not any(step.fusion in ("a", "b") for step in plan.steps)


def test_producers_come_before_their_users() -> None:
    """A chain becomes one kernel in one run."""
    entry = """x = f32[64] parameter(0)
p = f32[64] fusion(x, x), kind=kLoop, calls=scale
q = f32[64] fusion(p, x), kind=kLoop, calls=shift
ROOT r = f32[64] fusion(q, x), kind=kLoop, calls=clip"""
    module = _module(entry)
    FusionMerger().fuse(module)
    assert [item.opcode for item in module.entry] == ["parameter", "fusion"]


TANHS = "\n".join(f"t{at} = f32[4096] tanh(t{at - 1})" for at in range(1, 10))
SLOW = f"""slow {{ t0 = f32[4096] parameter(0)
{TANHS}
ROOT t = f32[4096] tanh(t9) }}
spread {{ s = f32[4096] parameter(0) ROOT b = f32[4096,512] broadcast(s), dimensions={{0}} }}"""
SPREAD = """x = f32[4096] parameter(0)
p = f32[4096] fusion(x), kind=kLoop, calls=slow
ROOT r = f32[4096,512] fusion(p), kind=kLoop, calls=spread"""


def test_what_would_take_longer_stays() -> None:
    """Ten tanh for each of 512 copies; both times are told, and equal times would be merged."""
    decision = _refusal(SPREAD, SLOW)
    assert decision.code == "slower"
    assert decision.comparison is not None
    assert decision.comparison.fused_us > decision.comparison.unfused_us
    assert f"{decision.comparison.fused_us:.3f} us" in decision.reason
    quick = SLOW.replace("tanh", "negate")
    assert _is_merged(SPREAD, quick)


def test_the_device_and_the_model_are_options() -> None:
    """A name nobody knows is told before anything is touched."""
    faster = FusionMerger(target="b200")
    here, there = _refusal(SPREAD, SLOW).comparison, _refusal(SPREAD, SLOW, faster).comparison
    assert here is not None
    assert there is not None
    assert there.fused_us < here.fused_us
    for options in (FusionMerger(target="h2000"), FusionMerger(cost_model="xla-2032")):
        module = _module(SHARED)
        before = module.to_text()
        with pytest.raises(UsageError, match=r"h2000|xla-2032"):
            options.fuse(module)
        assert module.to_text() == before


def _halving(name: str, times: int) -> str:
    lines = ["v0 = f32[64] parameter(0)"]
    for at in range(times):
        size = 64 >> at + 1
        lines += [
            f"e{at} = f32[{size}] slice(v{at}), slice={{[0:{2 * size}:2]}}",
            f"o{at} = f32[{size}] slice(v{at}), slice={{[1:{2 * size}:2]}}",
            f"v{at + 1} = f32[{size}] add(e{at}, o{at})",
        ]
    lines[-1] = "ROOT " + lines[-1]
    return f"{name} {{\n" + "\n".join(lines) + "\n}\n"


def test_code_that_would_be_written_too_often() -> None:
    """Six halvings read their operand 64 times; the code of a producer is written as often."""
    entry = """x = f32[64] parameter(0)
p = f32[64] fusion(x, x), kind=kLoop, calls=scale
ROOT r = f32[1] fusion(p), kind=kLoop, calls=halve"""
    # Three instructions a level, written once for each index they are read under; its parameter 64 times.
    size = 64 * 3 + 3 * (1 + 2 + 4 + 8 + 16 + 32) + 64
    decision = _refusal(entry, _halving("halve", 6), FusionMerger(max_ir_size=size - 1))
    assert (decision.code, decision.limit, decision.actual) == ("ir-size", size - 1, size)
    assert _is_merged(entry, _halving("halve", 6), FusionMerger(max_ir_size=size))


PADS = """pads {{ x = f32[4] parameter(0) z = f32[] constant(0)
{lines} }}
last {{ s = f32[64] parameter(0) ROOT n = f32[64] negate(s) }}"""


def test_ops_that_interrupt_index_computations() -> None:
    """Each pad may double the code; ten of them are too large, eleven too many."""
    entry = """x = f32[4] parameter(0)
p = f32[64] fusion(x), kind=kLoop, calls=pads
ROOT r = f32[64] fusion(p), kind=kLoop, calls=last"""

    def bodies(count: int) -> str:
        lines = [f"p1 = f32[{64 - count + 1}] pad(x, z), padding=0_{60 - count + 1}"]
        lines += [
            f"p{at} = f32[{64 - count + at}] pad(p{at - 1}, z), padding=0_1"
            for at in range(2, count + 1)
        ]
        lines[-1] = "ROOT " + lines[-1]
        return PADS.format(lines="\n".join(lines))

    assert _is_merged(entry, bodies(8))
    decision = _refusal(entry, bodies(10))
    assert (decision.code, decision.limit) == ("ir-size", 10000)
    decision = _refusal(entry, bodies(11))
    assert (decision.code, decision.limit, decision.actual) == ("block-splits", 10, 11)
    loose = FusionMerger(max_splits=11, max_ir_size=1 << 20)
    assert _is_merged(entry, bodies(11), loose)


def test_bitcasts_take_nothing() -> None:
    """One among the users keeps the producer out of all; the others are told on whose account."""
    entry = """x = f32[64] parameter(0)
p = f32[64] fusion(x, x), kind=kLoop, calls=scale
c = f32[8,8] bitcast(p)
a = f32[64] fusion(p, x), kind=kLoop, calls=shift
ROOT r = (f32[8,8], f32[64]) tuple(c, a)"""
    plan = _plan(entry)
    told = {(found.producer, found.consumer): str(found.decision) for found in plan.refusals}
    assert told["p", "c"].startswith("consumer-is-bitcast: ")
    assert told["p", "a"].startswith("not-into-all: ")
    assert " c " in told["p", "a"]


@pytest.mark.parametrize(
    ("user", "code"),
    [
        ('f32[64] custom-call(p), custom_call_target="x"', "custom-call"),
        ("(f32[64]) tuple(p)", "consumer-is-tuple"),
        ("f32[] dot(p, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
         "consumer-not-loop-or-input-fusible"),
        ("f32[64] fusion(p, x), kind=kCustom, calls=shift", "consumer-is-custom"),
        ("f32[64] call(p), to_apply=other", "consumer-not-fusible"),
    ],
)  # fmt: skip
def test_users_that_take_nothing(user: str, code: str) -> None:
    """Calls, tuples, dots, kernels made elsewhere, and what has side effects."""
    entry = f"""x = f32[64] parameter(0)
p = f32[64] fusion(x, x), kind=kLoop, calls=scale
r = {user}"""
    other = "other { x = f32[64] parameter(0) ROOT n = f32[64] negate(x) }"
    assert _refusal(entry, other if "other" in user else "").code == code


LOOP = "x = f32[64] parameter(0)\np = f32[64] fusion(x, x), kind=kLoop, calls=scale\n"
WAITED = "ROOT n = f32[64] negate(p)\nm = f32[64] negate(x), control-predecessors={p}"
SEVERAL = """x = f32[64] parameter(0)
p = (f32[64], f32[64]) fusion(x), kind=kLoop, calls=two
g = f32[64] get-tuple-element(p), index=0
ROOT n = f32[64] negate(g)"""


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (LOOP.replace("p =", "ROOT p ="), "producer-is-root"),
        (LOOP + "ROOT n = f32[64] negate(x)", "no-users"),
        (
            LOOP.replace("kLoop", "kInput") + "ROOT n = f32[64] negate(p)",
            "producer-not-loop-fusion",
        ),
        (LOOP + WAITED, "producer-orders-others"),
        (SEVERAL, "producer-is-multi-output"),
    ],
)
def test_producers_that_stay(entry: str, code: str) -> None:
    """Results, kernels built around what they read, and those that others wait for."""
    two = """two { x = f32[64] parameter(0) n = f32[64] negate(x) a = f32[64] abs(x)
  ROOT t = (f32[64], f32[64]) tuple(n, a) }"""
    assert _refusal(entry, two).code == code


TURN = """turn {{ x = f32[64,64]{{1,0}} parameter(0)
  s = f32[{part},64]{{1,0}} slice(x), slice={{[0:{part}], [0:64]}}
  t = f32[64,{part}]{{1,0}} transpose(s), dimensions={{1,0}}
  u = f32[64,{rest}]{{1,0}} slice(x), slice={{[0:64], [0:{rest}]}}
  ROOT c = f32[64,64]{{1,0}} concatenate(t, u), dimensions={{1}} }}
rows {{ s = f32[64,64]{{1,0}} parameter(0) z = f32[] constant(0)
  ROOT r = f32[64] reduce(s, z), dimensions={{1}}, to_apply=sum }}
double {{ s = f32[64,64]{{1,0}} parameter(0) ROOT r = f32[64,64]{{1,0}} add(s, s) }}"""


def test_a_reduction_reads_memory_in_order() -> None:
    """Half of the producer's elements transposed is too much; less is not, nor for a loop."""
    entry = """x = f32[64,64]{1,0} parameter(0)
p = f32[64,64]{1,0} fusion(x), kind=kLoop, calls=turn
ROOT r = f32[64] fusion(p), kind=kInput, calls=rows"""
    decision = _refusal(entry, TURN.format(part=32, rest=32))
    assert (decision.code, decision.limit, decision.actual) == ("uncoalesced", 50, 50)
    assert _is_merged(entry, TURN.format(part=31, rest=33))
    assert _is_merged(entry, TURN.format(part=32, rest=32), FusionMerger(max_transposed=51))
    loop = entry.replace(
        "f32[64] fusion(p), kind=kInput, calls=rows",
        "f32[64,64]{1,0} fusion(p), kind=kLoop, calls=double",
    )
    assert _is_merged(loop, TURN.format(part=32, rest=32))


def test_operands_and_results_are_limited() -> None:
    """64 together; one more is too many."""

    def program(count: int) -> tuple[str, str]:
        half = count - 2
        lines = [f"a{at} = f32[64] parameter({at})" for at in range(half)]
        adds = [
            f"b{at} = f32[64] add({'b' if at > 1 else 'a'}{at - 1}, a{at})" for at in range(1, half)
        ]
        adds[-1] = "ROOT " + adds[-1]
        body = "many {\n" + "\n".join([*lines, *adds]) + "\n}"
        names = ", ".join(f"x{at}" for at in range(half))
        entry = "\n".join(f"x{at} = f32[64] parameter({at})" for at in range(half))
        entry += (
            f"\ny = f32[64] parameter({half})\np = f32[64] fusion({names}), kind=kLoop, calls=many"
        )
        return entry + "\nROOT r = f32[64] fusion(p, y), kind=kLoop, calls=shift", body

    # The operands of both without the producer, and a result of each.
    assert _is_merged(*program(63))
    decision = _refusal(*program(64))
    assert (decision.code, decision.limit, decision.actual) == ("operands", 64, 65)
    assert _is_merged(*program(64), FusionMerger(max_operands=65))


def test_shared_memory_is_limited() -> None:
    """A column reduction takes 2112 bytes for each byte of an element, as in 2023; 0 asks the device."""
    bodies = """mix { x = f32[64,64]{1,0} parameter(0) ROOT s = f32[64,64]{1,0} add(x, x) }
columns { s = f32[64,64]{1,0} parameter(0) z = f32[] constant(0)
  ROOT r = f32[64] reduce(s, z), dimensions={0}, to_apply=sum }"""
    entry = """x = f32[64,64]{1,0} parameter(0)
p = f32[64,64]{1,0} fusion(x), kind=kLoop, calls=mix
ROOT r = f32[64] fusion(p), kind=kInput, calls=columns"""
    assert _is_merged(entry, bodies)
    decision = _refusal(entry, bodies, FusionMerger(shared_memory=4 * 2112 - 1))
    assert (decision.code, decision.actual) == ("shared-memory", 8448)
    decision = _refusal(entry, bodies, FusionMerger(max_reductions=0))
    assert (decision.code, decision.actual) == ("reductions", 1)


def test_an_update_stays_in_place() -> None:
    """What reads the updated value elsewhere does not join the update."""
    bodies = """turned { x = f32[64] parameter(0) ROOT v = f32[64] reverse(x), dimensions={0} }
put { x = f32[64] parameter(0) u = f32[64] parameter(1) i = s32[] parameter(2)
  ROOT d = f32[64] dynamic-update-slice(x, u, i) }"""
    entry = """x = f32[64] parameter(0)
i = s32[] parameter(1)
p = f32[64] fusion(x), kind=kLoop, calls=turned
ROOT r = f32[64] fusion(x, p, i), kind=kLoop, calls=put"""
    assert _refusal(entry, bodies).code == "in-place-unrecognized"
    other = entry.replace(
        "fusion(x), kind=kLoop, calls=turned", "fusion(y), kind=kLoop, calls=turned"
    )
    assert _is_merged("y = f32[64] parameter(2)\n" + other, bodies)


def test_what_follows_a_reduction() -> None:
    """A loop fusion whose root has a reduction kernel takes conversions after it, for one user."""
    bodies = """total { x = f32[64,64]{1,0} parameter(0) z = f32[] constant(0)
  ROOT r = f32[64] reduce(x, z), dimensions={1}, to_apply=sum }
narrow { s = f32[64] parameter(0) ROOT n = bf16[64] convert(s) }"""
    entry = """x = f32[64,64]{1,0} parameter(0)
p = f32[64] fusion(x), kind=kLoop, calls=total
ROOT r = bf16[64] fusion(p), kind=kLoop, calls=narrow"""
    assert _is_merged(entry, bodies)
    less = bodies.replace("bf16[64] convert(s)", "f32[64] negate(s)")
    assert _refusal(entry.replace("bf16", "f32"), less).code == "reduce-epilogue"
    both = entry.replace("ROOT r", "a").replace(
        ", kind=kLoop, calls=narrow",
        ", kind=kLoop, calls=narrow\n"
        "b = bf16[64] convert(p)\nROOT t = (bf16[64], bf16[64]) tuple(a, b)",
    )
    assert _refusal(both, bodies).code == "reduce-has-other-users"


def test_fuel_counts_producers() -> None:
    """One goes into all of its users with one unit, so that every limit reaches as far as the one before."""
    entry = SHARED.replace(
        "ROOT r = (f32[64], f32[64]) tuple(a, b)",
        "c = f32[64] fusion(a, b), kind=kLoop, calls=more\nROOT r = f32[64] negate(c)",
    )
    more = "more { s = f32[64] parameter(0) y = f32[64] parameter(1) ROOT t = f32[64] add(s, y) }"
    merged = []
    for fuel in range(5):
        steps = _plan(entry, more, FusionMerger(fuel=fuel)).steps
        merged.append(list(dict.fromkeys(step.producer for step in steps)))
    assert merged == [[], ["p"], ["p", "a"], ["p", "a", "b"], ["p", "a", "b", "c"]]
    log = PassLog(fuel=2)
    FusionMerger().fuse(_module(entry, more), log)
    assert (log.fuel, sum(log.hits.values())) == (0, 2)
    assert _refusal(entry, more, FusionMerger(fuel=0)).code == "out-of-fuel"


class _Wanted:
    """One who answers for some consumers."""

    def __init__(self, **answers: bool) -> None:
        self.answers = answers

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        answer = self.answers.get(consumer.name) if producer.name == "p" else None
        return None if answer is None else Decision(answer, "advised", words="as I say")


def _advised(entry: str, bodies: str, **answers: bool) -> FusionPlan:
    module = _module(entry, bodies)
    plan = FusionMerger().fuse(module, PassLog(advice=Advice((_Wanted(**answers),))))
    hloopt.verify(module)
    return plan


def test_the_users_word() -> None:
    """A no about one user keeps the producer out of all; a yes outweighs times, not what is impossible."""
    plan = _advised(SHARED, "", b=False)
    told = {found.consumer: found.decision.code for found in plan.refusals if found.producer == "p"}
    assert told == {"a": "not-into-all", "b": "advised"}
    assert [step.producer for step in _advised(SPREAD, SLOW, r=True).steps] == ["p"]
    cast = "x = f32[64] parameter(0)\np = f32[64] fusion(x, x), kind=kLoop, calls=scale\n"
    assert not _advised(cast + "ROOT r = f32[8,8] bitcast(p)", "", r=True).steps


def test_nothing_is_said_about_loops_but_once() -> None:
    """As every strategy says it: what a body computes for its next iteration is no part of a kernel."""
    text = """HloModule m
grow { x = f32[8] parameter(0) ROOT n = f32[8] add(x, x) }
body { s = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1 f = f32[8] fusion(x), kind=kLoop, calls=grow
  ROOT t = (s32[], f32[8]) tuple(i, f) }
cond { s = (s32[], f32[8]) parameter(0) ROOT c = pred[] constant(false) }
ENTRY e { s = (s32[], f32[8]) parameter(0) ROOT w = (s32[], f32[8]) while(s), condition=cond, body=body }
"""
    plan = FusionMerger().fuse(hloopt.parse(text))
    assert plan.reasons()["loop-carried"] == 1


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_merging_keeps_every_bit(text: str) -> None:
    """After both rounds of instruction fusion, by every criterion."""
    for options in (
        FusionMerger(),
        FusionMerger(criterion="bytes", max_bytes=1000),
        FusionMerger(criterion="bytes-2019", max_bytes=1000),
    ):
        module = hloopt.parse(text)
        before = results(module)
        InstructionFusion(may_duplicate=False).fuse(module)
        InstructionFusion().fuse(module)
        options.fuse(module)
        hloopt.verify(module)
        assert results(module) == before

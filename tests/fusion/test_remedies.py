"""What a refusal's remedies say is so: the option, the rule and the pass let the pair through, or nothing does."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

import hloopt
from hloopt.fusion.advice import advised
from hloopt.fusion.decision import REASONS, Decision
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.history import Refusal
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.provenance import Provenance
from hloopt.fusion.remedies import HELD, OPTIONS, is_advisable, remedies, why_held
from hloopt.fusion.user_rules import rule_of
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.pass_ import Pass
from tests.helpers.large_bodies import wavelet

TANHS: Final = "\n".join(f"t{at} = f32[4096] tanh(t{at - 1})" for at in range(1, 10))
NEGATES: Final = "\n".join(f"t{at} = f32[64] negate(t{at - 1})" for at in range(1, 12))
REGIONS: Final = """long { t0 = f32[64] parameter(0) NEGATES ROOT t = f32[64] negate(t11) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT c = pred[] compare(p, q), direction=LT }
wide { a = f32[64] parameter(0) ROOT b = f32[64,64] broadcast(a), dimensions={0} }
less_of_two { p = f32[] parameter(0) q = f32[] parameter(1) r = f32[] parameter(2) s = f32[] parameter(3)
  ROOT c = pred[] compare(p, q), direction=LT }
scale { a = f32[64] parameter(0) b = f32[64] parameter(1) ROOT m = f32[64] multiply(a, b) }
wave { a = f32[64] parameter(0) b = f32[64] parameter(1) ROOT m = f32[64] power(a, b) }
shift { a = f32[64] parameter(0) b = f32[64] parameter(1) ROOT m = f32[64] add(a, b) }
padded { a = f32[64] parameter(0) b = f32[64] parameter(1) z = f32[] constant(0)
  w = f32[66] pad(a, z), padding=1_1 s = f32[64] slice(w), slice={[1:65]} ROOT m = f32[64] add(s, b) }
other { a = f32[64] parameter(0) b = f32[64] parameter(1) ROOT m = f32[64] divide(a, b) }
slow { t0 = f32[4096] parameter(0) TANHS ROOT t = f32[4096] tanh(t9) }
spread { a = f32[4096] parameter(0) ROOT b = f32[4096,512] broadcast(a), dimensions={0} }
turn { x = f32[64,64]{1,0} parameter(0) s = f32[32,64]{1,0} slice(x), slice={[0:32], [0:64]}
  t = f32[64,32]{1,0} transpose(s), dimensions={1,0} u = f32[64,32]{1,0} slice(x), slice={[0:64], [0:32]}
  ROOT c = f32[64,64]{1,0} concatenate(t, u), dimensions={1} }
rows { s = f32[64,64]{1,0} parameter(0) z = f32[] constant(0)
  ROOT r = f32[64] reduce(s, z), dimensions={1}, to_apply=sum }
low { x = f32[64,4096]{1,0} parameter(0) s = f32[32,4096]{1,0} slice(x), slice={[0:32], [0:4096]}
  ROOT n = f32[32,4096]{1,0} negate(s) }
high { x = f32[64,4096]{1,0} parameter(0) s = f32[32,4096]{1,0} slice(x), slice={[32:64], [0:4096]}
  ROOT n = f32[32,4096]{1,0} negate(s) }
go { s = (s32[], s32[], f32[4096]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], s32[], f32[4096]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 k = s32[] constant(1) j = s32[] add(i, k)
  x = f32[4096] get-tuple-element(s), index=2 y = f32[4096] negate(x)
  ROOT t = (s32[], s32[], f32[4096]) tuple(j, n, y) }
"""
CHAIN = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
z = f32[64] parameter(2)
a = f32[64] add(x, y)
ROOT b = f32[64] multiply(a, z)"""
SHARED = """x = f32[64] parameter(0)
a = f32[64] negate(x)
b = f32[64] abs(a)
c = f32[64] sort(a), dimensions={0}, to_apply=less
ROOT t = (f32[64], f32[64]) tuple(b, c)"""
MERGED = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
a = f32[64] fusion(x, y), kind=kLoop, calls=scale
ROOT b = f32[64] fusion(a, y), kind=kLoop, calls=shift"""
MERGED_TWICE = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
a = f32[64] fusion(x, y), kind=kLoop, calls=wave
b = f32[64] fusion(a, y), kind=kLoop, calls=shift
c = f32[64] fusion(a, x), kind=kLoop, calls=scale
ROOT t = (f32[64], f32[64]) tuple(b, c)"""
PADDED = MERGED.replace("calls=scale", "calls=padded")
SUMS = """x = f32[64,64]{1,0} parameter(0)
z = f32[] constant(0)
a = f32[64,64]{1,0} negate(x)
ROOT b = f32[64] reduce(a, z), dimensions={0}, to_apply=sum"""
TWO_SUMS = """x = f32[64,2,2] parameter(0)
z = f32[] constant(0)
a = f32[64,2] reduce(x, z), dimensions={2}, to_apply=sum
ROOT b = f32[64] reduce(a, z), dimensions={1}, to_apply=sum"""
HEAVY = """x = f32[8,11] parameter(0)
i = s32[9,1] parameter(1)
z = f32[] constant(0)
a = f32[8] reduce(x, z), dimensions={1}, to_apply=sum
ROOT b = f32[9] gather(a, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
  index_vector_dim=1, slice_sizes={1}"""
CONSTANT = """x = f32[2] parameter(0)
y = f32[2] negate(x)
a = f32[2] constant({1, 2})
ROOT b = f32[2] add(a, y)"""
DOUBLED = """x = f32[8,8] parameter(0)
a = f32[8,8] negate(x)
s = f32[4,8] slice(a), slice={[0:4], [0:8]}
t = f32[4,8] slice(a), slice={[4:8], [0:8]}
ROOT b = f32[4,8] add(s, t)"""
PAD_TWICE = DOUBLED.replace("x = f32[8,8]", "x = f32[6,8]").replace(
    "a = f32[8,8] negate(x)", "z = f32[] constant(0)\na = f32[8,8] pad(x, z), padding=1_1x0_0"
)
PAD_USERS = """x = f32[6,8] parameter(0)
z = f32[] constant(0)
a = f32[8,8] pad(x, z), padding=1_1x0_0
s = f32[8,8] negate(a)
t = f32[8,8] abs(a)
ROOT b = f32[8,8] add(t, s)"""
BESIDE = """v = f32[8]{0} parameter(0)
w = f32[8]{0} parameter(1)
a = f32[8]{0} negate(v)
b = f32[8]{0} abs(w)
ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, b)"""
BESIDE_FUSED = (
    BESIDE.replace("f32[8]{0}", "f32[64]")
    .replace("a = f32[64] negate(v)", "a = f32[64] fusion(v, v), kind=kLoop, calls=scale")
    .replace("b = f32[64] abs(w)", "b = f32[64] fusion(w, w), kind=kLoop, calls=other")
)
TURNED = """x = f32[64,64]{1,0} parameter(0)
a = f32[64,64]{1,0} fusion(x), kind=kLoop, calls=turn
ROOT b = f32[64] fusion(a), kind=kInput, calls=rows"""
SLOW = """x = f32[4096] parameter(0)
a = f32[4096] fusion(x), kind=kLoop, calls=slow
ROOT b = f32[4096,512] fusion(a), kind=kLoop, calls=spread"""
SLICES = """x = f32[64,4096]{1,0} parameter(0)
a = f32[32,4096]{1,0} fusion(x), kind=kLoop, calls=low
b = f32[32,4096]{1,0} fusion(x), kind=kLoop, calls=high
ROOT t = (f32[32,4096]{1,0}, f32[32,4096]{1,0}) tuple(a, b)"""
LOOP = """x = f32[4096] parameter(0)
n = s32[] parameter(1)
i = s32[] constant(0)
s = (s32[], s32[], f32[4096]) tuple(i, n, x)
a = (s32[], s32[], f32[4096]) while(s), condition=go, body=step
ROOT b = f32[4096] get-tuple-element(a), index=2"""
HALF = """x = f32[64] parameter(0)
a = f32[64] sort(x), dimensions={0}, to_apply=less
ROOT b = f32[64] negate(a)"""

SIBLINGS = """x = f32[64] parameter(0)
a = f32[64] fusion(x, x), kind=kLoop, calls=scale
b = f32[64,64] fusion(x), kind=kLoop, calls=wide
ROOT t = (f32[64], f32[64,64]) tuple(a, b)"""
TWO_RESULTS = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
a = (f32[64], f32[64]) sort(x, y), dimensions={0}, to_apply=less_of_two
g = f32[64] get-tuple-element(a), index=0
ROOT b = f32[64] negate(g)"""
ROOT = """x = f32[64] parameter(0)
ROOT a = f32[64] negate(x)
b = f32[64] abs(a)"""
WAITED = """x = f32[64] parameter(0)
a = f32[64] negate(x)
c = f32[64] abs(x), control-predecessors={a}
b = f32[64] exponential(a)
ROOT t = (f32[64], f32[64]) tuple(b, c)"""
BEFORE_SORT = """x = f32[64] parameter(0)
a = f32[64] negate(x)
ROOT b = f32[64] sort(a), dimensions={0}, to_apply=less"""

Case = tuple[str, str]
"""Passes, and the entry computation, whose ``a`` and ``b`` are apart."""
BRANCHES: Final = (
    wavelet(3)
    .partition("ENTRY main {")[2]
    .rpartition("}")[0]
    .replace("slice(x)", "slice(a)")
    .replace(
        "f32[64] parameter(0)", "f32[64] parameter(0) a = f32[64] fusion(x), kind=kLoop, calls=long"
    )
    .replace("ROOT r", "ROOT b")
)

REFUSED: Final[dict[str, tuple[Case, ...]]] = {
    "operands": (
        ("instruction-fusion{max_operands=3}", CHAIN),
        ("priority-fusion{max_operands=3}", CHAIN),
        (
            "fusion-merger{max_operands=3}",
            MERGED.replace("(a, y)", "(a, z)").replace("a =", "z = f32[64] parameter(2)\na ="),
        ),
    ),
    "reductions": (
        ("instruction-fusion{max_reductions=0}", SUMS),
        ("priority-fusion{max_reductions=0}", SUMS),
    ),
    "shared-memory": (
        ("instruction-fusion{shared_memory=100}", SUMS),
        ("priority-fusion{shared_memory=100}", SUMS),
    ),
    "code-duplication": (("instruction-fusion{max_duplication=1}", DOUBLED),),
    "not-emitted-twice": (("instruction-fusion{max_barrier_users=9}", PAD_TWICE),),
    "barrier-users": (("instruction-fusion{max_barrier_emissions=9}", PAD_USERS),),
    "heavy-computation": (("instruction-fusion", HEAVY),),
    "would-duplicate": (("instruction-fusion{may_duplicate=false}", SHARED),),
    "constant-not-scalar": (
        ("priority-fusion", CONSTANT),
        ("instruction-fusion", CONSTANT),
    ),
    "ir-size": (
        ("priority-fusion{max_ir_size=1}", CHAIN),
        ("fusion-merger{max_ir_size=1}", MERGED),
    ),
    "code-size": (("priority-fusion{bounded_code=true}", BRANCHES),),
    "block-splits": (("fusion-merger{max_splits=0}", PADDED),),
    "both-reduce": (("priority-fusion{significant_ratio=2}", TWO_SUMS),),
    "more-bytes": (("fusion-merger{criterion=bytes,max_bytes=20}", MERGED),),
    "uncoalesced": (("fusion-merger", TURNED),),
    "disjoint-slices": (("multi-output-fusion", SLICES),),
    "horizontal-size": (("horizontal-loop-fusion{loop_elements=7,elements=7}", BESIDE),),
    "horizontal-instructions": (
        ("horizontal-loop-fusion{loop_instructions=0,instructions=0}", BESIDE_FUSED),
    ),
    "horizontal-parameters": (("horizontal-loop-fusion{parameter_bytes=32}", BESIDE),),
    "horizontal-outputs": (
        ("horizontal-loop-fusion{loop_op_outputs=2,outputs=2}", BESIDE),
        ("horizontal-loop-fusion{loop_outputs=2,outputs=2}", BESIDE_FUSED),
    ),
    "out-of-fuel": (
        ("priority-fusion{fuel=0}", CHAIN),
        ("instruction-fusion{fuel=0}", CHAIN),
        ("fusion-merger{fuel=0}", MERGED),
    ),
    "loop-slower": (("loop-fusion{target=host}", LOOP),),
    # Without an option.
    "different-loops": (("multi-output-fusion", SIBLINGS),),
    "producer-is-multi-output": (("instruction-fusion", TWO_RESULTS),),
    "producer-is-root": (("instruction-fusion", ROOT),),
    "producer-orders-others": (
        ("instruction-fusion", WAITED),
        ("priority-fusion", WAITED),
    ),
    "consumer-not-loop-or-input-fusible": (("instruction-fusion", BEFORE_SORT),),
    "consumer-not-fusible": (("priority-fusion", BEFORE_SORT),),
    "producer-not-fusible": (("priority-fusion", HALF),),
    "producer-not-loop-fusible": (("instruction-fusion", HALF),),
    "producer-is-fusion": (("instruction-fusion", MERGED),),
    "expensive-to-duplicate": (("instruction-fusion", SHARED.replace("negate", "log")),),
    "slower": (("fusion-merger", SLOW),),
    "consumer-is-bitcast": (
        ("fusion-merger", MERGED.replace("fusion(a, y), kind=kLoop, calls=shift", "bitcast(a)")),
    ),
    "consumer-no-fusion": (
        (
            "fusion-merger{criterion=bytes-2019}",
            MERGED.replace("fusion(a, y), kind=kLoop, calls=shift", "negate(a)"),
        ),
    ),
    "consumer-is-tuple": (
        (
            "fusion-merger",
            MERGED.replace("f32[64] fusion(a, y), kind=kLoop, calls=shift", "(f32[64]) tuple(a)"),
        ),
    ),
    "only-bitcast-users": (
        ("priority-fusion", CHAIN.replace("f32[64] multiply(a, z)", "f32[8,8] bitcast(a)")),
    ),
    "holds-expensive": (("fusion-merger{criterion=bytes-2019}", MERGED_TWICE),),
    "horizontal-shares-parameter": (
        ("horizontal-loop-fusion{loop_elements=0}", BESIDE.replace("abs(w)", "abs(v)")),
    ),
    "horizontal-layout": (
        ("horizontal-loop-fusion{era=2020}", BESIDE.replace("f32[8]{0}", "f32[8,8]{0,1}")),
    ),
}


def _text(entry: str) -> str:
    return f"HloModule m\n{REGIONS.replace('TANHS', TANHS).replace('NEGATES', NEGATES)}ENTRY main {{\n{entry}\n}}\n"


def _run(
    entry: str, pipeline: Pipeline, *, rule: Any = None, lock: Path | None = None
) -> tuple[bool, list[tuple[Refusal, Pass]]]:
    """Whether ``a`` and ``b`` are in one kernel, and the refusals with the passes they are of."""
    module = hloopt.parse(_text(entry))
    hloopt.verify(module)
    rules = (rule_of(rule),) if rule is not None else ()
    pipeline, advice = advised(pipeline, rules, read_decisions(str(lock)) if lock else None)
    provenance = Provenance(advice.histories)
    pipeline.run(module, controls=Controls(advice=advice), watchers=(provenance,))
    hloopt.verify(module)
    explanation = Explanation(provenance)
    nodes = provenance.nodes
    if nodes["main", "a"].opcode == "while":
        is_one = explanation.loops["main", "a"].kernel != ""
    else:
        is_one = bool(explanation.pair(nodes["main", "a"], nodes["main", "b"]).common)
    refusals = [
        (refusal, plan.instance) for plan in provenance.history.plans for refusal in plan.refusals
    ]
    return is_one, refusals


def _cases(codes: Any) -> list[Any]:
    return [
        pytest.param(code, *case, id=f"{code}-{case[0].partition('{')[0]}")
        for code in codes
        for case in REFUSED[code]
    ]


def _refused(code: str, passes: str, entry: str) -> tuple[Decision, Pass]:
    is_one, refusals = _run(entry, parse_pipeline(passes))
    assert not is_one
    found = [(row.decision, instance) for row, instance in refusals if row.decision.code == code]
    assert found, [str(row.decision) for row, _ in refusals]
    return found[0]


def _with(pipeline: Pipeline, told: str) -> Pipeline:
    """A pipeline of one pass with the option of ``told``, which names that pass, and its others as they are."""
    (instance,) = parse_pipeline(told).passes()
    (given,) = pipeline.passes()
    assert instance.name == given.name
    (name,) = [
        field.name
        for field in fields(instance)  # type: ignore[arg-type]
        if told.startswith(f"{instance.name}{{{field.name}=")
    ]
    return Pipeline((replace(given, **{name: getattr(instance, name)}),))  # type: ignore[type-var]


def test_every_option_that_remedies_has_a_case() -> None:
    """A new one gets one."""
    assert {code for code in REFUSED if REFUSED[code]} >= OPTIONS.keys()
    assert REASONS.keys() >= REFUSED.keys()


@pytest.mark.parametrize(("code", "passes", "entry"), _cases(OPTIONS))
def test_the_option_lets_the_pair_through(code: str, passes: str, entry: str) -> None:
    """With the value as told; of several ways each by itself, as long as one limit refuses."""
    decision, instance = _refused(code, passes, entry)
    told = remedies(decision, instance)
    if not told:
        assert (code, instance.name) == ("constant-not-scalar", "instruction-fusion")
    for way in told:
        assert _run(entry, _with(parse_pipeline(passes), way))[0], way


@pytest.mark.parametrize(("code", "passes", "entry"), _cases(REFUSED))
def test_advice_is_heard_where_it_is_said_to_be(
    code: str, passes: str, entry: str, tmp_path: Path
) -> None:
    """A rule or a pair of a lock file wants the two in one kernel: they are, just where that is told."""
    decision, instance = _refused(code, passes, entry)
    lock = tmp_path / "lock.toml"
    consumer = "a" if "while" in entry else "*"
    lock.write_text(f'version = 1\n[[fuse]]\nproducer = "a"\nconsumer = "{consumer}"\n')
    wanted = is_advisable(decision, instance.name)
    assert _run(entry, parse_pipeline(passes), rule=lambda producer, consumer: True)[0] == wanted
    assert _run(entry, parse_pipeline(passes), lock=lock)[0] == wanted


@pytest.mark.parametrize(
    ("code", "passes", "entry"), _cases(code for code in REFUSED if code in HELD - OPTIONS.keys())
)
def test_no_option_changes_what_is_said_to_hold(code: str, passes: str, entry: str) -> None:
    """Each number as large or as small as it may be, each switch the other way round."""
    assert why_held(code)
    (instance,) = parse_pipeline(passes).passes()
    for field in fields(instance):  # type: ignore[arg-type]
        had = getattr(instance, field.name)
        values: tuple[Any, ...] = (not had,) if isinstance(had, bool) else (0, 1, 1 << 30)
        for value in values if isinstance(had, int) else ():
            changed = replace(instance, **{field.name: value})  # type: ignore[type-var]
            assert not _run(entry, Pipeline((changed,)))[0], (field.name, value)


def test_the_fuel_of_the_whole_run_is_no_option_of_a_pass() -> None:
    """``--fuel`` ended it, not the pass's own fuel."""
    instance = parse_pipeline("priority-fusion").passes()
    decision = Decision(False, "out-of-fuel", limit=0)
    assert remedies(decision, next(iter(instance))) == []

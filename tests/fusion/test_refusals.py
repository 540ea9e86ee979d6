"""Each reason not to fuse: a pair that is refused, beside one that only just is not."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.fusion.decision import REASONS, Decision, forbid
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.instruction_fusion import InstructionFusion

REGIONS = """sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
less { x = f32[] parameter(0) y = f32[] parameter(1) ROOT l = pred[] compare(x, y), direction=LT }
argmax { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GT d = f32[] select(c, a, b) k = s32[] select(c, i, j)
  ROOT t = (f32[], s32[]) tuple(d, k) }
"""


def _plan(body: str, **options: int) -> FusionPlan:
    module = hloopt.parse(f"HloModule m\n{REGIONS}ENTRY e {{\n{body}\n}}\n")
    plan = InstructionFusion(**options).fuse(module)
    hloopt.verify(module)
    return plan


def _refusals(plan: FusionPlan) -> dict[tuple[str, str], Decision]:
    return {(entry.producer, entry.consumer): entry.decision for entry in plan.refusals}


def _code(body: str, producer: str, consumer: str, **options: int) -> str:
    """The reason why the pair was refused; empty when the producer joined."""
    plan = _plan(body, **options)
    for step in plan.steps:
        if step.producer == producer and consumer in (step.consumer, step.fusion):
            return ""
    found = [
        entry.decision.code
        for entry in plan.refusals
        if entry.producer == producer and consumer in (entry.consumer, "")
    ]
    assert found, f"nothing was said about {producer} and {consumer}: {plan}"
    return found[0]


def test_a_dot_is_no_loop() -> None:
    """Neither as producer nor as consumer."""
    body = """p = f32[8,8] parameter(0)
n = f32[8,8] negate(p)
d = f32[8,8] dot(n, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT t = f32[8,8] tanh(d)"""
    assert _code(body, "n", "d") == "consumer-not-loop-or-input-fusible"
    assert _code(body, "d", "t") == "producer-not-loop-fusible"


def test_side_effects_are_not_fusible() -> None:
    """Random numbers that two read are drawn once."""
    body = """p = f32[] parameter(0)
c = f32[8] rng(p, p), distribution=rng_uniform
n = f32[8] negate(c)
ROOT m = f32[8] multiply(n, c)"""
    assert _code(body, "c", "negate_multiply_fusion") == "producer-not-fusible"


def test_a_copy_to_another_memory_stays() -> None:
    """Within a fusion it would move nothing; one that only changes the order of dimensions is fused."""
    text = """HloModule m
ENTRY e { p = f32[4,2]{1,0} parameter(0) h = f32[4,2]{LAYOUT} copy(p)
  ROOT d = f32[4,2]{1,0} copy(h) }
"""
    moved = InstructionFusion().fuse(hloopt.parse(text.replace("LAYOUT", "1,0:S(5)")))
    assert not moved.steps
    turned = InstructionFusion().fuse(hloopt.parse(text.replace("LAYOUT", "0,1")))
    assert [step.producer for step in turned.steps] == ["h"]


def test_a_custom_fusion_takes_nothing() -> None:
    """Its kernel is somebody else's."""
    text = """HloModule m
f { a = f32[8] parameter(0) ROOT b = f32[8] tanh(a) }
ENTRY e { p = f32[8] parameter(0) n = f32[8] negate(p)
  ROOT r = f32[8] fusion(n), kind=KIND, calls=f }
"""
    custom = InstructionFusion().fuse(hloopt.parse(text.replace("KIND", "kCustom")))
    assert _refusals(custom)["n", "r"].code == "consumer-not-loop-or-input-fusible"
    loop = InstructionFusion().fuse(hloopt.parse(text.replace("KIND", "kLoop")))
    assert [(step.producer, step.fusion) for step in loop.steps] == [("n", "r")]


def test_a_fusion_is_not_fused_into_another() -> None:
    """Merging fusions is another strategy's work."""
    text = """HloModule m
f { a = f32[8] parameter(0) ROOT b = f32[8] tanh(a) }
ENTRY e { p = f32[8] parameter(0) n = f32[8] fusion(p), kind=kLoop, calls=f
  ROOT r = f32[8] negate(n) }
"""
    plan = InstructionFusion().fuse(hloopt.parse(text))
    assert _refusals(plan)["n", "r"].code == "producer-is-fusion"


def test_variadic_reductions_are_consumers_only() -> None:
    """A reduce with several results takes producers in."""
    body = """p = f32[8,64] parameter(0)
n = f32[8,64] negate(p)
i = s32[8,64] iota(), iota_dimension=1
z = f32[] constant(0)
o = s32[] constant(0)
r = (f32[8], s32[8]) reduce(n, i, z, o), dimensions={1}, to_apply=argmax
ROOT g = f32[8] get-tuple-element(r), index=0"""
    plan = _plan(body)
    assert {step.producer for step in plan.steps} == {"n", "i", "z", "o"}
    assert {step.kind for step in plan.steps} == {"kInput"}


def test_the_result_of_a_computation_stays() -> None:
    """A root with users is an output of its own."""
    text = """HloModule m
ENTRY e { p = f32[8] parameter(0) ROOT n = f32[8] negate(p) t = f32[8] abs(n) u = f32[8] floor(t) }
"""
    plan = InstructionFusion().fuse(hloopt.parse(text))
    codes = {entry.decision.code for entry in plan.refusals if entry.producer == "n"}
    assert codes == {"producer-is-root"}


def test_others_that_wait_for_the_producer() -> None:
    """A control edge from the producer keeps it where it is; one to it moves to the fusion."""
    body = """p = f32[8] parameter(0)
n = f32[8] negate(p)
q = f32[8] custom-call(p), custom_call_target="x", custom_call_has_side_effect=true, control-predecessors={n}
t = f32[8] tanh(n)
ROOT r = (f32[8], f32[8]) tuple(q, t)"""
    assert _code(body, "n", "t") == "producer-orders-others"


def test_control_edges_to_the_producer_go_to_the_fusion() -> None:
    """What had to run before the producer runs before the fusion."""
    text = """HloModule m
ENTRY e { p = f32[8] parameter(0)
  q = f32[8] custom-call(p), custom_call_target="x", custom_call_has_side_effect=true
  n = f32[8] negate(p), control-predecessors={q}
  t = f32[8] tanh(n)
  ROOT r = (f32[8], f32[8]) tuple(q, t) }
"""
    module = hloopt.parse(text)
    InstructionFusion().fuse(module)
    fusion = next(entry for entry in module.entry if entry.opcode == "fusion")
    assert fusion.control_predecessors == (module.entry.by_name["q"],)


EXPENSIVE = """p = f32[8] parameter(0)
t = f32[8] {producer}(p)
b = f32[8,64] broadcast(t), dimensions={{0}}
n = f32[8,64] negate(b)
ROOT r = f32[8,64] abs(n)"""


def test_expensive_producers_are_not_read_again_and_again() -> None:
    """tanh before a broadcast is computed once; negate may be computed for each copy."""
    body = EXPENSIVE.format(producer="tanh")
    assert _code(body, "t", "negate_abs_fusion") == "producer-expensive-and-reused"
    assert _code(EXPENSIVE.format(producer="floor"), "t", "negate_abs_fusion") == ""


def test_cheap_on_gpu() -> None:
    """exponential, sqrt and division are cheap in f32, not in f64."""
    body = EXPENSIVE.format(producer="exponential")
    assert _code(body, "t", "negate_abs_fusion") == ""
    wide = body.replace("f32", "f64")
    assert _code(wide, "t", "negate_abs_fusion") == "producer-expensive-and-reused"


REDUCE = """p = f32[64,64] parameter(0)
t = f32[64,64] {producer}
z = f32[] constant(0)
ROOT r = f32[64] reduce(t, z), dimensions={{1}}, to_apply=sum"""


def test_a_transpose_would_break_a_reductions_reads() -> None:
    """Data in another order stays outside; elementwise ops and bitcast transposes go in."""
    turned = REDUCE.format(producer="transpose(p), dimensions={1,0}")
    assert _code(turned, "t", "r") == "breaks-coalescing"
    assert _code(REDUCE.format(producer="copy(p)"), "t", "r") == "breaks-coalescing"
    assert _code(REDUCE.format(producer="negate(p)"), "t", "r") == ""
    relabelled = turned.replace("t = f32[64,64] ", "t = f32[64,64]{0,1} ")
    assert _code(relabelled, "t", "r") == ""


EPILOGUE = """p = f32[64,64] parameter(0)
q = f32[64] parameter(1)
z = f32[] constant(0)
r = f32[64] reduce(p, z), dimensions={{1}}, to_apply=sum
{rest}"""


def test_only_trivial_ops_follow_a_reduction() -> None:
    """A conversion joins the reduction's kernel; an addition does not, nor anything after one."""
    convert = EPILOGUE.format(rest="ROOT c = bf16[64] convert(r)")
    plan = _plan(convert)
    assert [(step.producer, step.kind) for step in plan.steps] == [("r", "kInput"), ("z", "kInput")]
    negate = EPILOGUE.format(rest="ROOT c = f32[64] negate(r)")
    assert _code(negate, "r", "c") == "reduce-epilogue"
    chain = EPILOGUE.format(rest="c = bf16[64] convert(r)\nROOT n = bf16[64] negate(c)")
    assert _code(chain, "r", "convert_negate_fusion") == "reduce-epilogue"


def test_a_reduction_with_other_users_is_computed_once() -> None:
    """Even into a conversion."""
    body = EPILOGUE.format(rest="c = bf16[64] convert(r)\nROOT t = (bf16[64], f32[64]) tuple(c, r)")
    assert _code(body, "r", "c") == "reduce-has-other-users"


def test_a_serial_reduce_is_a_loop() -> None:
    """Five elements are no reduction kernel: any op may follow."""
    body = EPILOGUE.format(rest="ROOT n = f32[64] negate(r)").replace("[64,64]", "[64,5]")
    assert _code(body, "r", "n") == ""


def test_constants_join_fusions_when_they_are_scalars() -> None:
    """Not lone ops, and not arrays."""
    body = """p = f32[2] parameter(0)
c = f32[2] constant({1, 2})
s = f32[] constant(3)
x = f32[2] add(p, c)
b = f32[2] broadcast(s), dimensions={}
ROOT y = f32[2] multiply(x, b)"""
    plan = _plan(body)
    assert {step.producer for step in plan.steps} == {"x", "b", "s"}
    codes = {entry.producer: entry.decision.code for entry in plan.refusals}
    assert codes["c"] == "constant-not-scalar"
    alone = "s = f32[] constant(3)\np = f32[] parameter(0)\nROOT y = f32[] add(p, s)"
    assert _code(alone, "s", "y") == "constant-alone"


def test_a_long_serial_reduce_is_not_repeated() -> None:
    """Window sums of 15 elements under a second window that overlaps itself."""
    body = """p = f32[100] parameter(0)
z = f32[] constant(0)
w = f32[{first}] reduce-window(p, z), window={{size={size}}}, to_apply=sum
ROOT v = f32[{second}] reduce-window(w, z), window={{size=2 stride={stride}}}, to_apply=sum"""
    heavy = body.format(size=15, first=86, stride=1, second=85)
    assert _code(heavy, "w", "v") == "producer-expensive-and-reused"
    strided = body.format(size=15, first=86, stride=2, second=43)
    assert _code(strided, "w", "v") == "producer-expensive-and-reused"


def test_heavy_computation_through_a_gather() -> None:
    """A gather that reads more elements than there are repeats the loop of its producer."""
    body = """p = f32[8,{width}] parameter(0)
i = s32[{count},1] parameter(1)
z = f32[] constant(0)
r = f32[8] reduce(p, z), dimensions={{1}}, to_apply=sum
ROOT g = f32[{count}] gather(r, i), offset_dims={{}}, collapsed_slice_dims={{0}}, \
start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}"""
    assert _code(body.format(width=11, count=9), "r", "g") == "heavy-computation"
    assert _code(body.format(width=10, count=9), "r", "g") == ""
    assert _code(body.format(width=11, count=8), "r", "g") == ""
    loose = _code(body.format(width=11, count=9), "r", "g", repeat_ratio=11)
    assert loose == ""


SHARED = """p = f32[8] parameter(0)
t = f32[8] {producer}
a = f32[8] dot(t, p), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}
n = f32[8] negate(t)
ROOT r = (f32[8], f32[8]) tuple(a, n)"""


def test_duplication() -> None:
    """With a user that keeps the producer: only when allowed, and only cheap ones."""
    floor, tanh = SHARED.format(producer="floor(p)"), SHARED.format(producer="tanh(p)")
    assert _code(floor, "t", "n", may_duplicate=False) == "would-duplicate"
    assert _code(floor, "t", "n") == ""
    assert _code(tanh, "t", "n") == "expensive-to-duplicate"


def test_broadcasts_and_widening_conversions_are_always_duplicated() -> None:
    """Even where duplication is off; a narrowing conversion is not."""
    widen = SHARED.replace("p = f32[8]", "q = bf16[8] parameter(1)\np = f32[8]")
    widen = widen.format(producer="convert(q)")
    assert _code(widen, "t", "n", may_duplicate=False) == ""
    narrow = widen.replace("bf16", "f64")
    assert _code(narrow, "t", "n", may_duplicate=False) == "would-duplicate"
    spread = SHARED.replace("p = f32[8]", "q = f32[] parameter(1)\np = f32[8]")
    spread = spread.format(producer="broadcast(q), dimensions={}")
    assert _code(spread, "t", "n", may_duplicate=False) == ""


BINARY = """p = f32[8] parameter(0)
q = f32[8] parameter(1)
t = f32[8] add(p, q)
n = f32[8] negate(t)
m = f32[8] {other}
ROOT r = (f32[8], f32[8]) tuple(m, n)"""


def test_binary_producers_with_a_user_that_takes_nothing_are_read_once() -> None:
    """Two inputs would be read by the kernel instead of one, and the producer stays anyway."""
    dot = "dot(t, p), lhs_batch_dims={0}, rhs_batch_dims={0}"
    assert _code(BINARY.format(other=dot), "t", "n") == "would-read-more"
    assert _code(BINARY.format(other="abs(t)"), "t", "n") == ""
    spread = BINARY.format(other=dot).replace("add(p, q)", "add(p, z)")
    spread = "s = f32[] constant(1)\nz = f32[8] broadcast(s), dimensions={}\n" + spread
    assert _code(spread, "t", "n") == ""


def test_paths_through_what_takes_nothing_keep_the_producer_out() -> None:
    """One user is an op behind a dot of the other."""
    body = """p = f32[8] parameter(0)
q = f32[8] parameter(1)
t = f32[8] add(p, q)
n = f32[8] negate(t)
d = f32[8] dot(n, p), lhs_batch_dims={0}, rhs_batch_dims={0}
ROOT m = f32[8] multiply(t, d)"""
    assert _code(body, "t", "m") == "would-read-more"
    direct = body.replace("dot(n, p), lhs_batch_dims={0}, rhs_batch_dims={0}", "subtract(n, p)")
    plan = _plan(direct)
    assert {step.producer for step in plan.steps} == {"t", "n", "d"}


UPDATE = """p = f32[100] parameter(0)
u = f32[4] parameter(1)
i = s32[] parameter(2)
{rest}"""


def _update_code(rest: str, producer: str, consumer: str) -> str:
    return _code(UPDATE.format(rest=rest), producer, consumer)


def test_the_update_of_a_slice_joins_its_update() -> None:
    """Reading exactly the place that is written keeps the update in place."""
    same = """s = f32[4] dynamic-slice(p, i), dynamic_slice_sizes={4}
ROOT d = f32[100] dynamic-update-slice(p, s, i)"""
    assert _update_code(same, "s", "d") == ""
    other = same.replace("dynamic-slice(p, i)", "dynamic-slice(p, j)").replace(
        "s = ", "j = s32[] parameter(3)\ns = "
    )
    assert _update_code(other, "s", "d") == "in-place-other-place"


def test_static_slices_must_start_where_the_update_does() -> None:
    """Constant starts equal to the constant indices."""
    text = """k = s32[] constant(8)
s = f32[4] slice(p), slice={[8:12]}
ROOT d = f32[100] dynamic-update-slice(p, s, k)"""
    assert _update_code(text, "s", "d") == ""
    assert _update_code(text.replace("[8:12]", "[9:13]"), "s", "d") == "in-place-other-place"
    strided = text.replace("[8:12]", "[8:16:2]")
    assert _update_code(strided, "s", "d") == "in-place-other-place"


def test_the_first_rule_that_forbids_is_told() -> None:
    """Coalescing before duplication, in-place updates before the cost of copies, duplication before room."""
    keep = "\nROOT t = (f32[100], f32[100]) tuple(d, s)"
    turned = "s = f32[100] reverse(p), dimensions={0}\nd = f32[100] dynamic-update-slice(p, s, i)"
    assert _update_code(turned + keep, "s", "d") == "in-place-unrecognized"
    twice = REDUCE.format(producer="transpose(p), dimensions={1,0}").replace("ROOT r", "r")
    twice += "\nROOT u = (f32[64], f32[64,64]) tuple(r, t)"
    assert _code(twice, "t", "r", may_duplicate=False) == "breaks-coalescing"
    negated = twice.replace("transpose(p), dimensions={1,0}", "negate(p)")
    assert _code(negated, "t", "r", may_duplicate=False, shared_memory=1) == "would-duplicate"
    assert _code(negated, "t", "r", shared_memory=1) == "shared-memory"


def test_other_reads_of_the_updated_value_stay_outside() -> None:
    """A reverse of the value itself as update; and the same value as both operands."""
    text = """s = f32[100] reverse(p), dimensions={0}
ROOT d = f32[100] dynamic-update-slice(p, s, i)"""
    assert _update_code(text, "s", "d") == "in-place-unrecognized"
    twice = "n = f32[100] negate(p)\nROOT d = f32[100] dynamic-update-slice(n, n, i)"
    assert _update_code(twice, "n", "d") == "in-place-same-operand"


def test_elementwise_reads_join_an_update_while_no_slice_reads_elsewhere() -> None:
    """negate(p) at the place written is fine; behind a reverse it is not."""
    text = """n = f32[4] negate(u)
s = f32[4] dynamic-slice(m, i), dynamic_slice_sizes={4}
x = f32[4] add(n, s)
d = f32[100] dynamic-update-slice(m, x, i)
ROOT t = f32[100] copy(d)"""
    text = "m = f32[100] negate(p)\n" + text.replace("ROOT t = f32[100] copy(d)", "").replace(
        "d = f32", "ROOT d = f32"
    )
    plan = _plan(UPDATE.format(rest=text))
    codes = {entry.producer: entry.decision.code for entry in plan.refusals}
    assert codes["m"] == "in-place-read-elsewhere"
    assert {step.producer for step in plan.steps} == {"x", "n", "s"}


def test_scatter_takes_its_updates() -> None:
    """Updates are computed in the scatter's kernel; it is an input fusion."""
    body = """p = f32[100] parameter(0)
i = s32[5,1] parameter(1)
u = f32[5] parameter(2)
n = f32[5] negate(u)
ROOT s = f32[100] scatter(p, i, n), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"""
    plan = _plan(body)
    assert [(step.producer, step.kind) for step in plan.steps] == [("n", "kInput")]


def test_shared_memory() -> None:
    """Tiles of two transposes fit into one block, twelve do not."""
    plan = _plan(_sum_of_transposes(13))
    limits = [entry.decision for entry in plan.refusals if entry.decision.code == "shared-memory"]
    assert len(limits) == 2
    assert limits[0].limit == 49152
    assert limits[0].actual == 12 * 32 * 33 * 4
    roomy = _plan(_sum_of_transposes(13), shared_memory=1 << 20)
    assert "shared-memory" not in roomy.reasons()


def _sum_of_transposes(count: int) -> str:
    lines = [f"p{at} = f32[64,64] parameter({at})" for at in range(count)]
    lines += [f"t{at} = f32[64,64] transpose(p{at}), dimensions={{1,0}}" for at in range(count)]
    lines.append("w0 = f32[64,64] negate(t0)")
    lines += [f"w{at} = f32[64,64] add(w{at - 1}, t{at})" for at in range(1, count)]
    return "\n".join(lines[:-1]) + "\nROOT " + lines[-1]


def test_operands() -> None:
    """96 operands and outputs are the most."""
    lines = [f"p{at} = f32[8] parameter({at})" for at in range(120)]
    lines.append("w1 = f32[8] add(p0, p1)")
    lines += [f"w{at} = f32[8] add(w{at - 1}, p{at})" for at in range(2, 120)]
    body = "\n".join(lines[:-1]) + "\nROOT " + lines[-1]
    plan = _plan(body)
    (decision,) = [entry.decision for entry in plan.refusals]
    assert (decision.code, decision.limit, decision.actual) == ("operands", 96, 97)
    assert "operands" not in _plan(body, max_operands=200).reasons()


def test_reductions() -> None:
    """A limit of no reductions keeps even the first out."""
    body = EPILOGUE.format(rest="ROOT c = bf16[64] convert(r)")
    assert _code(body, "r", "c", max_reductions=0) == "reductions"


def test_code_duplication() -> None:
    """Sixteen slices of one value would write its code sixteen times."""

    def body(count: int) -> str:
        lines = ["p = f32[100] parameter(0)", "n = f32[100] floor(p)"]
        lines += [f"w{at} = f32[4] slice(n), slice={{[{at}:{at + 4}]}}" for at in range(count)]
        lines += ["x0 = f32[4] negate(w0)"]
        lines += [f"x{at} = f32[4] add(x{at - 1}, w{at})" for at in range(1, count)]
        return "\n".join(lines[:-1]) + "\nROOT " + lines[-1]

    plan = _plan(body(16))
    (decision,) = [entry.decision for entry in plan.refusals if entry.producer == "n"]
    assert (decision.code, decision.limit, decision.actual) == ("code-duplication", 15, 16)
    assert any(step.producer == "n" for step in _plan(body(15)).steps)
    assert any(step.producer == "n" for step in _plan(body(16), max_duplication=16).steps)


CONCATENATE = """p = f32[4] parameter(0)
q = f32[4] parameter(1)
c = f32[8] concatenate(p, q), dimensions={0}
n = f32[8] negate(c)
m = f32[8] floor(n)
a = f32[8] ceil(c)
b = f32[8] abs(a)
ROOT t = (f32[8], f32[8]) tuple(m, b)"""


def test_a_concatenate_with_several_users_stays_outside() -> None:
    """The barrier of XLA's older pipelines: one option opens it."""
    assert _code(CONCATENATE, "c", "ceil_abs_fusion") == "barrier-users"
    opened = _code(CONCATENATE, "c", "ceil_abs_fusion", max_barrier_users=2)
    assert opened == ""


def test_a_concatenate_read_at_two_places_is_not_emitted_twice() -> None:
    """Two slices of it in one kernel."""
    body = """p = f32[4] parameter(0)
q = f32[4] parameter(1)
c = f32[8] concatenate(p, q), dimensions={0}
s = f32[4] slice(c), slice={[0:4]}
u = f32[4] slice(c), slice={[2:6]}
ROOT x = f32[4] add(s, u)"""
    assert _code(body, "c", "slice_add_fusion", max_barrier_users=9) == "not-emitted-twice"


def test_fuel() -> None:
    """A limit for bisection."""
    body = (
        "p = f32[8] parameter(0)\na = f32[8] negate(p)\nb = f32[8] abs(a)\nROOT c = f32[8] floor(b)"
    )
    assert len(_plan(body).steps) == 2
    plan = _plan(body, fuel=1)
    assert len(plan.steps) == 1
    assert plan.reasons() == {"out-of-fuel": 1}
    assert _plan(body, fuel=0).steps == []


def test_plumbing_is_never_fused_and_never_mentioned() -> None:
    """Tuples and get-tuple-elements pass pointers."""
    body = """p = (f32[8], f32[8]) parameter(0)
g = f32[8] get-tuple-element(p), index=0
n = f32[8] negate(g)
ROOT t = (f32[8]) tuple(n)"""
    plan = _plan(body)
    assert not plan.steps
    assert not plan.refusals


def test_reasons_are_sentences_with_figures() -> None:
    """Codes are checked, figures stand in the text."""
    decision = forbid("operands", limit=96, actual=120)
    assert not decision
    assert str(decision) == (
        "operands: the kernel would have 120 operands and outputs, more than 96"
    )
    with pytest.raises(KeyError):
        forbid("no-such-reason")
    with pytest.raises(KeyError):
        forbid("no-such-reason", limit=1)


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_can_be_told(code: str) -> None:
    """No text needs a figure that is not given."""
    assert forbid(code, limit=1, actual=2).reason


def test_near_misses_are_told_once_a_pair_the_dearest_first() -> None:
    """Whichever of the two was looked at as producer; what no strategy could fuse is no near miss."""
    from hloopt.cost_models.model import Comparison
    from hloopt.fusion.priority_fusion import PriorityFusion
    from hloopt.fusion.recorder import FusionRecorder
    from hloopt.rewrite.pass_ import PassLog

    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  a = f32[4] parameter(0)\n  b = f32[4] negate(a)\n  c = f32[4] exponential(a)\n"
        "  d = f32[4] log(a)\n  ROOT t = (f32[4], f32[4], f32[4]) tuple(b, c, d)\n}\n"
    )
    b, c, d = (module.entry.by_name[name] for name in "bcd")
    log = PassLog(kinds=frozenset({"missed"}))
    recorder = FusionRecorder(PriorityFusion(), module, log)
    cheap, dear = (
        Decision(False, "both-reduce", 16, 8, comparison=Comparison(unfused, 1.0))
        for unfused in (1.5, 9.0)
    )
    recorder.refused(b, c, cheap)
    recorder.refused(c, b, cheap)
    recorder.refused(c, d, dear)
    recorder.refused(b, d, forbid("siblings-connected"))
    plan = recorder.close()
    assert [remark.instruction for remark in log.remarks] == ["c", "b"]
    assert len(plan.refusals) == 4

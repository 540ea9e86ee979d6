"""The order of priority fusion, what it records, the user's hand, fuel and constants."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.cost_models.model import Comparison
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.priority.benefit import Account
from hloopt.fusion.priority.run import ProducerQueue
from hloopt.fusion.priority.twins import Twins
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples
from tests.helpers.support import count_calls

HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
"""


def _module(entry: str) -> Module:
    return hloopt.parse(f"{HEAD}\nENTRY e {{\n{entry}\n}}\n")


def _fuse(
    entry: str, options: PriorityFusion | None = None, log: PassLog | None = None
) -> tuple[Module, FusionPlan]:
    module = _module(entry)
    plan = (options or PriorityFusion()).fuse(module, log)
    hloopt.verify(module)
    return module, plan


def _refusals(plan: FusionPlan) -> dict[tuple[str, str], str]:
    return {(found.producer, found.consumer): found.decision.code for found in plan.refusals}


def _kernels(module: Module) -> list[str]:
    return [entry.name for entry in module.entry if entry.opcode == "fusion"]


CHAIN = """x = f32[1024] parameter(0)
a = f32[1024] abs(x)
b = f32[1024] negate(a)
ROOT c = f32[1024] floor(b)"""


def test_a_chain_becomes_one_kernel() -> None:
    """Launches saved are worth more than anything an elementwise op costs."""
    module, plan = _fuse(CHAIN)
    assert len(_kernels(module)) == 1
    assert [(step.producer, step.consumer) for step in plan.steps] == [("b", "c"), ("a", "fusion")]
    assert (plan.cost_model, plan.target, plan.strategy) == ("xla-2026", "h200", "priority-fusion")


def test_a_producer_goes_into_all_its_users() -> None:
    """A copy each; the times are of all users together."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
b = f32[1024] floor(p)
ROOT r = (f32[1024], f32[1024]) tuple(a, b)"""
    module, plan = _fuse(entry)
    assert [(step.producer, step.consumer, step.duplicated) for step in plan.steps] == [
        ("p", "a", True),
        ("p", "b", False),
    ]
    assert "p" not in module.entry.by_name
    times = {step.comparison for step in plan.steps}
    (together,) = times
    assert together is not None
    assert together.unfused_us - together.fused_us > 0.9
    assert together.unfused_us > 3


def test_a_producer_goes_into_all_its_users_or_none() -> None:
    """One user that cannot take it keeps it out of the others, which is said of each pair."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
b = f32[1024] custom-call(p), custom_call_target="f"
ROOT r = (f32[1024], f32[1024]) tuple(a, b)"""
    module, plan = _fuse(entry)
    assert plan.steps == []
    found = _refusals(plan)
    assert found["p", "b"] == "consumer-not-fusible"
    assert found["p", "a"] == "not-into-all"
    assert _kernels(module) == []


def test_what_gains_most_comes_first() -> None:
    """The larger array saves more traffic."""
    entry = """x = f32[1048576] parameter(0)
y = f32[1024] parameter(1)
s = f32[1024] abs(y)
t = f32[1024] negate(s)
a = f32[1048576] abs(x)
b = f32[1048576] negate(a)
ROOT r = (f32[1024], f32[1048576]) tuple(t, b)"""
    _, plan = _fuse(entry)
    assert [step.producer for step in plan.steps] == ["a", "s"]


def test_bitcasts_come_before_all_else() -> None:
    """They need no kernel; those that nothing can take in stay."""
    entry = """x = f32[1024,1024] parameter(0)
a = f32[1024,1024] abs(x)
n = f32[1024,1024] negate(a)
v = f32[1048576] bitcast(x)
w = f32[1048576] floor(v)
o = f32[1048576] bitcast(n)
ROOT r = (f32[1048576], f32[1048576]) tuple(w, o)"""
    module, plan = _fuse(entry)
    assert [step.producer for step in plan.steps] == ["v", "a"]
    assert plan.steps[0].comparison is None
    assert "o" in module.entry.by_name
    assert _refusals(plan)["fusion.1", ""] == "only-bitcast-users"


def test_a_producer_stays_for_a_bitcast() -> None:
    """Its other users take it in all the same."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
v = f32[32,32] bitcast(p)
ROOT r = (f32[1024], f32[32,32]) tuple(a, v)"""
    module, plan = _fuse(entry)
    assert [(step.producer, step.consumer, step.duplicated) for step in plan.steps] == [
        ("p", "a", True)
    ]
    assert "p" in module.entry.by_name


def test_what_costs_more_than_it_saves_stays() -> None:
    """An exponential read by every row again costs more than a launch."""
    entry = """x = f32[4096] parameter(0)
e = f32[4096] exponential(x)
b = f32[65536,4096] broadcast(e), dimensions={1}
y = f32[65536,4096] parameter(1)
ROOT r = f32[65536,4096] add(b, y)"""
    module, plan = _fuse(entry)
    assert "e" in module.entry.by_name
    (slower,) = (found for found in plan.refusals if found.producer == "e")
    assert (slower.consumer, slower.decision.code) == ("fusion", "slower")
    assert slower.decision.comparison is not None
    assert slower.decision.comparison.fused_us > slower.decision.comparison.unfused_us


def test_several_users_that_would_be_slower_are_told_at_once() -> None:
    """No user alone decides: the refusal names none, and its times are of all."""
    wide = "f32[65536,4096]"
    entry = f"""x = f32[4096] parameter(0)
y = {wide} parameter(1)
e = f32[4096] exponential(x)
b = {wide} broadcast(e), dimensions={{1}}
c = {wide} broadcast(e), dimensions={{1}}
s = {wide} add(b, y)
t = {wide} subtract(c, y)
ROOT r = ({wide}, {wide}) tuple(s, t)"""
    _, plan = _fuse(entry)
    assert _refusals(plan)["e", ""] == "slower"


def test_the_kinds_are_those_of_the_kernels() -> None:
    """A fusion is ``kInput`` once its kernel is a reduction's, and ``kLoop`` else."""
    entry = """x = f32[1024,512] parameter(0)
z = f32[] constant(0)
a = f32[1024,512] abs(x)
ROOT r = f32[1024] reduce(a, z), dimensions={1}, to_apply=sum"""
    module, _ = _fuse(entry)
    assert module.entry.root.attributes["kind"] == "kInput"
    module, _ = _fuse(CHAIN)
    assert module.entry.root.attributes["kind"] == "kLoop"


def test_small_constants_go_into_kernels_at_the_end() -> None:
    """Into ops that stood alone, too; not into what is no kernel of ours, nor where they are an array."""
    entry = """x = f32[1024] parameter(0)
z = f32[] constant(2)
k = f32[1024] constant({...})
b = f32[1024] broadcast(z), dimensions={}
q = f32[] custom-call(z), custom_call_target="f"
w = f32[1024] custom-call(b, k), custom_call_target="g"
ROOT r = (f32[], f32[1024]) tuple(q, w)"""
    module, plan = _fuse(entry)
    assert [(step.producer, step.consumer, step.fusion) for step in plan.steps] == [
        ("z", "b", "fusion")
    ]
    found = _refusals(plan)
    assert found["z", "q"] == "consumer-not-fusible"
    assert found["k", ""] == "constant-not-scalar"
    # What was refused before goes on under the name the fusion has now.
    assert found["fusion", "w"] == "consumer-not-fusible"
    assert "z" in module.entry.by_name


def test_larger_constants_are_an_option() -> None:
    """``max_constant`` says how many elements a constant in a kernel may have."""
    entry = """x = f32[4] parameter(0)
k = f32[4] constant({1, 2, 3, 4})
ROOT r = f32[4] add(x, k)"""
    assert _fuse(entry)[1].steps == []
    _, plan = _fuse(entry, PriorityFusion(max_constant=4))
    assert [step.producer for step in plan.steps] == ["k"]


@pytest.mark.parametrize("fuel", [0, 1, 2, 3])
def test_fuel_limits_the_fusions(fuel: int) -> None:
    """The rest is refused for want of it, in the middle of a producer's users as well."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
b = f32[1024] floor(p)
z = f32[] constant(1)
w = f32[1024] broadcast(z), dimensions={}
c = f32[1024] add(a, w)
ROOT r = (f32[1024], f32[1024]) tuple(c, b)"""
    before = len(_fuse(entry)[1].steps)
    assert before > 3
    _, plan = _fuse(entry, PriorityFusion(fuel=fuel))
    assert len(plan.steps) == fuel
    assert "out-of-fuel" in plan.reasons()
    assert "slower" not in plan.reasons()


def test_the_fuel_of_a_log_counts_as_well() -> None:
    """Whoever runs the pass may stop it after some rewrites."""
    log = PassLog(fuel=1)
    _, plan = _fuse(CHAIN, log=log)
    assert (len(plan.steps), log.fuel) == (1, 0)
    assert plan.reasons() == {"out-of-fuel": 1}


class _Says:
    """An adviser with an answer for some pairs of names."""

    def __init__(self, answers: dict[tuple[str, str], Decision]) -> None:
        self.answers = answers

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        return self.answers.get((producer.name, consumer.name))


def _advised(entry: str, answers: dict[tuple[str, str], Decision]) -> tuple[Module, FusionPlan]:
    return _fuse(entry, log=PassLog(advice=Advice((_Says(answers),))))


YES = Decision(True, words="it is wanted")
NO = forbid("advised", words="it is not wanted")


def test_a_no_keeps_a_producer_out_of_all_its_users() -> None:
    """The other pairs say whose answer it was."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
b = f32[1024] floor(p)
ROOT r = (f32[1024], f32[1024]) tuple(a, b)"""
    module, plan = _advised(entry, {("p", "a"): NO})
    assert "p" in module.entry.by_name
    assert _refusals(plan)["p", "a"] == "advised"
    (other,) = (found.decision for found in plan.refusals if found.consumer == "b")
    assert other.code == "not-into-all"
    assert " a " in other.reason


def test_a_yes_comes_first_and_outweighs_the_model() -> None:
    """What would be slower is fused, into that user alone where others take it not."""
    entry = """x = f32[4096] parameter(0)
y = f32[65536,4096] parameter(1)
e = f32[4096] exponential(x)
b = f32[65536,4096] broadcast(e), dimensions={1}
c = f32[65536,4096] add(b, y)
w = f32[4096] custom-call(e), custom_call_target="f"
ROOT r = (f32[65536,4096], f32[4096]) tuple(c, w)"""
    assert "e" not in {step.producer for step in _fuse(entry)[1].steps}
    module, plan = _advised(entry, {("e", "b"): YES})
    assert (plan.steps[0].producer, plan.steps[0].consumer) == ("e", "b")
    assert plan.steps[0].duplicated
    assert plan.steps[0].comparison is None
    assert "e" in module.entry.by_name
    assert _refusals(plan)["e", "w"] == "consumer-not-fusible"


def test_after_a_yes_the_other_users_are_weighed_as_ever() -> None:
    """They gain, and take the producer in by themselves."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
a = f32[1024] negate(p)
b = f32[1024] floor(p)
ROOT r = (f32[1024], f32[1024]) tuple(a, b)"""
    module, plan = _advised(entry, {("p", "b"): YES})
    assert [(step.producer, step.consumer) for step in plan.steps] == [("p", "b"), ("p", "a")]
    assert plan.steps[1].comparison is not None
    assert "p" not in module.entry.by_name


def test_no_yes_makes_a_module_wrong() -> None:
    """A wish that cannot be is refused for what stands against it."""
    entry = """x = f32[1024] parameter(0)
p = f32[1024] abs(x)
ROOT w = f32[1024] custom-call(p), custom_call_target="f\""""
    _, plan = _advised(entry, {("p", "w"): YES})
    assert plan.steps == []
    assert _refusals(plan)["p", "w"] == "consumer-not-fusible"


def test_a_constant_is_kept_where_the_user_says_so() -> None:
    """Constants are decided at the end, by the user's answer first."""
    entry = """x = f32[1024] parameter(0)
z = f32[] constant(2)
ROOT b = f32[1024] broadcast(z), dimensions={}"""
    assert len(_fuse(entry)[1].steps) == 1
    _, plan = _advised(entry, {("z", "b"): NO})
    assert plan.steps == []
    assert _refusals(plan)["z", "b"] == "advised"


def test_bodies_of_loops_are_fused_and_regions_are_not() -> None:
    """What is run one instruction after the other, and nothing else."""
    text = """HloModule m
twice { a = f32[] parameter(0) b = f32[] parameter(1) n = f32[] negate(b) ROOT c = f32[] add(a, n) }
body { s = f32[64] parameter(0) n = f32[64] negate(s) ROOT m = f32[64] abs(n) }
more { s = f32[64] parameter(0) ROOT t = pred[] constant(false) }
ENTRY e { x = f32[64] parameter(0) z = f32[] constant(0)
  w = f32[64] while(x), condition=more, body=body
  ROOT r = f32[] reduce(w, z), dimensions={0}, to_apply=twice }"""
    module = hloopt.parse(text)
    plan = PriorityFusion().fuse(module)
    assert {step.computation for step in plan.steps if step.producer != "z"} == {"body"}


def test_unknown_models_and_targets_are_named() -> None:
    """With the nearest name."""
    for options, words in (
        (PriorityFusion(cost_model="xla-2062"), "no cost model is called 'xla-2062'"),
        (PriorityFusion(target="h2000"), "unknown target 'h2000'; did you mean 'h200'"),
    ):
        with pytest.raises(UsageError, match=words):
            options.fuse(_module(CHAIN))


def test_other_models_decide_as_well() -> None:
    """The model of 2023 prices the same producers."""
    _, plan = _fuse(CHAIN, PriorityFusion(cost_model="xla-2023", target="v100"))
    assert (plan.cost_model, plan.target) == ("xla-2023", "v100")
    assert len(plan.steps) == 2


def test_a_queue_gives_the_youngest_of_equals() -> None:
    """Priorities change, and what was dropped is forgotten."""
    made = [Instruction(name, "add", None) for name in "abcd"]  # type: ignore[arg-type]
    queue = ProducerQueue()
    for entry in made:
        queue.made(entry)
        queue.put(entry, 1.0)
    a, b, c, d = made
    queue.put(a, 2.0)
    queue.put(a, 1.0)
    queue.put(b, 3.0)
    queue.drop(d)
    assert d not in queue
    assert [queue.pop() for _ in range(4)] == [b, c, a, None]
    queue.put(c, 0.0)
    queue.gone(c)
    assert queue.pop() is None


def test_times_that_have_no_end_are_counted_apart() -> None:
    """Taking one out again leaves the sums as they were."""
    account = Account()
    first, second = (Instruction(name, "add", None) for name in "ab")  # type: ignore[arg-type]
    account.add_times(first, Comparison(3.0, 2.0))
    account.add_times(second, Comparison(2.0, float("inf")))
    assert (account.unfused, account.fused, account.endless) == (12000, 8000, 1)
    account.drop(second)
    assert (account.unfused, account.fused, account.endless) == (12000, 8000, 0)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_random_programs_keep_every_bit(text: str) -> None:
    """Fused modules are valid, compute the same, and are read back as they are written."""
    module = hloopt.parse(text)
    before = results(module)
    PriorityFusion().fuse(module)
    hloopt.verify(module)
    assert results(module) == before
    assert hloopt.parse(module.to_text()).to_text() == module.to_text()


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_all_that_a_user_may_wish_keeps_every_bit(text: str) -> None:
    """Every pair is wanted: whatever is not forbidden is fused, and computes the same."""
    module = hloopt.parse(text)
    before = results(module)
    log = PassLog(advice=Advice((_Everything(),)))
    PriorityFusion().fuse(module, log)
    hloopt.verify(module)
    assert results(module) == before


class _Everything:
    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        return YES


def _fan(width: int) -> str:
    lines = ["x = f32[64] parameter(0)", "y = f32[64] parameter(1)", "p = f32[64] abs(x)"]
    for number in range(width):
        lines += [
            f"a{number} = f32[64] add(p, y)",
            f"b{number} = f32[64] negate(a{number})",
        ]
    names = [f"b{number}" for number in range(width)]
    shapes = ", ".join("f32[64]" for _ in names)
    return "\n".join([*lines, f"ROOT r = ({shapes}) tuple({', '.join(names)})"])


def test_costs_are_linear_in_the_users_of_a_producer() -> None:
    """Four times the users, at most five times the work: no user is weighed anew when another changes."""
    small, large = _module(_fan(50)), _module(_fan(200))
    few = count_calls(lambda: PriorityFusion().fuse(small))
    many = count_calls(lambda: PriorityFusion().fuse(large))
    assert many < 5 * few


def test_an_rng_that_loses_a_user_on_the_way_is_judged_from_then_on() -> None:
    """Only with one user it may be fused at all: it has two until both are in one kernel."""
    text = """a = f32[] constant(0)
b = f32[] constant(1)
p = f32[128,64] parameter(0)
r = f32[128,64] rng(a, b), distribution=rng_uniform
e = f32[128,64] negate(r)
q = f32[128,64] add(e, p)
ROOT s = f32[128,64] multiply(q, r)"""
    module, plan = _fuse(text)
    assert [entry.opcode for entry in module.entry if entry.users] == [
        "constant", "constant", "parameter", "rng",
    ]  # fmt: skip
    assert "r" in {producer for producer, _ in _refusals(plan)}


def _pieces(piece: str, count: int, more: str = "") -> str:
    """A concatenate of what ``piece`` makes, as ``y``, of the number ``i`` and the slice ``x``."""
    lines = [
        f"p = f32[{count},64] parameter(0)",
        "q = f32[1,64] parameter(1)",
        "u = f32[1,64] sine(q)",
    ]
    for i in range(count):
        at = (i * 7) % count
        lines.append(f"x{i} = f32[1,64] slice(p), slice={{[{at}:{at + 1}], [0:64]}}")
        lines.append(piece.replace("#", str(i)))
    parts = ", ".join(f"y{i}" for i in range(count))
    return "\n".join([*lines, f"c = f32[{count},64] concatenate({parts}), dimensions={{0}}", more])


@pytest.mark.every_value
@pytest.mark.parametrize(
    "piece",
    [
        "y# = f32[1,64] multiply(x#, x#)",
        "y# = f32[1,64] multiply(x#, u)",
        "w# = f32[1,64] sine(x#)\ny# = f32[1,64] atan2(w#, x#)",
        "k# = f32[] constant(#)\nb# = f32[1,64] broadcast(k#), dimensions={}\ny# = f32[1,64] atan2(b#, x#)",
        "w# = f32[1,64] sine(x#)\nv# = f32[1,64] cosine(u)\ny# = f32[1,64] atan2(w#, v#)",
        "w# = f32[64,1] transpose(x#), dimensions={1,0}\ny# = f32[1,64] reshape(w#)",
    ],
)
@pytest.mark.parametrize(
    "end", ["ROOT r = f32[45,64] negate(c)", "ROOT r = (f32[45,64], f32[1,64]) tuple(c, y3)"]
)
def test_twins_are_fused_as_if_each_were_judged(
    piece: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stands for others that nothing tells apart changes no step, its price or a refusal."""
    entry = _pieces(piece, 45, end)
    module, plan = _fuse(entry)
    monkeypatch.setattr(Twins, "put_to_sleep", lambda self, fusion: [])
    by_itself, each = _fuse(entry)
    assert module.to_text() == by_itself.to_text()
    assert plan.steps == each.steps
    assert sorted(map(repr, plan.refusals)) == sorted(map(repr, each.refusals))


def test_twins_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many alike all but one sleep; of two kinds, two stand for the others; unlike ones all stay awake."""
    fallen: list[int] = []
    found = Twins.put_to_sleep

    def counted(self: Twins, fusion: Instruction) -> list[Instruction]:
        twins = found(self, fusion)
        fallen.append(len(twins))
        return twins

    monkeypatch.setattr(Twins, "put_to_sleep", counted)
    end = "ROOT r = f32[45,64] negate(c)"
    _fuse(_pieces("y# = f32[1,64] multiply(x#, x#)", 45, end))
    assert max(fallen) >= 40
    fallen.clear()
    _fuse(_pieces("y# = f32[1,64] multiply(x#, x#)", 12, "ROOT r = f32[12,64] negate(c)"))
    assert max(fallen, default=0) == 0

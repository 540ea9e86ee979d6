"""What no strategy fuses across, and the user's word, in instruction fusion."""

from __future__ import annotations

import hloopt
from hloopt.fusion.advice import Advice
from hloopt.fusion.barriers import find_barriers
from hloopt.fusion.decision import Decision
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.ir import Instruction
from hloopt.rewrite.pass_ import PassLog


def _plan(body: str) -> FusionPlan:
    module = hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    plan = InstructionFusion().fuse(module)
    hloopt.verify(module)
    return plan


def _refusals(plan: FusionPlan) -> dict[tuple[str, str], Decision]:
    return {(entry.producer, entry.consumer): entry.decision for entry in plan.refusals}


CALL = """p = u32[8] parameter(0)
n = u32[8] not(p)
c = (u32[8], u32[8]) custom-call(n), custom_call_target="cuda_threefry2x32"
g = u32[8] get-tuple-element(c), index=1
ROOT r = u32[8] xor(g, g)"""


def test_a_custom_call_is_never_fused() -> None:
    """Neither what it reads nor, through a get-tuple-element, what reads its results."""
    refusals = _refusals(_plan(CALL))
    assert set(refusals) == {("n", "c"), ("c", "r")}
    for decision in refusals.values():
        assert decision.code == "custom-call"
        assert "'cuda_threefry2x32'" in decision.reason
    inline = CALL.replace('custom-call(n), custom_call_target="cuda_threefry2x32"', "tuple(n, n)")
    assert not _plan(inline).refusals


LOOP = """HloModule m
cond {{ s = {shape} parameter(0) {read} k = s32[] constant(3)
  ROOT c = pred[] compare(i, k), direction=LT }}
body {{ s = {shape} parameter(0) {read} n = s32[] negate(i) m = s32[] abs(n) {write} }}
ENTRY e {{ p = {shape} parameter(0) ROOT w = {shape} while(p), condition=cond, body=body }}
"""
PAIR = {
    "shape": "(s32[], s32[])",
    "read": "i = s32[] get-tuple-element(s), index=0",
    "write": "ROOT t = (s32[], s32[]) tuple(m, m)",
}
ARRAY = {"shape": "s32[]", "read": "i = s32[] bitcast(s)", "write": ""}


def test_nothing_is_fused_across_the_iterations_of_a_loop() -> None:
    """One word for each loop, whatever its body computes and however much it carries."""
    plan = InstructionFusion().fuse(hloopt.parse(LOOP.format(**PAIR)))
    assert len(plan.steps) == 1
    (carried,) = (entry for entry in plan.refusals if entry.decision.code == "loop-carried")
    assert (carried.computation, carried.producer, carried.consumer) == ("body", "t", "w")
    assert carried.decision.reason == (
        "results of the loop's body are carried to its next iteration in a tuple of 2: nothing is fused"
        " across iterations"
    )
    single = InstructionFusion().fuse(
        hloopt.parse(LOOP.format(**ARRAY).replace("m = ", "ROOT m = "))
    )
    assert [entry.decision.words for entry in single.refusals if entry.decision.words] == [
        "one array"
    ]


def test_barriers_are_gathered_by_reason() -> None:
    """From all plans, each instruction once, and only of those that are still there."""
    loop = InstructionFusion().fuse(hloopt.parse(LOOP.format(**PAIR)))
    calls = _plan(CALL)
    found = find_barriers((calls, loop, calls), {("e", "c"), ("e", "w")})
    assert [(row.code, row.names) for row in found] == [
        ("custom-call", ("c",)),
        ("loop-carried", ("w",)),
    ]
    assert found[0].reason.endswith("'cuda_threefry2x32'")
    assert [row.code for row in find_barriers((calls, loop), {("e", "w"), ("f", "c")})] == [
        "loop-carried"
    ]
    assert find_barriers((calls, loop), ()) == []


def test_a_custom_call_without_neighbours_is_told_by_itself() -> None:
    """One that reads a parameter, or another call's results, and whose results nothing but a tuple reads."""
    plan = _plan("""p = u32[8] parameter(0)
a = u32[8] custom-call(p), custom_call_target="x"
b = u32[8] custom-call(a), custom_call_target="y"
ROOT t = (u32[8]) tuple(b)""")
    told = {(entry.producer, entry.consumer): entry.decision.words for entry in plan.refusals}
    assert told == {("a", "b"): "x", ("b", ""): "y"}


class _Wanted:
    """One who answers every question about some pairs."""

    def __init__(self, **answers: bool) -> None:
        self.answers = answers

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        answer = self.answers.get(producer.name)
        return None if answer is None else Decision(answer, "advised", words="as I say")


def _advised(body: str, **answers: bool) -> FusionPlan:
    module = hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    log = PassLog(advice=Advice((_Wanted(**answers),)))
    plan = InstructionFusion().fuse(module, log)
    hloopt.verify(module)
    return plan


def test_the_user_keeps_two_apart() -> None:
    """A no is the last word, also about a pair that every rule would allow."""
    body = "p = f32[8] parameter(0)\na = f32[8] negate(p)\nROOT b = f32[8] abs(a)"
    assert _advised(body).steps
    plan = _advised(body, a=False)
    assert not plan.steps
    assert str(plan.refusals[0].decision) == "advised: the user wants it so: as I say"


SLOW = """p = f32[8] parameter(0)
t = f32[8] tanh(p)
b = f32[8,64] broadcast(t), dimensions={0}
n = f32[8,64] negate(b)
ROOT r = f32[8,64] abs(n)"""
SHARED = """p = f32[8] parameter(0)
t = f32[8] tanh(p)
a = f32[8] dot(t, p), lhs_batch_dims={0}, rhs_batch_dims={0}
n = f32[8] negate(t)
ROOT r = (f32[8], f32[8]) tuple(a, n)"""
BINARY = """p = f32[8] parameter(0)
q = f32[8] parameter(1)
t = f32[8] add(p, q)
n = f32[8] negate(t)
m = f32[8] dot(t, p), lhs_batch_dims={0}, rhs_batch_dims={0}
ROOT r = (f32[8], f32[8]) tuple(m, n)"""


def test_the_user_wants_two_together() -> None:
    """A yes outweighs what is a matter of time, and nothing that would make the module wrong."""
    slow = SLOW
    assert "t" not in {step.producer for step in _plan(slow).steps}
    assert "t" in {step.producer for step in _advised(slow, t=True).steps}
    shared = SHARED
    assert {step.producer for step in _advised(shared, t=True).steps} == {"t"}
    kept = BINARY
    assert {step.producer for step in _advised(kept, t=True).steps} == {"t"}
    called = _advised(CALL, n=True, c=True)
    assert not called.steps
    waits = """p = f32[8] parameter(0)
n = f32[8] negate(p)
q = f32[8] custom-call(p), custom_call_target="x", control-predecessors={n}
t = f32[8] tanh(n)
ROOT r = (f32[8], f32[8]) tuple(q, t)"""
    assert not _advised(waits, n=True).steps

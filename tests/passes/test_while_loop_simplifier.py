"""while-loop-simplifier: what a loop need not carry, loops that are none, and what must stay."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.passes.loops.simplifier import WhileLoopSimplifier
from hloopt.rewrite import PassLog
from hloopt.types import TupleShape
from tests.helpers.rarely import one_in
from tests.passes.loop_texts import COUNT, loop_text
from tests.passes.proof import check
from tests.properties.random_modules import module_text

PASS = WhileLoopSimplifier()


def loops(module: Module) -> list[Instruction]:
    return [one for one in module.instructions() if one.opcode == "while"]


def size(module: Module) -> int:
    (loop,) = loops(module)
    assert isinstance(loop.shape, TupleShape)
    return len(loop.shape.elements)


I = ("i", "s32[]", "zero")  # noqa: E741
X = ("v", "f32[4]", "x")
W = ("w", "f32[4]", "y")
STEP = f"{COUNT}\nv1 = f32[4] multiply(v, w)"


def missed(text: str) -> list[str]:
    """What the pass says it did not do, and that it did nothing."""
    module, log = hloopt.parse(text), PassLog(kinds=frozenset({"missed"}))
    before = module.to_text()
    assert not PASS.run(module, log)
    assert module.to_text() == before
    return [remark.reason for remark in log.remarks]


@pytest.mark.parametrize(("bound", "expected"), [("0", 0), ("1", 0), ("2", 1)])
def test_a_loop_that_runs_at_most_once_is_none(bound: str, expected: int) -> None:
    """Its result is the initial state, or what the body makes of it."""
    condition = f"n = s32[] constant({bound})\nROOT c = pred[] compare(i, n), direction=LT"
    text = loop_text([I, X, W], condition=condition, body=STEP, following=["i1", "v1", "w"])
    module, _ = check(text, PASS)
    assert len(loops(module)) == expected


def test_a_scalar_state_that_runs_once() -> None:
    """A state that is no tuple, and a condition that is false as it stands."""
    text = """HloModule m
cond { i = f32[] parameter(0) ROOT c = pred[] constant(false) }
once { i = s32[] parameter(0) n = s32[] constant(1) ROOT c = pred[] compare(i, n), direction=LT }
body { i = f32[] parameter(0) ROOT j = f32[] add(i, i) }
next { i = s32[] parameter(0) k = s32[] constant(2) ROOT j = s32[] add(i, k) }
ENTRY e { z = f32[] parameter(0) o = s32[] constant(0)
  w = f32[] while(z), condition=cond, body=body
  v = s32[] while(o), condition=once, body=next
  ROOT t = (f32[], s32[]) tuple(w, v) }
"""
    module, log = check(text, PASS)
    assert log.hits == {"loop that never runs": 1, "loop that runs once": 1}
    assert not loops(module)
    assert len(module.computations) == 1


def test_unused_elements_go_in_cycles_too() -> None:
    """Two elements that only make each other's next values, and one that the effect of nothing reads."""
    state = [I, X, ("a", "f32[4]", "x"), ("b", "f32[4]", "y"), W]
    body = f"{STEP}\nb1 = f32[4] add(a, b)"
    text = loop_text(state, body=body, following=["i1", "v1", "b", "b1", "w"], results=["v"])
    module, log = check(text, PASS)
    assert size(module) == 3
    assert log.hits == {"elements that nothing needs": 1}


def test_what_the_condition_or_an_effect_needs_stays() -> None:
    """A value that goes to the outside world from within the loop is needed, and what becomes it."""
    told = f"{STEP}\ntk = token[] after-all()\no = token[] outfeed(w, tk), outfeed_shape=f32[4]"
    for body, count in ((told, 3), (STEP, 1)):
        text = loop_text([I, X, W], body=body, following=["i1", "w", "v"], results=["i"])
        module = hloopt.parse(text)
        assert PASS.run(module, PassLog())
        hloopt.verify(module)
        assert size(module) == count


def test_elements_that_are_always_equal_become_one() -> None:
    """Same start and same step; a third that differs in its step stays."""
    state = [I, X, ("a", "f32[4]", "x"), ("b", "f32[4]", "x")]
    body = f"{COUNT}\nv1 = f32[4] add(v, a)\na1 = f32[4] add(a, v)\nb1 = f32[4] multiply(b, b)"
    text = loop_text(state, body=body, following=["i1", "v1", "a1", "b1"])
    module, log = check(text, PASS)
    assert size(module) == 3
    assert log.hits["element that equals another"] == 1


def test_a_rotation_of_equal_elements_is_one_element() -> None:
    """What is equal before the loop and only changes places stays equal."""
    state = [I, X, ("a", "f32[4]", "x"), ("b", "f32[4]", "x")]
    text = loop_text(state, body=COUNT, following=["i1", "a", "b", "v"])
    module, log = check(text, PASS)
    assert log.hits["element that equals another"] == 2
    assert size(module) == 1  # the one that is left is handed on, and nothing inside reads it


@pytest.mark.parametrize(
    ("first", "step", "shape", "count"),
    [
        ("one", "3", "s32[]", 1),
        ("three", "-4", "s32[]", 1),
        ("p", "2", "s32[]", 2),
        ("zero8", "1", "u8[]", 1),
        ("wide", "6", "s64[]", 1),
    ],
)
def test_a_counter_that_follows_another_is_computed(
    first: str, step: str, shape: str, count: int
) -> None:
    """Multiples, either way, narrower and wider; not one whose start is unknown."""
    entry = "zero8 = u8[] constant(250)\nwide = s64[] constant(-9)"
    body = f"{COUNT}\nk2 = {shape} constant({step})\nj1 = {shape} add(j, k2)\nv1 = f32[4] add(v, v)"
    body += (
        "\nu = f32[] convert(j)\nub = f32[4] broadcast(u), dimensions={}\nv2 = f32[4] add(v1, ub)"
    )
    state = [I, X, ("j", shape, first)]
    text = loop_text(state, body=body, following=["i1", "v2", "j1"], entry=entry)
    module, log = check(text, PASS)
    assert size(module) == count + 1
    assert log.hits["counter that follows another"] == 2 - count


def test_a_counter_that_goes_round_is_not_followed_by_a_wider_one() -> None:
    """u8 goes round before the loop ends; a wider counter that starts with it does not."""
    condition = "n = u8[] constant(3)\nROOT c = pred[] compare(i, n), direction=NE"
    body = (
        "k = u8[] constant(7)\ni1 = u8[] add(i, k)\nk2 = s32[] constant(7)\nj1 = s32[] add(j, k2)\n"
    )
    body += "u = f32[] convert(j)\nub = f32[4] broadcast(u), dimensions={}\nv1 = f32[4] add(v, ub)"
    state = [("i", "u8[]", "z"), ("j", "s32[]", "zero"), X]
    text = loop_text(state, condition=condition, body=body, following=["i1", "j1", "v1"],
                     entry="z = u8[] constant(0)")  # fmt: skip
    module, log = check(text, PASS)
    assert size(module) == 3
    assert log.hits == {"counter after the loop": 2}


def test_results_that_are_known() -> None:
    """Behind the loop, the counter is a number and what is handed on is what went in."""
    text = loop_text([I, X, W], body=STEP, following=["i1", "v1", "w"])
    module, log = check(text, PASS)
    assert log.hits == {"element that the body passes through": 1, "counter after the loop": 1}
    assert module.entry.root.operands[2].name == "y"
    literal = module.entry.root.operands[0].literal
    assert literal is not None
    assert int(literal.array) == 5  # type: ignore[arg-type]


def test_an_element_that_is_set_to_its_first_value_is_a_constant() -> None:
    """It is read as the constant it is, and dropped."""
    body = f"{COUNT}\nq1 = s32[] constant(3)\nf = f32[] convert(q)\nfb = f32[4] broadcast(f), dimensions={{}}\n"
    body += "v1 = f32[4] multiply(v, fb)"
    state = [I, X, ("q", "s32[]", "three")]
    module, log = check(loop_text(state, body=body, following=["i1", "v1", "q1"]), PASS)
    assert size(module) == 2
    again, _ = check(loop_text(state, body=body.replace("constant(3)", "constant(4)"),
                               following=["i1", "v1", "q1"]), PASS)  # fmt: skip
    assert size(again) == 3
    assert log.hits["element that is always the same constant"] == 1


NESTED = """HloModule m
cond {
s = (s32[], (f32[4], (f32[4], f32[4]))) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] constant(4)
ROOT c = pred[] compare(i, n), direction=LT
}
body {
s = (s32[], (f32[4], (f32[4], f32[4]))) parameter(0)
i = s32[] get-tuple-element(s), index=0
k = s32[] constant(1)
j = s32[] add(i, k)
t = (f32[4], (f32[4], f32[4])) get-tuple-element(s), index=1
a = f32[4] get-tuple-element(t), index=0
u = (f32[4], f32[4]) get-tuple-element(t), index=1
b = f32[4] get-tuple-element(u), index=0
c = f32[4] add(a, b)
v = (f32[4], (f32[4], f32[4])) tuple(c, u)
ROOT r = (s32[], (f32[4], (f32[4], f32[4]))) tuple(j, v)
}
ENTRY e {
p = ((f32[4], (f32[4], f32[4]))) parameter(0)
q = (f32[4], (f32[4], f32[4])) get-tuple-element(p), index=0
z = s32[] constant(0)
t = (s32[], (f32[4], (f32[4], f32[4]))) tuple(z, q)
ROOT w = (s32[], (f32[4], (f32[4], f32[4]))) while(t), condition=cond, body=body
}
"""


def test_tuples_within_the_state_are_opened() -> None:
    """Two levels, of which one is handed on whole; the result has the shape that it had."""
    module, log = check(NESTED, PASS)
    assert log.hits["tuple within the state"] == 2
    assert not any(isinstance(shape, TupleShape) for shape in loops(module)[0].shape.elements)  # type: ignore[union-attr]


def test_inner_loops_give_their_results_to_outer_ones() -> None:
    """An inner loop that runs once leaves a body behind in which the outer one finds equal elements."""
    more = """inner.cond { s = (s32[], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] constant(1)
ROOT c = pred[] compare(i, n), direction=LT }
inner { s = (s32[], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
v = f32[4] get-tuple-element(s), index=1
k = s32[] constant(1)
j = s32[] add(i, k)
d = f32[4] add(v, v)
ROOT r = (s32[], f32[4]) tuple(j, d) }"""
    body = f"""{COUNT}
z = s32[] constant(0)
it = (s32[], f32[4]) tuple(z, v)
iw = (s32[], f32[4]) while(it), condition=inner.cond, body=inner
v1 = f32[4] get-tuple-element(iw), index=1
w1 = f32[4] add(w, w)"""
    state = [I, X, ("w", "f32[4]", "x")]
    module, _ = check(loop_text(state, body=body, following=["i1", "v1", "w1"], more=more), PASS)
    assert len(loops(module)) == 1
    assert size(module) == 2


def test_computations_that_loops_share_are_changed_for_one_of_them() -> None:
    """The other loop has another use of what the first one does not need."""
    text = loop_text([I, X, W], body=STEP, following=["i1", "v1", "w"], results=["v"])
    text = text.replace("ROOT result = (f32[4]) tuple(out.v)", """
t2 = (s32[], f32[4], f32[4]) tuple(p, y, x)
loop2 = (s32[], f32[4], f32[4]) while(t2), condition=cond, body=body
i2 = s32[] get-tuple-element(loop2), index=0
w2 = f32[4] get-tuple-element(loop2), index=2
ROOT result = (f32[4], s32[], f32[4]) tuple(out.v, i2, w2)""")  # fmt: skip
    module, _ = check(text, PASS, given=[], draws=4)
    assert len(loops(module)) == 2


def test_an_endless_loop_stays() -> None:
    """Even where nobody needs anything of it: it has one element left."""
    condition = "ROOT c = pred[] constant(true)"
    text = loop_text([I, X], condition=condition, body=COUNT, following=["i1", "v"], results=["v"])
    module, log = hloopt.parse(text), PassLog()
    assert PASS.run(module, log)
    hloopt.verify(module)
    assert size(module) == 1
    assert not PASS.run(module, PassLog())


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (", control-predecessors={zero}", "it has control edges"),
        (", sharding={replicated}", "its result has a sharding"),
    ],
)
def test_what_stands_in_the_way_of_taking_a_loop_apart(attribute: str, reason: str) -> None:
    """Control edges and shardings are kept by keeping the loop."""
    condition = "n = s32[] constant(1)\nROOT c = pred[] compare(i, n), direction=LT"
    body = f"{COUNT}\nv1 = f32[4] multiply(v, v)"
    text = loop_text([I, X], condition=condition, body=body, following=["i1", "v1"],
                     results=["v"], attributes=attribute)  # fmt: skip
    assert missed(text) == [reason]


def test_a_loop_that_runs_once_with_a_side_effect_stays() -> None:
    """Where an infeed would end up among others, nobody can say."""
    condition = "n = s32[] constant(1)\nROOT c = pred[] compare(i, n), direction=LT"
    body = f"{COUNT}\nk0 = token[] after-all()\nfed = (f32[4], token[]) infeed(k0)\n"
    body += "v1 = f32[4] get-tuple-element(fed), index=0"
    text = loop_text([I, X], condition=condition, body=body, following=["i1", "v1"], results=["v"])
    assert missed(text) == ["body or condition have side effects"]


def test_a_sharding_by_element_loses_what_is_dropped() -> None:
    """Whatever a sharding consists of, those of the elements that are left stay."""
    first, second = "{replicated}", '{devices=[4]0,1,2,3 metadata={op_name="a, {b}"}}'
    text = loop_text([I, W, X], body=f"{COUNT}\nv1 = f32[4] multiply(v, v)",
                     following=["i1", "w", "v1"], results=["v"],
                     attributes=f", sharding={{{first}, {{maximal device=1}}, {second}}}")  # fmt: skip
    module, _ = check(text, PASS, draws=2)
    (loop,) = loops(module)
    assert str(loop.attributes["sharding"]) == f"{{{first}, {second}}}"


def test_a_sharding_by_elements_of_elements_stays() -> None:
    """Nobody here takes it apart."""
    shardings = ", ".join(["{replicated}"] * 4)
    text = NESTED.replace("body=body", f"body=body, sharding={{{shardings}}}")
    assert missed(text) == ["its sharding is given by elements of elements"]


def test_what_xla_says_of_elements_follows_them() -> None:
    """The induction variable keeps its number's meaning; the count stays."""
    config = (', backend_config={"known_trip_count":{"n":"5"},"known_init_step":{"init":"0","step":"1"},'
              '"known_induction_variable":{"tuple_index":"1"},"dynamic_variables":[]}')  # fmt: skip
    state = [X, I, W]
    text = loop_text(state, body=f"{COUNT}\nw1 = f32[4] add(w, w)", following=["v", "i1", "w1"],
                     results=["w"], attributes=config)  # fmt: skip
    module, _ = check(text, PASS)
    printed = str(loops(module)[0].attributes["backend_config"])
    assert '"known_induction_variable":{"tuple_index":"0"}' in printed
    assert '"known_trip_count":{"n":"5"}' in printed


@pytest.mark.parametrize("seed", one_in(3, range(25)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Loops that count either way, hand things on and carry them twice."""
    text = module_text(random.Random(seed))
    module = hloopt.parse(text)
    check(text, PASS, changes=PASS.run(module, PassLog()), draws=2)


def test_what_is_said_of_a_counter_is_said_of_its_number() -> None:
    """The constant behind the loop has the frontend_attributes of what it stands for."""
    text = """HloModule m
less { s = (s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
next { s = (s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(1)
  j = s32[] add(i, k)
  ROOT t = (s32[]) tuple(j) }
ENTRY e { z = s32[] constant(0)
  t = (s32[]) tuple(z)
  w = (s32[]) while(t), condition=less, body=next
  ROOT r = s32[] get-tuple-element(w), index=0, frontend_attributes={a="b"} }
"""
    better, _ = check(text, WhileLoopSimplifier())
    assert better.entry.root.opcode == "constant"
    assert "frontend_attributes" in better.entry.root.attributes


LONE = """HloModule m

next {
  v = f32[4] parameter(0)
  ROOT w = f32[4] sqrt(v)
}

less {
  v = f32[4] parameter(0)
  n = f32[] constant(2)
  s = f32[1] slice(v), slice={[0:1]}
  r = f32[] reshape(s)
  ROOT c = pred[] compare(r, n), direction=GT
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] multiply(x, x)
  loop = f32[4] while(y), condition=less, body=next
  twice = f32[4] add(loop, loop)
  ROOT r = (f32[4], f32[4]) tuple(loop, twice)
}
"""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ROOT r =": "r =", "  loop =": "  ROOT loop ="},
        {"v = f32[4] parameter(0)\n  ROOT w": "ROOT v = f32[4] parameter(0)\n  w"},
    ],
    ids=["read", "root", "handed on"],
)
def test_an_array_that_is_the_state_becomes_the_element_of_a_tuple(changes: dict[str, str]) -> None:
    """Whoever reads it in body, condition and behind the loop reads that, roots included."""
    text = LONE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    given = [np.array([1.5, 2, 3, 0.5], np.float32)] if not changes else [np.zeros(4, np.float32)]
    module, log = check(text, PASS, given=[given], draws=0)
    assert log.hits["array that is the state"] == 1
    assert size(module) == 1


def test_an_array_with_a_sharding_stays_the_state() -> None:
    """That of a tuple would be told element by element."""
    text = LONE.replace("body=next", "body=next, sharding={replicated}")
    assert missed(text) == ["its state has a sharding or control edges"]

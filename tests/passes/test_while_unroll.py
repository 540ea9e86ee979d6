"""while-unroll: whole loops, several iterations at a time, what is left over, and what is refused."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.analysis.trip_count import trip_count
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.constant_folding import ConstantFolding
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.rewrite import PassLog
from tests.passes.loop_texts import COUNT, loop_text, scan_text
from tests.passes.proof import check
from tests.properties.random_modules import module_text

WHOLE = WhileUnroll()


def part(factor: int, **options: int) -> WhileUnroll:
    return WhileUnroll(factor=factor, full_max=0, **options)


def opcodes(module: Module, name: str = "") -> list[str]:
    computation = module.computations[name] if name else module.entry
    return [one.opcode for one in computation]


def missed(source: str, instance: WhileUnroll) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    before = module.to_text()
    assert not instance.run(module, log)
    assert module.to_text() == before
    return [remark.reason for remark in log.remarks]


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
def test_a_whole_scan_is_written_out(iterations: int) -> None:
    """As many copies as trips, with numbers for the counter, readable names and the metadata."""
    module, log = check(scan_text(iterations), WHOLE, draws=4)
    assert log.hits == {"loop written out": 1}
    assert list(module.computations) == ["e"]
    assert opcodes(module).count("multiply") == iterations
    names = [one.name for one in module.entry if one.opcode == "reshape" and one.metadata]
    assert names == [f"x.unroll.{number}" for number in range(iterations)]
    slices = [one for one in module.entry if one.opcode == "dynamic-slice"]
    assert [int(one.operands[1].literal.array) for one in slices] == list(range(iterations))  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("iterations", [4, 5, 6, 7, 20])
@pytest.mark.parametrize("factor", [2, 3])
def test_several_iterations_at_a_time(iterations: int, factor: int) -> None:
    """What is left over comes before the loop; the new loop's count is what is left."""
    if iterations < 2 * factor:
        reason = f"{iterations} iterations, fewer than two times factor={factor}"
        assert missed(scan_text(iterations), part(factor)) == [reason]
        return
    module, log = check(scan_text(iterations), part(factor), draws=4)
    assert log.hits == {"loop with several iterations in its body": 1}
    assert opcodes(module, "body").count("multiply") == factor
    peeled = [one.name for one in module.entry if one.opcode == "multiply"]
    assert peeled == [f"next.peel.{number}" for number in range(iterations % factor)]
    names = [one.name for one in module.computations["body"] if one.opcode == "multiply"]
    assert names == ["next", *(f"next.unroll.{number}" for number in range(1, factor))]
    (loop,) = [one for one in module.entry if one.opcode == "while"]
    assert trip_count(loop) == iterations // factor
    del loop.attributes["backend_config"]
    assert trip_count(loop) == iterations // factor


@pytest.mark.parametrize(
    ("condition", "step", "start", "iterations"),
    [
        ("n = s32[] constant(-20)\nROOT c = pred[] compare(i, n), direction=GE", "-3", "zero", 7),
        ("n = s32[] constant(14)\nROOT c = pred[] compare(n, i), direction=NE", "2", "zero", 7),
        (("n = s32[] constant(4)\nk = s32[] constant(3)\nm = s32[] and(i, k)\nt = s32[] constant(12)\n"
         "ROOT c = pred[] compare(i, t), direction=LE"), "2", "zero", 7),
    ],
)  # fmt: skip
def test_loops_of_every_kind_of_count(
    condition: str, step: str, start: str, iterations: int
) -> None:
    """Down, by twos, up to and with: the condition stays as it is, and holds as long as it did."""
    state = [("i", "s32[]", start), ("v", "f32[4]", "x")]
    body = f"k = s32[] constant({step})\ni1 = s32[] add(i, k)\nf = f32[] convert(i)\n"
    body += (
        "fb = f32[4] broadcast(f), dimensions={}\na = f32[4] multiply(v, fb)\nv1 = f32[4] add(a, v)"
    )
    source = loop_text(state, condition=condition, body=body, following=["i1", "v1"])
    for factor in (2, 3):
        module, _ = check(source, part(factor), draws=4)
        assert opcodes(module).count("multiply") == iterations % factor
    check(source, WHOLE, draws=4)


def test_a_loop_that_was_counted_by_running_it() -> None:
    """A counter without a closed form is no number beforehand, but its loop can be written out."""
    state = [("i", "s32[]", "one"), ("v", "f32[4]", "x")]
    condition = "n = s32[] constant(200)\nROOT c = pred[] compare(i, n), direction=LT"
    body = "k = s32[] constant(3)\ni1 = s32[] multiply(i, k)\nv1 = f32[4] add(v, v)"
    source = loop_text(state, condition=condition, body=body, following=["i1", "v1"])
    module, _ = check(source, part(2), draws=4)
    assert opcodes(module).count("add") == 1
    module, _ = check(source, WHOLE, ConstantFolding(), DeadCodeElimination(), draws=4)
    assert opcodes(module).count("multiply") == 0


def test_what_xla_says_of_the_loop_is_true_of_the_new_one() -> None:
    """Count, first value and step follow; it is marked, and other marks stay."""
    config = (', frontend_attributes={a="b"}, backend_config={"known_trip_count":{"n":"7"},'
              '"known_init_step":{"init":"0","step":"1"},"known_induction_variable":{"tuple_index":"0"},'
              '"dynamic_variables":[]}')  # fmt: skip
    module, _ = check(scan_text(7, attributes=config), part(3), draws=2)
    (loop,) = [one for one in module.entry if one.opcode == "while"]
    assert str(loop.attributes["backend_config"]) == (
        '{"known_trip_count":{"n":"2"},"known_init_step":{"init":"1","step":"3"},'
        '"known_induction_variable":{"tuple_index":"0"}}'
    )
    assert str(loop.attributes["frontend_attributes"]) == '{a="b",hloopt_unrolled="3"}'


def test_inner_loops_and_those_whose_count_the_outer_loop_hides() -> None:
    """A triangle: the inner loop runs as often as the outer counter says, which is known once that is."""
    more = """inner.cond { s = (s32[], s32[], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] get-tuple-element(s), index=1
ROOT c = pred[] compare(i, n), direction=LT }
inner { s = (s32[], s32[], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] get-tuple-element(s), index=1
v = f32[4] get-tuple-element(s), index=2
k = s32[] constant(1)
j = s32[] add(i, k)
d = f32[4] sine(v)
ROOT r = (s32[], s32[], f32[4]) tuple(j, n, d) }"""
    body = f"""{COUNT}
z = s32[] constant(0)
it = (s32[], s32[], f32[4]) tuple(z, i, v)
iw = (s32[], s32[], f32[4]) while(it), condition=inner.cond, body=inner
v1 = f32[4] get-tuple-element(iw), index=2"""
    state = [("i", "s32[]", "zero"), ("v", "f32[4]", "x")]
    module, log = check(
        loop_text(state, body=body, following=["i1", "v1"], more=more), WHOLE, draws=4
    )
    assert opcodes(module).count("sine") == 0 + 1 + 2 + 3 + 4
    assert list(module.computations) == ["e"]
    assert log.hits == {"loop written out": 6}


def test_fusions_have_a_body_each() -> None:
    """A fusion in the body is copied with its computation."""
    more = "fused { a = f32[4] parameter(0) ROOT b = f32[4] tanh(a) }"
    body = f"{COUNT}\nv1 = f32[4] fusion(v), kind=kLoop, calls=fused"
    state = [("i", "s32[]", "zero"), ("v", "f32[4]", "x")]
    source = loop_text(state, body=body, following=["i1", "v1"], more=more)
    module, _ = check(source, WHOLE, draws=2)
    assert sum(name.startswith("fused") for name in module.computations) == 5
    module, _ = check(source, part(2), draws=2)
    assert sum(name.startswith("fused") for name in module.computations) == 3


def test_control_edges_within_the_body_are_copied() -> None:
    """Each copy keeps its own order."""
    body = f"{COUNT}\na = f32[4] sine(v)\nb = f32[4] cosine(v), control-predecessors={{a}}\nv1 = f32[4] add(a, b)"
    state = [("i", "s32[]", "zero"), ("v", "f32[4]", "x")]
    module, _ = check(loop_text(state, body=body, following=["i1", "v1"]), WHOLE, draws=2)
    for one in module.entry:
        if one.opcode == "cosine":
            number = one.name.rpartition(".")[2]
            assert [before.name for before in one.control_predecessors] == [f"a.unroll.{number}"]


def test_a_scalar_state() -> None:
    """A state that is no tuple is written out whole; by parts it is refused."""
    source = """HloModule m
cond { i = s32[] parameter(0) n = s32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
body { i = s32[] parameter(0) k = s32[] constant(2) ROOT j = s32[] add(i, k) }
ENTRY e { z = s32[] constant(1) ROOT w = s32[] while(z), condition=cond, body=body }
"""
    module, _ = check(source, WHOLE, draws=1)
    assert opcodes(module).count("add") == 3
    assert missed(source.replace("constant(7)", "constant(17)"), part(2)) == [
        "its state is not a tuple"
    ]


@pytest.mark.parametrize(
    ("instance", "reason"),
    [
        (WhileUnroll(full_max=4), "5 iterations, more than full_max=4"),
        (WhileUnroll(body_max=13), "14 instructions in its body, more than body_max=13"),
        (WhileUnroll(total_max=69), "70 instructions in all, more than total_max=69"),
        (part(2, total_max=41), "42 instructions in all, more than total_max=41"),
        (part(3), "5 iterations, fewer than two times factor=3"),
    ],
)
def test_limits(instance: WhileUnroll, reason: str) -> None:
    """A loop beyond a limit stays, and the reason has the number that met it."""
    assert missed(scan_text(5), instance) == [reason]


def test_what_is_refused() -> None:
    """Unknown counts, effects, random numbers, control edges."""
    state = [("i", "s32[]", "p"), ("v", "f32[4]", "x")]
    unknown = loop_text(state, body=COUNT, following=["i1", "v"])
    assert missed(unknown, WHOLE) == ["its trip count is not known"]
    state = [("i", "s32[]", "zero"), ("v", "f32[4]", "x")]
    tell = f"{COUNT}\ntk = token[] after-all()\no = token[] outfeed(v, tk), outfeed_shape=f32[4]"
    draw = f"{COUNT}\nl = f32[] constant(0)\nh = f32[] constant(1)\nr = f32[4] rng(l, h), distribution=rng_uniform"
    for body, culprit in ((tell, "o"), (draw, "r")):
        source = loop_text(state, body=body, following=["i1", "v"])
        assert missed(source, WHOLE) == [f"{culprit} does more than compute its result"]
    edges = scan_text(5, attributes=", control-predecessors={xs}")
    assert missed(edges, WHOLE) == ["it has control edges"]


@pytest.mark.parametrize(
    "options", [{"factor": 0}, {"full_max": -1}, {"body_max": 0}, {"total_max": 0}]
)
def test_options_have_bounds(options: dict[str, int]) -> None:
    """Counts of what there must be."""
    with pytest.raises(UsageError, match="are at least 1, full_max at least 0"):
        WhileUnroll(**options)


@pytest.mark.every_value
@pytest.mark.parametrize("seed", range(300, 312))
@pytest.mark.parametrize("instance", [WHOLE, part(2)], ids=str)
def test_random_modules_keep_their_results(seed: int, instance: WhileUnroll) -> None:
    """Whole and by twos."""
    source = module_text(random.Random(seed))
    check(source, instance, changes=instance.run(hloopt.parse(source), PassLog()), draws=2)

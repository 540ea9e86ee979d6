"""The first value that differs: named through rewriting, fusions, loops and participants."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.prover.comparing import compare_runs
from hloopt.prover.executor import Executor
from hloopt.prover.localizing import Located, locate
from hloopt.prover.observing import Leaf, Place, TraceScope, observe
from hloopt.prover.rewritten import rewritten
from hloopt.prover.trials import Trial, made
from tests.helpers.rarely import one_in


def located(before: str, after: str, level: str = "O0", seed: int = 0) -> Located | None:
    first, second = hloopt.parse(before), hloopt.parse(after)
    if level != "O0":
        second = hloopt.optimize(second, level)
    inputs = made(first, Trial(seed))
    runs = [Executor().run(module, inputs) for module in (first, second)]
    found = compare_runs(*runs, inputs)
    count = len(found.results) // len(inputs.arrays)
    wrong = [divmod(at, count) for at, one in enumerate(found.results) if not one.passed]
    return locate(first, second, inputs, wrong)


def names(found: Located | None) -> tuple[str, str]:
    assert found is not None
    before = found.before.place.instruction.name if found.before is not None else ""
    return before, found.after.place.instruction.name


LINE = """HloModule m
ENTRY e {
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  two = f32[] constant(2)
  twos = f32[64] broadcast(two), dimensions={}
  p = f32[64] multiply(a, twos)
  q = f32[64] add(p, b)
  r = f32[64] tanh(q)
  s = f32[64] subtract(r, b)
  ROOT t = f32[64] exponential(s)
}
"""


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("add(p, b)", "subtract(p, b)", ("q", "q")),
        ("subtract(r, b)", "subtract(b, r)", ("s", "s")),
        ("tanh(q)", "logistic(q)", ("r", "r")),
    ],
)
def test_the_wrong_instruction_is_named(
    level: str, right: str, wrong: str, named: tuple[str, str]
) -> None:
    assert names(located(LINE, LINE.replace(right, wrong), level)) == named


def test_a_constant_that_differs_is_named() -> None:
    assert names(located(LINE, LINE.replace("constant(2)", "constant(3)"))) == ("two", "two")


def test_a_value_that_is_left_out_is_named() -> None:
    """The reader is where modules differ; what it ought to read is beside it."""
    found = located(LINE, LINE.replace("tanh(q)", "tanh(p)"))
    assert names(found) == ("r", "r")
    assert found is not None
    assert [leaf.place.instruction.name for leaf in found.missing] == ["q"]


def test_equal_modules_have_no_first_difference() -> None:
    assert located(LINE, LINE.replace("add(p, b)", "add(b, p)")) is None


def test_what_is_computed_otherwise_but_agrees_is_not_named() -> None:
    """The error is past two values that only the second module has."""
    factored = LINE.replace(
        "p = f32[64] multiply(a, twos)", "h = f32[64] add(a, a)\n  p = f32[64] multiply(h, ones)"
    ).replace(
        "twos = f32[64] broadcast(two)", "one = f32[] constant(1)\n  ones = f32[64] broadcast(one)"
    )
    assert names(located(LINE, factored.replace("tanh(q)", "sine(q)"))) == ("r", "r")


LOOP = """HloModule m
cond {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  w = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  seven = s32[] constant(SEVEN)
  late = pred[] compare(i, seven), direction=EQ
  lates = pred[4] broadcast(late), dimensions={}
  y = f32[4] add(x, w)
  z = f32[4] OTHER(y, w)
  v = f32[4] select(lates, z, y)
  h = f32[] constant(0.99)
  hs = f32[4] broadcast(h), dimensions={}
  u = f32[4] multiply(v, hs)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, u, w)
}
ENTRY e {
  x = f32[4] parameter(0)
  w = f32[4] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  l = (s32[], f32[4], f32[4]) while(s), condition=cond, body=body
  ROOT g = f32[4] get-tuple-element(l), index=1
}
"""


def loop(trips: int = 90, seven: int = 7, other: str = "multiply") -> str:
    text = LOOP.replace("TRIPS", str(trips)).replace("SEVEN", str(seven))
    return text.replace("OTHER", other)


@pytest.mark.parametrize("at", one_in(2, [0, 57, 2]))
@pytest.mark.parametrize("level", ["O0", "O2"])
def test_the_first_iteration_that_differs_is_found(at: int, level: str) -> None:
    found = located(loop(seven=at), loop(seven=at, other="add"), level)
    assert found is not None
    assert names(found)[0] in {"z", "v"}
    caller, iteration = next(one for one in found.after.place.path if one[0].opcode == "while")
    assert (caller.name, iteration) == ("l", at)


def test_loops_that_run_another_number_of_times() -> None:
    found = located(loop(trips=90), loop(trips=80))
    assert found is not None
    assert found.trips == (90, 80)
    assert names(found) == ("n", "n")


NESTED = """HloModule m
icond { s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT }
ibody { s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  x = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] cosine(x)
  ROOT r = (s32[], s32[], f32[4]) tuple(next, n, y) }
ocond { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
obody { s = (s32[], f32[4]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  three = s32[] constant(3)
  left = s32[] remainder(k, three)
  n = s32[] add(left, three)
  zero = s32[] constant(0)
  t = (s32[], s32[], f32[4]) tuple(zero, n, x)
  l = (s32[], s32[], f32[4]) while(t), condition=icond, body=ibody
  z = f32[4] get-tuple-element(l), index=2
  ROOT r = (s32[], f32[4]) tuple(next, z) }
ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  l = (s32[], f32[4]) while(s), condition=ocond, body=obody
  ROOT g = f32[4] get-tuple-element(l), index=1 }
"""


@pytest.mark.parametrize("wrong", ["remainder(three, k)", "add(k, three)", "subtract(k, three)"])
def test_what_sets_an_inner_loops_trip_count_is_named(wrong: str) -> None:
    """Each iteration is right: what is computed in more of them differs from all that was."""
    assert names(located(NESTED, NESTED.replace("remainder(k, three)", wrong))) == ("left", "left")


@pytest.mark.parametrize("trips", [0, 2])
def test_loops_of_few_iterations_that_run_another_number_of_times(trips: int) -> None:
    found = located(loop(trips=9), loop(trips=trips))
    assert found is not None
    assert found.trips == (9, trips)
    assert names(found) == ("n", "n")


ROTATING = """HloModule m
on { s = (s32[], s32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], s32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  p = s32[8] get-tuple-element(s), index=1
  x = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  first = s32[3] slice(p), slice={[0:3]}
  rest = s32[5] slice(p), slice={[3:8]}
  q = s32[8] concatenate(rest, first), dimensions={0}
  h = f32[] constant(0.5)
  hs = f32[8] broadcast(h), dimensions={}
  y = f32[8] multiply(x, hs)
  ROOT t = (s32[], s32[8], f32[8]) tuple(next, q, y) }
ENTRY e { x = f32[8] parameter(0)
  zero = s32[] constant(0)
  p = s32[8] iota(), iota_dimension=0
  s = (s32[], s32[8], f32[8]) tuple(zero, p, x)
  l = (s32[], s32[8], f32[8]) while(s), condition=on, body=step
  q = s32[8] get-tuple-element(l), index=1
  f = f32[8] convert(q)
  y = f32[8] get-tuple-element(l), index=2
  ROOT r = f32[8] add(y, f) }
"""


def test_a_value_that_agrees_by_chance_is_named() -> None:
    """The parts in the wrong order are what the loop began with, which the first module has, too."""
    found = located(ROTATING, ROTATING.replace("(rest, first)", "(first, rest)"))
    assert names(found) == ("q", "q")


SORTED = """HloModule m
order { a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e { x = s32[6] parameter(0)
  y = s32[6] parameter(1)
  s = (s32[6], s32[6]) sort(x, y), dimensions={0}, to_apply=order
  k = s32[6] get-tuple-element(s), index=0
  v = s32[6] get-tuple-element(s), index=1
  ROOT c = s32[12] concatenate(k, v), dimensions={0} }
"""


def test_operands_in_another_order_are_the_readers_fault() -> None:
    """Both are results of the same instruction, which is right."""
    assert names(located(SORTED, SORTED.replace("(k, v)", "(v, k)"))) == ("c", "c")


def test_what_passes_a_value_to_the_wrong_place_is_named() -> None:
    """Constants have no part in it: both modules have them, in another order in the state of the loop."""
    text = loop(trips=6)
    before = text.replace("  w = f32[4] parameter(1)\n", "  w = f32[4] constant({1,2,3,4})\n")
    before = before.replace("  x = f32[4] parameter(0)\n", "  x = f32[4] constant({5,6,7,9})\n")
    after = before.replace("tuple(next, u, w)", "tuple(next, w, u)")
    found = located(before, after)
    assert found is not None
    first = rewritten(hloopt.parse(before), hloopt.parse(after), found)
    assert "r" in {one.name for one in first}


SHARDED = """HloModule m, num_partitions=2
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  n = u32[] partition-id()
  i = s32[] convert(n)
  four = s32[] constant(4)
  o = s32[] multiply(i, four)
"""
REDUCED = """  all = f32[8] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT part = f32[4] dynamic-slice(all, o), dynamic_slice_sizes={4}
}
"""
SLICED = """  part = f32[4] dynamic-slice(x, o), dynamic_slice_sizes={4}
  ROOT all = f32[4] all-reduce(part), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
}
"""


HANDED_ON = """HloModule m
body { a = f32[64] parameter(0)
  n = f32[64] negate(a)
  s = f32[64] sine(a)
  ROOT t = (f32[64], f32[64]) tuple(n, s) }
ENTRY e {
  a = f32[64] parameter(0)
  f = (f32[64], f32[64]) fusion(a), kind=kLoop, calls=body
  g0 = f32[64] get-tuple-element(f), index=0
  g1 = f32[64] get-tuple-element(f), index=1
  p = f32[64] multiply(g0, g1)
  ROOT r = f32[64] tanh(p) }
"""


def test_the_element_that_hands_on_another_result_is_shown() -> None:
    """It passes on a value that is right elsewhere."""
    wrong = HANDED_ON.replace("get-tuple-element(f), index=1", "get-tuple-element(f), index=0")
    found = located(HANDED_ON, wrong)
    assert found is not None
    shown = rewritten(hloopt.parse(HANDED_ON), hloopt.parse(wrong), found)
    assert "g1" in [one.name for one in shown if one.is_first][:5]


def test_participants() -> None:
    """Slices of other elements are added: the slice reads what was not added yet."""
    found = located(SHARDED + REDUCED, SHARDED + SLICED)
    assert names(found) == ("part", "part")
    assert found is not None
    assert [leaf.place.instruction.name for leaf in found.missing] == ["all"]


def test_a_trace_follows_values_through_calls_and_loops() -> None:
    module = hloopt.parse(loop(trips=3))
    inputs = made(module, Trial())
    (trace,) = observe(module, inputs)
    (result,) = trace.results()
    assert result.place.instruction.name == "u"
    assert result.place.path[0][1] == 2
    assert (
        trace.seen[result].flat.tobytes() == hloopt.evaluate(module, inputs.arrays[0])[0].tobytes()
    )
    read = trace.origin(
        Leaf(Place(result.place.path, module.computations["body"].parameters[0]), (1,))
    )
    assert (read.place.instruction.name, read.place.path[0][1]) == ("u", 1)
    first = trace.origin(
        Leaf(
            Place(((*result.place.path[0][:1], 0),), module.computations["body"].parameters[0]),
            (1,),
        )
    )
    assert first.place.instruction.name == "x"


def test_a_trace_keeps_no_more_than_it_may() -> None:
    """Large arrays are kept in part; the same part of all of a size."""
    module = hloopt.parse(
        "HloModule m\nENTRY e { x = f32[9999] parameter(0)\n  n = f32[9999] negate(x)\n  ROOT r = f32[9999] tanh(n) }\n"
    )
    inputs = made(module, Trial())
    (whole,) = observe(module, inputs)
    (part,) = observe(module, inputs, TraceScope(most=0))
    (leaf,) = whole.results()
    assert whole.seen[leaf].is_whole
    assert not part.seen[leaf].is_whole
    assert whole.seen[leaf].part().tobytes() == part.seen[leaf].flat.tobytes()

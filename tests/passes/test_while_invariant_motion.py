"""while-invariant-motion: what leaves a loop, what it takes along, and what stays."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.loops.invariant_motion import WhileInvariantMotion
from hloopt.rewrite import PassLog
from tests.passes.loop_texts import COUNT, loop_text
from tests.passes.proof import check
from tests.properties.random_modules import module_text

PASS = WhileInvariantMotion()
STATE = [("i", "s32[]", "zero"), ("v", "f32[4]", "x"), ("w", "f32[4]", "y")]


def text(body: str, *, following: str = "i1 v1 w", condition: str = "", more: str = "") -> str:
    test = condition or "n = s32[] constant(3)\nROOT c = pred[] compare(i, n), direction=LT"
    return loop_text(
        STATE, body=f"{COUNT}\n{body}", following=following.split(), condition=test, more=more
    )


def inside(module: Module, name: str = "body") -> list[str]:
    return [one.opcode for one in module.computations[name]]


def outside(module: Module) -> list[str]:
    return [one.name for one in module.entry]


def missed(source: str, instance: WhileInvariantMotion = PASS) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


def test_work_on_what_is_handed_on_leaves_with_its_metadata() -> None:
    """A chain leaves as one value; the rest of the loop reads it under its name."""
    body = ('a = f32[4] exponential(w), metadata={op_name="exp"}\nb = f32[4] multiply(a, a)\n'
            "v1 = f32[4] add(v, b)")  # fmt: skip
    module, log = check(text(body), PASS)
    assert log.hits == {"move work out of a loop": 1}
    assert not {"exponential", "multiply"} & set(inside(module))
    assert "b" in outside(module)
    read = next(one for one in module.computations["body"] if one.name == "b")
    assert read.opcode == "get-tuple-element"
    (exponential,) = [one for one in module.entry if one.opcode == "exponential"]
    assert exponential.metadata is not None


def test_arranging_moves_only_with_work() -> None:
    """A reshape that work needs goes with it; a broadcast of the result stays behind it."""
    body = ("r = f32[2,2] reshape(w)\nt = f32[2,2] tanh(r)\nback = f32[4] reshape(t)\n"
            "flat = f32[4] reverse(w), dimensions={0}\n"
            "a = f32[4] add(v, back)\nv1 = f32[4] add(a, flat)")  # fmt: skip
    module, log = check(text(body), PASS)
    assert log.hits == {"move work out of a loop": 1}
    assert {"reshape", "reverse"} <= set(inside(module))
    assert [name for name in outside(module) if name in ("r", "t", "back")] == ["r", "t"]
    moved, _ = check(text(body), WhileInvariantMotion(reshapes=True))
    assert not {"reshape", "reverse"} & set(inside(moved))


def test_fusions_move_as_what_is_in_them_would() -> None:
    """A fusion that only arranges values stays as a reverse does; one that computes leaves."""
    more = ("turned {\np = f32[4] parameter(0)\nROOT r = f32[4] reverse(p), dimensions={0}\n}\n"
            "bent {\np = f32[4] parameter(0)\nr = f32[4] reverse(p), dimensions={0}\n"
            "ROOT t = f32[4] tanh(r)\n}\n")  # fmt: skip
    body = "f = f32[4] fusion(w), kind=kLoop, calls={}\nv1 = f32[4] add(v, f)"
    kept, log = check(text(body.replace("{}", "turned"), more=more), PASS, changes=False)
    assert not log.hits
    assert "fusion" in inside(kept)
    moved, log = check(text(body.replace("{}", "bent"), more=more), PASS)
    assert log.hits == {"move work out of a loop": 1}
    assert "fusion" not in inside(moved)
    by_option, _ = check(
        text(body.replace("{}", "turned"), more=more), WhileInvariantMotion(reshapes=True)
    )
    assert "fusion" not in inside(by_option)


def test_constants_move_with_work_or_by_option() -> None:
    """Work on constants alone leaves, too; a constant by itself only where that is asked for."""
    body = "k2 = f32[4] constant({1, 2, 3, 4})\nwave = f32[4] sine(k2)\nv1 = f32[4] add(v, wave)"
    module, _ = check(text(body), PASS)
    assert "sine" not in inside(module)
    only = "k2 = f32[4] constant({1, 2, 3, 4})\nv1 = f32[4] add(v, k2)"
    check(text(only), PASS, changes=False)
    module, _ = check(text(only), WhileInvariantMotion(constants=True))
    assert inside(module).count("constant") == 0


def test_the_condition_gives_up_its_work_too() -> None:
    """What it compares with is computed once."""
    condition = ("f = f32[] constant(3)\nfb = f32[4] broadcast(f), dimensions={}\n"
                 "m = f32[4] maximum(w, fb)\nl = f32[1] slice(m), slice={[0:1]}\n"
                 "r = f32[] reshape(l)\nu = s32[] convert(r)\nten = s32[] constant(10)\n"
                 "d = s32[] minimum(u, ten)\nROOT c = pred[] compare(i, d), direction=LT")  # fmt: skip
    module, log = check(text("v1 = f32[4] add(v, w)", condition=condition), PASS, given=[], draws=6)
    assert set(inside(module, "cond")) == {"parameter", "get-tuple-element", "compare"}
    assert log.hits == {"move work out of a loop": 1}


INNER = """inner.cond { s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] constant(3)
ROOT c = pred[] compare(i, n), direction=LT }
inner { s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
k = s32[] constant(1)
j = s32[] add(i, k)
a = f32[4] get-tuple-element(s), index=1
b = f32[4] get-tuple-element(s), index=2
c = f32[4] get-tuple-element(s), index=3
far = f32[4] tanh(b)
near = f32[4] tanh(c)
d = f32[4] add(far, near)
e = f32[4] add(a, d)
ROOT r = (s32[], f32[4], f32[4], f32[4]) tuple(j, e, b, c) }"""
NEST = """z = s32[] constant(0)
it = (s32[], f32[4], f32[4], f32[4]) tuple(z, v, w, v)
iw = (s32[], f32[4], f32[4], f32[4]) while(it), condition=inner.cond, body=inner
v1 = f32[4] get-tuple-element(iw), index=1"""


def test_work_leaves_all_loops_it_does_not_depend_on() -> None:
    """What depends on the outer loop's state leaves the inner loop only."""
    module, _ = check(text(NEST, more=INNER), PASS)
    assert "tanh" not in inside(module, "inner")
    assert inside(module).count("tanh") == 1
    assert sum(one.opcode == "tanh" for one in module.entry) == 1


def test_a_whole_loop_leaves_only_what_surely_runs() -> None:
    """A loop on what is handed on leaves a loop of known count, not one that may not run at all."""
    nest = NEST.replace("tuple(z, v, w, v)", "tuple(z, w, w, w)")
    nest = nest.replace("v1 = f32[4] get-tuple-element(iw), index=1",
                        "g = f32[4] get-tuple-element(iw), index=1\nv1 = f32[4] add(v, g)")  # fmt: skip
    module, _ = check(text(nest, more=INNER), PASS)
    assert "while" not in inside(module)
    unknown = "q = f32[1] slice(v), slice={[0:1]}\nr = f32[] reshape(q)\nu = s32[] convert(r)\n"
    unknown += "ten = s32[] constant(2)\nd = s32[] minimum(u, ten)\nROOT c = pred[] compare(i, d), direction=LT"
    stays, _ = check(text(nest, more=INNER, condition=unknown), PASS)
    assert "while" in inside(stays)


def test_several_results_leave_with_what_makes_them() -> None:
    """A sort of two arrays goes as a whole; each result that is read is carried."""
    more = """less { a = f32[] parameter(0) b = f32[] parameter(1)
c = f32[] parameter(2) d = f32[] parameter(3)
ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }"""
    body = ("so = (f32[4], f32[4]) sort(w, w), dimensions={0}, to_apply=less\n"
            "a = f32[4] get-tuple-element(so), index=0\nb = f32[4] get-tuple-element(so), index=1\n"
            "ab = f32[4] subtract(v, a)\nv1 = f32[4] add(ab, b)")  # fmt: skip
    module, log = check(text(body, more=more), PASS)
    assert log.hits == {"move work out of a loop": 2}
    assert "sort" not in inside(module)


@pytest.mark.parametrize(
    ("body", "following"),
    [
        ("a = f32[4] exponential(w)\nv1 = f32[4] add(v, a)", "i1 v1 v"),
        ("a = f32[4] exponential(w), control-predecessors={i1}\nv1 = f32[4] add(v, a)", "i1 v1 w"),
        ("b = f32[4] opt-barrier(w)\na = f32[4] negate(b)\nv1 = f32[4] add(v, a)", "i1 v1 w"),
        ("a = f32[4] negate(w), sharding={replicated}\nv1 = f32[4] add(v, a)", "i1 v1 w"),
        ("b = f32[4] reverse(w), dimensions={0}\nv1 = f32[4] add(v, b)", "i1 v1 w"),
    ],
)
def test_what_stays(body: str, following: str) -> None:
    """Not handed on, control edges, barriers, shardings, and what only arranges values."""
    check(text(body, following=following), PASS, changes=False)


def test_random_numbers_and_effects_stay() -> None:
    """Each iteration draws anew, and tells the outside world anew."""
    rng = "lo = f32[] constant(0)\nhi = f32[] constant(1)\nr = f32[4] rng(lo, hi), distribution=rng_uniform\n"
    tell = "tk = token[] after-all()\no = token[] outfeed(w, tk), outfeed_shape=f32[4]\n"
    for body in (f"{rng}v1 = f32[4] add(v, r)", f"{tell}v1 = f32[4] add(v, v)"):
        assert not PASS.run(hloopt.parse(text(body)), PassLog())


def test_the_ratio_of_sizes_is_a_limit_with_a_reason() -> None:
    """A product of two vectors has more elements than both."""
    body = ("o = f32[4,4] dot(w, w), lhs_contracting_dims={}, rhs_contracting_dims={}\n"
            "q = f32[4] slice(w), slice={[0:4]}\n"
            "d = f32[4] dot(v, o), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
            "v1 = f32[4] copy(d)")  # fmt: skip
    source = text(body.replace("q = f32[4] slice(w), slice={[0:4]}\n", ""))
    module, _ = check(source, PASS)
    assert inside(module).count("dot") == 1
    reasons = missed(source, WhileInvariantMotion(size_ratio=1.5))
    assert reasons == ["64 bytes out of 32, more than size_ratio=1.5 times"]
    check(source, WhileInvariantMotion(size_ratio=2))
    with pytest.raises(UsageError, match="size_ratio is a number of bytes a byte, or 0"):
        WhileInvariantMotion(size_ratio=-1)


def test_what_has_no_elements_stays() -> None:
    """Whoever writes it anew in the loop, as ``zero-sized`` does, would else be given more of it each time."""
    source = """HloModule m
condition { s = (s32[], f32[0,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT r = pred[] compare(i, ten), direction=LT }
body { s = (s32[], f32[0,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[0,3] get-tuple-element(s), index=1
  y = f32[0,3] negate(x)
  ROOT r = (s32[], f32[0,3]) tuple(next, x) }
ENTRY e { x = f32[0,3] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[0,3]) tuple(zero, x)
  ROOT w = (s32[], f32[0,3]) while(s), condition=condition, body=body }
"""
    module = hloopt.parse(source)
    report = hloopt.parse_pipeline("fix(while-invariant-motion{reshapes=true},zero-sized)").run(
        module
    )
    assert [(group.rounds, group.converged) for group in report.groups] == [(2, True)]
    assert sum(1 for _ in module.instructions()) < 25


@pytest.mark.parametrize("seed", range(200, 212))
def test_random_modules_keep_their_results(seed: int) -> None:
    """With all that can be moved moved, for then more moves."""
    source = module_text(random.Random(seed))
    instance = WhileInvariantMotion(constants=True, reshapes=True)
    check(source, instance, changes=instance.run(hloopt.parse(source), PassLog()), draws=2)

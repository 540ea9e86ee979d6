"""Merging by the bytes that kernels move, as XLA did up to 2022: the criterion and its conditions."""

from __future__ import annotations

import hloopt
from hloopt.fusion.decision import Decision
from hloopt.fusion.fusion_merger import FusionMerger
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.merger_bytes import bytes_read

HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
shift { s = f32[192] parameter(0) ROOT t = f32[192] add(s, s) }
clip { s = f32[192] parameter(0) ROOT u = f32[192] minimum(s, s) }
"""
MIX = """mix {{ x = f32[192] parameter(0) y = f32[192] parameter(1) z = f32[192] parameter(2)
  w = f32[{width}] parameter(3) c = f32[] constant(0)
  v = f32[192] pad(w, c), padding=0_{padding} s = f32[192] add(x, y) t = f32[192] add(s, z)
  ROOT m = f32[192] {last} }}"""
TWO = """x = f32[192] parameter(0)
y = f32[192] parameter(1)
z = f32[192] parameter(2)
w = f32[{width}] parameter(3)
p = f32[192] fusion(x, y, z, w), kind=kLoop, calls=mix
a = f32[192] fusion(p), kind=kLoop, calls=shift
b = {user}
ROOT r = (f32[192], f32[192]) tuple(a, b)"""


OLDEST = FusionMerger(criterion="bytes-2019")


def _plan(entry: str, bodies: str, options: FusionMerger = OLDEST) -> FusionPlan:
    module = hloopt.parse(f"{HEAD}{bodies}\nENTRY e {{\n{entry}\n}}\n")
    plan = options.fuse(module)
    hloopt.verify(module)
    return plan


def _two(
    width: int,
    last: str = "subtract(t, v)",
    user: str = "f32[192] fusion(p), kind=kLoop, calls=clip",
    options: FusionMerger = OLDEST,
) -> Decision | None:
    """Why ``p`` was not merged into both of its users; None where it was."""
    bodies = MIX.format(width=width, padding=192 - width, last=last)
    plan = _plan(TWO.format(width=width, user=user), bodies, options)
    if "p" in {step.producer for step in plan.steps}:
        return None
    codes = [found.decision for found in plan.refusals if found.producer == "p"]
    return next(decision for decision in codes if decision.code != "not-into-all")


def test_ten_percent_more_bytes_are_worth_a_launch() -> None:
    """Reads of 704 numbers twice, against 704 once and three times the 192 written: 110 %, and no more."""
    assert 2 * 704 * 100 == 110 * (704 + 3 * 192)
    assert _two(128) is None
    refused = _two(129)
    assert refused is not None
    assert str(refused) == (
        "more-bytes: the kernels would move 111 % of the bytes they move now, more than 110 %"
    )
    assert _two(129, options=FusionMerger(criterion="bytes-2019", max_bytes=111)) is None


def test_no_model_is_asked() -> None:
    """The plan names none, and no times are told."""
    plan = _plan(
        TWO.format(width=8, user="f32[192] fusion(p), kind=kLoop, calls=clip"),
        MIX.format(width=8, padding=184, last="subtract(t, v)"),
    )
    assert (plan.cost_model, plan.target) == ("", "")
    assert [step.comparison for step in plan.steps] == [None, None]


def test_nothing_expensive_is_computed_twice() -> None:
    """A power among the producer's ops keeps it where it is; by cost it is merged."""
    refused = _two(8, "power(t, v)")
    assert refused is not None
    assert (refused.code, refused.words) == ("holds-expensive", "power")
    bodies = MIX.format(width=8, padding=184, last="power(t, v)")
    entry = TWO.format(width=8, user="f32[192] fusion(p), kind=kLoop, calls=clip")
    module = hloopt.parse(f"{HEAD}{bodies}\nENTRY e {{\n{entry}\n}}\n")
    assert {step.producer for step in FusionMerger().fuse(module).steps} == {"p"}


def test_users_are_fusions_already() -> None:
    """Neither a plain op nor an input fusion that is no reduction."""
    refused = _two(8, user="f32[192] negate(p)")
    assert refused is not None
    assert refused.code == "consumer-no-fusion"
    refused = _two(8, user="f32[192] fusion(p), kind=kInput, calls=clip")
    assert refused is not None
    assert refused.code == "consumer-no-fusion"


ROWS = """mix {{ x = f32[64,64]{{{order}}} parameter(0) y = f32[1,64]{{1,0}} parameter(1)
  v = f32[64] reshape(y) w = f32[64,64]{{1,0}} broadcast(v), dimensions={{1}}
  c = f32[64,64]{{1,0}} copy(x) ROOT m = f32[64,64]{{1,0}} add(c, w) }}
rows {{ s = f32[64,64]{{1,0}} parameter(0) z = f32[] constant(0)
  ROOT r = f32[64] reduce(s, z), dimensions={{1}}, to_apply=sum }}"""
REDUCE = """x = f32[64,64]{{{order}}} parameter(0)
y = f32[1,64]{{1,0}} parameter(1)
p = f32[64,64]{{1,0}} fusion(x, y), kind=kLoop, calls=mix
ROOT r = f32[64] fusion(p), kind=kInput, calls=rows"""


def test_a_reduction_and_its_producer_read_alike() -> None:
    """The largest arrays of both lie in memory in one order; smaller ones do not count."""
    same, other = ({"order": order} for order in ("1,0", "0,1"))
    plan = _plan(REDUCE.format(**same), ROWS.format(**same))
    assert {step.producer for step in plan.steps} == {"p"}
    plan = _plan(REDUCE.format(**other), ROWS.format(**other))
    assert plan.reasons() == {"breaks-coalescing": 1, "producer-is-root": 1}


def test_slices_are_what_is_read() -> None:
    """Where nothing but slices reads an operand, or an element of it, only these count."""
    module = hloopt.parse("""HloModule m
f { x = f32[100] parameter(0) t = (f32[50], f32[40]) parameter(1) i = s32[] parameter(2)
  s = f32[10] slice(x), slice={[0:10]} d = f32[10] dynamic-slice(x, i), dynamic_slice_sizes={10}
  g = f32[50] get-tuple-element(t), index=0 h = f32[40] get-tuple-element(t), index=1
  u = f32[10] slice(g), slice={[5:15]} v = f32[10] slice(h), slice={[5:15]} w = f32[40] negate(h)
  o = f32[10] slice(w), slice={[0:10]}
  a = f32[10] add(s, d) b = f32[10] add(u, v) c = f32[10] add(a, o) ROOT e = f32[10] add(b, c) }
ENTRY e { x = f32[100] parameter(0) t = (f32[50], f32[40]) parameter(1) i = s32[] parameter(2)
  ROOT r = f32[10] fusion(x, t, i), kind=kLoop, calls=f }
""")
    assert bytes_read(module.entry.root) == 4 * (10 + 10) + 4 * (10 + 40) + 4


EARLY = FusionMerger(criterion="bytes")


def test_in_2022_users_may_be_plain_ops() -> None:
    """And what expensive ops cost is weighed."""
    assert _two(8, user="f32[192] negate(p)", options=EARLY) is None
    refused = _two(129, options=EARLY)
    assert refused is not None
    assert refused.code == "more-bytes"


COSTLY = """x = f32[{size}] parameter(0)
p = f32[{size}] fusion(x), kind=kLoop, calls=slow
a = f32[{size}] negate(p)
b = {user}
ROOT r = ({shape}, f32[{size}]) tuple(b, a)"""
SLOW = """slow {{ s = f32[{size}] parameter(0) k = f32[{part}] slice(s), slice={{[0:{part}]}}
  c = f32[] constant(1) t = f32[{part}] tanh(k) ROOT v = f32[{size}] pad(t, c), padding=0_{rest} }}"""


def _costly(size: int, part: int, user: str = "", options: FusionMerger = EARLY) -> str:
    shape = f"f32[{size}]"
    bodies = SLOW.format(size=size, part=part, rest=size - part)
    entry = COSTLY.format(size=size, user=user or f"{shape} abs(p)", shape=shape)
    if user:
        entry = entry.replace(f"({shape},", f"({user.split(maxsplit=1)[0]},")
    plan = _plan(entry, bodies, options)
    if "p" in {step.producer for step in plan.steps}:
        return ""
    codes = [found.decision.code for found in plan.refusals if found.producer == "p"]
    return next(code for code in codes if code != "not-into-all")


def test_in_2022_expensive_ops_are_computed_again_where_that_saves_much() -> None:
    """Below 30 % of the bytes, where these are more than a kilobyte, and no user reads elements twice."""
    # Reads the slice twice, against the slice once and three times what is written.
    assert 2 * 60 * 100 < 30 * (60 + 3 * 120)
    assert _costly(120, 60) == ""
    assert 2 * 64 * 100 > 30 * (64 + 3 * 120)
    assert _costly(120, 64) == "holds-expensive"
    assert _costly(120, 64, options=FusionMerger(criterion="bytes", much_less=31)) == ""
    assert 4 * (10 + 3 * 80) <= 1024 < 4 * (10 + 3 * 86)
    assert _costly(80, 10) == "holds-expensive"
    assert _costly(86, 10) == ""
    assert _costly(120, 60, "f32[120,4] broadcast(p), dimensions={0}") == "holds-expensive"


JOINED = """join { x = f32[96] parameter(0) y = f32[96] parameter(1)
  ROOT c = f32[192] concatenate(x, y), dimensions={0} }
halves { s = f32[192] parameter(0) u = f32[96] slice(s), slice={[0:96]}
  v = f32[96] slice(s), slice={[96:192]} ROOT o = f32[96] add(u, v) }
twice { x = f32[96] parameter(0) y = f32[96] parameter(1) c = f32[192] concatenate(x, y), dimensions={0}
  n = f32[192] negate(c) ROOT m = f32[192] multiply(c, n) }"""


def test_in_2022_code_is_not_written_too_often() -> None:
    """A concatenate that a user reads under two indices, or that has two users in the producer itself."""
    head = "x = f32[96] parameter(0)\ny = f32[96] parameter(1)\n"
    twice = (
        head
        + "p = f32[192] fusion(x, y), kind=kLoop, calls=join\nROOT r = f32[96] fusion(p), kind=kLoop, calls=halves"
    )
    plan = _plan(twice, JOINED, EARLY)
    assert plan.reasons()["not-emitted-twice"] == 1
    plan = _plan(twice, JOINED, FusionMerger(criterion="bytes", max_barrier_emissions=2))
    assert [step.producer for step in plan.steps] == ["p"]
    inside = (
        head
        + "p = f32[192] fusion(x, y), kind=kLoop, calls=twice\nROOT r = f32[192] fusion(p), kind=kLoop, calls=shift"
    )
    plan = _plan(inside, JOINED, EARLY)
    assert plan.reasons()["barrier-users"] == 1
    plan = _plan(inside, JOINED, FusionMerger(criterion="bytes", max_barrier_users=2))
    assert [step.producer for step in plan.steps] == ["p"]
    assert not _plan(twice, JOINED, FusionMerger()).reasons()["not-emitted-twice"]


def test_in_2022_duplication_is_counted_for_every_op() -> None:
    """Three slices write a producer's code three times; a limit below that keeps it."""
    bodies = """chain { x = f32[192] parameter(0) n = f32[192] negate(x) ROOT a = f32[192] abs(n) }
many { s = f32[192] parameter(0) a = f32[8] slice(s), slice={[0:8]} b = f32[8] slice(s), slice={[8:16]}
  c = f32[8] slice(s), slice={[16:24]} d = f32[8] add(a, b) ROOT e = f32[8] add(c, d) }"""
    entry = """x = f32[192] parameter(0)
p = f32[192] fusion(x), kind=kLoop, calls=chain
ROOT r = f32[8] fusion(p), kind=kLoop, calls=many"""
    assert [step.producer for step in _plan(entry, bodies, EARLY).steps] == ["p"]
    plan = _plan(entry, bodies, FusionMerger(criterion="bytes", max_duplication=2))
    (decision,) = (found.decision for found in plan.refusals if found.producer == "p")
    assert (decision.code, decision.limit, decision.actual) == ("code-duplication", 2, 3)

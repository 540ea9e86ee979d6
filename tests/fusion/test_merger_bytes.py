"""Merging by the bytes that kernels move, as XLA did up to 2021: the criterion and its conditions."""

from __future__ import annotations

import hloopt
from hloopt.fusion.decision import Decision
from hloopt.fusion.fusion_merger import FusionMerger
from hloopt.fusion.merger_bytes import bytes_read
from hloopt.fusion.plan import FusionPlan

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


def _plan(entry: str, bodies: str, **options: int) -> FusionPlan:
    module = hloopt.parse(f"{HEAD}{bodies}\nENTRY e {{\n{entry}\n}}\n")
    plan = FusionMerger(criterion="bytes", **options).fuse(module)
    hloopt.verify(module)
    return plan


def _two(
    width: int,
    last: str = "subtract(t, v)",
    user: str = "f32[192] fusion(p), kind=kLoop, calls=clip",
    **options: int,
) -> Decision | None:
    """Why ``p`` was not merged into both of its users; None where it was."""
    bodies = MIX.format(width=width, padding=192 - width, last=last)
    plan = _plan(TWO.format(width=width, user=user), bodies, **options)
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
    assert _two(129, max_bytes=111) is None


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

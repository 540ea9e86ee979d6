"""Values computed again: lower peaks, the same bits, and what is never computed twice."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.analysis.liveness import peak
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.rematerialize import Rematerialize
from hloopt.passes.schedule import Schedule
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.passes import proof
from tests.properties.random_modules import module_text


def bytes_of(module: Module) -> int:
    return peak(module.entry).byte_size


def again(text: str, limit: int = 0) -> tuple[Module, PassLog]:
    module, log = proof.check(text, Rematerialize(bytes=limit))
    assert bytes_of(module) < bytes_of(hloopt.parse(text))
    return module, log


def test_a_broadcast_is_made_again_for_its_last_reader() -> None:
    """In the example the array is not kept over the one in between; the note has both figures."""
    before = bytes_of(hloopt.parse(Rematerialize.example))
    module, log = again(Rematerialize.example)
    assert log.hits["compute again"] >= 1
    assert log.notes == [
        f"peak memory of the entry: {before} bytes before, {bytes_of(module)} after"
    ]
    assert before - bytes_of(module) >= 4096


def test_a_limit_that_is_kept_changes_nothing() -> None:
    """The peak of the module is low enough already."""
    before = bytes_of(hloopt.parse(Rematerialize.example))
    proof.check(Rematerialize.example, Rematerialize(bytes=before), changes=False)


def test_a_limit_below_what_can_be_had_is_named() -> None:
    """A note says what was reached, where, and what was asked for."""
    module, log = again(Rematerialize.example, 5000)
    assert len(log.notes) == 2
    reached = f"{bytes_of(module)} bytes are alive at "
    assert log.notes[1].startswith(reached)
    assert "more than the 5000 asked for" in log.notes[1]


def test_no_more_is_computed_again_than_the_limit_asks_for() -> None:
    """A limit just below the peak needs one value less."""
    text = Rematerialize.example
    before = bytes_of(hloopt.parse(text))
    module, log = again(text, before - 1)
    assert log.hits["compute again"] == 1
    assert bytes_of(module) <= before - 1


CHAIN = """HloModule m
add {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }}
ENTRY e {{
  p = f32[] parameter(0)
  zero = f32[] constant(0)
  {first}
  s = f32[] reduce(a, zero), dimensions={{0}}, to_apply=add
  b = f32[1024]{{0}} broadcast(s), dimensions={{}}
  c = f32[1024]{{0}} exponential(b)
  t = f32[] reduce(c, zero), dimensions={{0}}, to_apply=add
  ROOT r = f32[] reduce(a, t), dimensions={{0}}, to_apply=add
}}
"""


def test_a_chain_is_computed_again() -> None:
    """What the value is made of is gone, and made again as well."""
    text = CHAIN.format(
        first="""k = f32[1024]{0} broadcast(p), dimensions={}
  l = f32[1024]{0} negate(k)
  a = f32[1024]{0} cosine(l)"""
    )
    module, log = again(text, bytes_of(hloopt.parse(text)) - 4000)
    assert log.hits["compute again"] == 3
    assert [entry.opcode for entry in module.entry].count("cosine") == 2


@pytest.mark.parametrize(
    "first",
    [
        "h = f32[] constant(1) a = f32[1024]{0} rng(p, h), distribution=rng_uniform",
        'a = f32[1024]{0} custom-call(p), custom_call_target="x"',
        (
            "o = f32[1024]{0} broadcast(p), dimensions={} a = f32[1024]{0} all-reduce(o), "
            "replica_groups={{0}}, to_apply=add"
        ),
        (
            "o = f32[1024]{0} broadcast(p), dimensions={} a = f32[1024]{0} negate(o), "
            "control-predecessors={zero}"
        ),
    ],
)
def test_effects_random_numbers_and_collectives_are_not_repeated(first: str) -> None:
    """Nor is what control edges hold in its place."""
    module = hloopt.parse(CHAIN.format(first=first))
    wanted = [entry.opcode for entry in module.entry]
    Rematerialize().run(module, PassLog())
    for opcode in ("rng", "custom-call", "all-reduce", "negate"):
        assert [entry.opcode for entry in module.entry].count(opcode) == wanted.count(opcode)


def test_a_loop_gets_what_its_caller_leaves() -> None:
    """The body of a loop keeps less."""
    text = """HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
cond { s = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }
body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[] get-tuple-element(s), index=1
  zero = f32[] constant(0)
  a = f32[1024]{0} broadcast(p), dimensions={}
  v = f32[] reduce(a, zero), dimensions={0}, to_apply=add
  b = f32[1024]{0} broadcast(v), dimensions={}
  c = f32[1024]{0} exponential(b)
  t = f32[] reduce(c, zero), dimensions={0}, to_apply=add
  y = f32[] reduce(a, t), dimensions={0}, to_apply=add
  ROOT r = (s32[], f32[]) tuple(j, y)
}
ENTRY e {
  x = f32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body
  ROOT g = f32[] get-tuple-element(w), index=1
}
"""
    module, _ = again(text)
    (body,) = (entry for entry in module if entry.name == "body")
    assert bytes_of(module) < bytes_of(hloopt.parse(text)) - 4000
    assert len(body) > len(hloopt.parse(text).computations["body"])


def test_a_fusion_that_is_repeated_has_a_body_of_its_own() -> None:
    """XLA wants one caller for each body."""
    text = CHAIN.format(first="a = f32[1024]{0} fusion(p), kind=kLoop, calls=spread").replace(
        "ENTRY",
        "spread { q = f32[] parameter(0) ROOT o = f32[1024]{0} broadcast(q), dimensions={} }\nENTRY",
    )
    module, _ = again(text)
    fusions = [entry for entry in module.entry if entry.opcode == "fusion"]
    assert len(fusions) >= 2
    assert len({entry.attributes["calls"] for entry in fusions}) == len(fusions)


@pytest.mark.parametrize("seed", one_in(3, range(24)))
def test_random_modules_keep_their_bits(seed: int) -> None:
    """As little memory as can be had, in an order made for that."""
    text = module_text(random.Random(seed))
    module = hloopt.parse(text)
    Schedule().run(module, PassLog())
    scheduled = module.to_text()
    changes = Rematerialize().run(module, PassLog())
    better, _ = proof.check(scheduled, Rematerialize(), draws=2, changes=changes)
    assert bytes_of(better) <= bytes_of(hloopt.parse(scheduled))


def test_negative_limits_are_refused() -> None:
    """The option counts bytes."""
    with pytest.raises(UsageError, match="rematerialize: bytes=-1 is negative"):
        Rematerialize(bytes=-1)


@pytest.mark.parametrize("header", ["HloModule m", "HloModule m, is_scheduled=true"])
def test_a_fusion_that_only_moves_keeps_its_body(header: str) -> None:
    """No body is left that nobody calls."""
    text = f"""{header}
body {{ p = s32[] parameter(0)
  ROOT r = s32[] add(p, p) }}
ENTRY e {{
  x = u8[6]{{0}} parameter(0)
  y = s32[6]{{0}} convert(x)
  n = s32[] constant(7)
  f = s32[] fusion(n), kind=kLoop, calls=body
  c = s32[] constant(14)
  nn = s32[6]{{0}} broadcast(f), dimensions={{}}
  cc = s32[6]{{0}} broadcast(c), dimensions={{}}
  s = s32[6]{{0}} add(y, cc)
  ROOT r = s32[6]{{0}} remainder(s, nn)
}}
"""
    module, log = proof.check(text, Rematerialize(), changes="is_scheduled" in header)
    assert log.hits
    assert set(module.computations) == {"body", "e"}


@pytest.mark.parametrize("header", ["HloModule m", "HloModule m, is_scheduled=true"])
def test_what_only_moves_is_a_change_of_the_order_alone(header: str) -> None:
    """A constant that is first needed late says nothing where the text is no order."""
    body = (
        "x = u8[6]{0} parameter(0)\n y = s32[6]{0} convert(x)\n n = s32[] constant(7)\n"
        "c = s32[] constant(14)\n nn = s32[6]{0} broadcast(n), dimensions={}\n"
        "cc = s32[6]{0} broadcast(c), dimensions={}\n s = s32[6]{0} add(y, cc)\n"
        "ROOT r = s32[6]{0} remainder(s, nn)"
    )
    text = f"{header}\nENTRY e {{\n{body}\n}}\n"
    _, log = proof.check(text, Rematerialize(), changes="is_scheduled" in header)
    assert log.hits


def test_fuel_bounds_what_is_repeated() -> None:
    """With fuel for nothing, nothing is."""
    module = hloopt.parse(Rematerialize.example)
    assert not Rematerialize().run(module, PassLog(fuel=0))


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the module takes no more than six times the calls."""

    def row(count: int) -> Module:
        lines = ["p = f32[] parameter(0)", "zero = f32[] constant(0)"]
        for at in range(count):
            lines.append(f"a{at} = f32[64]{{0}} broadcast(p), dimensions={{}}")
            lines.append(f"v{at} = f32[] reduce(a{at}, zero), dimensions={{0}}, to_apply=add")
        lines.append("t0 = f32[64]{0} negate(a0)")
        lines += [f"t{at} = f32[64]{{0}} add(t{at - 1}, a{at})" for at in range(1, count)]
        head = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }\n"
        return hloopt.parse(f"HloModule m\n{head}ENTRY e {{\n" + "\n".join(lines) + "\n}\n")

    calls = []
    for count in (100, 400):
        module = row(count)
        calls.append(count_calls(lambda module=module: Rematerialize().run(module, PassLog())))
        assert bytes_of(module) < 64 * 4 * count // 4
    assert calls[1] < 6 * calls[0]

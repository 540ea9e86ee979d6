"""Constants across calls and loops, and the limits of folding."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.constant_folding import ConstantFolding
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

CALLS = """HloModule m
f { x = s32[2] parameter(0)
  k = s32[2] parameter(1)
  ROOT r = s32[2] add(x, k) }
ENTRY e { x = s32[2] parameter(0)
  one = s32[2] constant({1, 2})
  two = s32[2] constant(OTHER)
  a = s32[2] call(x, one), to_apply=f
  ROOT b = s32[2] call(a, two), to_apply=f }
"""

LOOP = """HloModule m
body { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  p = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  q = s32[] multiply(p, p)
  ROOT r = (s32[], s32[]) tuple(n, q) }
test { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT go = pred[] compare(i, k), direction=LT }
ENTRY e { x = s32[] parameter(0)
  zero = s32[] constant(0)
  three = s32[] constant(3)
  s = (s32[], s32[]) tuple(zero, START)
  ROOT w = (s32[], s32[]) while(s), condition=test, body=body }
"""


def opcodes(found: Module, name: str = "e") -> list[str]:
    return [instruction.opcode for instruction in found.computations[name]]


def test_a_constant_that_every_call_gives_is_used_inside() -> None:
    """Equal by value, not by instruction; where one differs the parameter stays in use."""
    found, _ = proof.check(CALLS.replace("OTHER", "{1, 2}"), ConstantFolding())
    assert opcodes(found, "f").count("constant") == 1
    proof.check(CALLS.replace("OTHER", "{1, 3}"), ConstantFolding(), changes=False)


def test_large_constants_stay_outside() -> None:
    """What has more elements than the limit is not copied into computations."""
    proof.check(CALLS.replace("OTHER", "{1, 2}"), ConstantFolding(limit=1), changes=False)


def test_loops_are_evaluated_on_demand() -> None:
    """Up to the number of trips asked for, with known state; none by default."""
    text = LOOP.replace("START", "three")
    found, _ = proof.check(text, ConstantFolding(trips=3))
    assert "while" not in opcodes(found)
    for few in (ConstantFolding(), ConstantFolding(trips=2)):
        proof.check(text, few, changes=False)
    proof.check(LOOP.replace("START", "x"), ConstantFolding(trips=3), changes=False)


def test_calls_that_draw_random_numbers_stay() -> None:
    """A call is evaluated as a whole only where everything in it may be."""
    text = """HloModule m
f { k = u64[2] parameter(0)
  ROOT r = (u64[2], u32[4]) rng-bit-generator(k), algorithm=rng_three_fry }
ENTRY e { k = u64[2] constant({1, 2})
  ROOT c = (u64[2], u32[4]) call(k), to_apply=f }
"""
    found, _ = proof.check(text, ConstantFolding(), changes=None)
    assert "call" in opcodes(found)


def test_branches_take_constants_in() -> None:
    """An element of a branch's argument that is a constant."""
    text = """HloModule m
yes { t = (f32[2], f32[]) parameter(0)
  a = f32[2] get-tuple-element(t), index=0
  k = f32[] get-tuple-element(t), index=1
  b = f32[2] broadcast(k), dimensions={}
  ROOT r = f32[2] multiply(a, b) }
no { t = (f32[2], f32[]) parameter(0)
  ROOT a = f32[2] get-tuple-element(t), index=0 }
ENTRY e { p = pred[] parameter(0)
  x = f32[2] parameter(1)
  k = f32[] constant(3)
  t = (f32[2], f32[]) tuple(x, k)
  ROOT c = f32[2] conditional(p, t, t), true_computation=yes, false_computation=no }
"""
    found, _ = proof.check(text, ConstantFolding())
    assert "constant" in opcodes(found, "yes")


CHAIN = """HloModule m
ENTRY e { a = s32[100] constant({NUMBERS})
  b = s32[100] negate(a)
  c = s32[100] multiply(b, b)
  ROOT d = s32[100] subtract(c, b) }
""".replace("NUMBERS", ", ".join(map(str, range(100))))


@pytest.mark.parametrize(("work", "folds"), [(99, 0), (100, 1), (299, 2), (300, 3)])
def test_time_is_counted_in_work(work: int, folds: int) -> None:
    """The same module is folded as far on every machine, and what was left is told."""
    module = hloopt.parse(CHAIN)
    log = PassLog(kinds=frozenset({"missed"}))
    ConstantFolding(seconds=work / 50_000_000).run(module, log)
    assert sum(log.hits.values()) == folds
    assert [remark.reason for remark in log.remarks] == (
        [f"100 operations; seconds={work / 50_000_000:g}"] if folds < 3 else []
    )


@pytest.mark.parametrize("options", [{"seconds": 0}, {"trips": -1}])
def test_limits_that_make_no_sense(options: dict[str, int]) -> None:
    """Seconds are positive, trips count."""
    with pytest.raises(UsageError, match="seconds must be positive, and trips non-negative"):
        ConstantFolding(**options)


@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Folding in calls, loops and branches."""
    text = module_text(random.Random(seed))
    proof.check(text, ConstantFolding(trips=4), draws=1, changes=None)


@pytest.mark.parametrize("mark", ["sharding={replicated}", 'frontend_attributes={a="b"}'])
def test_what_is_said_of_a_value_is_said_of_the_constant(mark: str) -> None:
    """Shardings and frontend_attributes stay."""
    body = f"c = s32[3] constant({{1, 2, 4}})\n ROOT r = s32[3] negate(c), {mark}"
    better, _ = proof.check(f"HloModule m\nENTRY e {{\n{body}\n}}\n", ConstantFolding())
    assert better.entry.root.opcode == "constant"
    assert better.entry.root.attributes.keys() & {"sharding", "frontend_attributes"}

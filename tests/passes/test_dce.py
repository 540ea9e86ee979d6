"""Dead code across calls: results stay, signatures shrink where all callers agree."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.passes.dce import DeadCodeElimination
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

CHAIN = """HloModule chain
inner { a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  ROOT r = f32[4] negate(a) }
outer { a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  c = f32[4] call(a, b), to_apply=inner
  d = f32[4] exponential(b)
  ROOT t = (f32[4], f32[4]) tuple(c, d) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] sine(x)
  o = (f32[4], f32[4]) call(x, y), to_apply=outer
  ROOT r = f32[4] get-tuple-element(o), index=INDEX }
"""


def test_needs_are_followed_through_calls() -> None:
    """A parameter read only by an unused result, and by a call that does not need it, goes everywhere."""
    module, _ = proof.check(CHAIN.replace("INDEX", "0"), DeadCodeElimination())
    assert [len(module.computations[name].parameters) for name in ("inner", "outer")] == [1, 1]
    assert "sine" not in {instruction.opcode for instruction in module.entry}


def test_what_one_caller_takes_stays() -> None:
    """The other result needs the second parameter, and the inner call, which loses its own, goes."""
    module, _ = proof.check(CHAIN.replace("INDEX", "1"), DeadCodeElimination())
    assert "inner" not in module.computations
    assert len(module.computations["outer"].parameters) == 1


def test_signatures_can_be_kept() -> None:
    """Without the option nothing but dead instructions and computations goes."""
    proof.check(CHAIN.replace("INDEX", "0"), DeadCodeElimination(signatures=False), changes=False)


KEEPING = """HloModule m
f { a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  n = f32[4] negate(a)
  m = f32[4] cosine(b)
  ROOT t = (f32[4], f32[4]) tuple(n, m) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] sine(x)
  c = (f32[4], f32[4]) CALL
  ROOT r = f32[4] get-tuple-element(c), index=0 }
"""


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        ("call(x, y), to_apply=f", True),
        ("fusion(x, y), kind=kLoop, calls=f", True),
        ("fusion(x, y), kind=kCustom, calls=f", False),
        ("call(x, y), to_apply=f, output_to_operand_aliasing={{1}: (1, {})}", False),
        ("call(x, y), to_apply=f, sharding={{replicated}, {replicated}}", False),
    ],
)
def test_calls_that_speak_of_operands_or_results_keep_them(call: str, changes: bool) -> None:
    """Custom fusions, calls that share buffers, and calls whose results have shardings stay whole."""
    proof.check(KEEPING.replace("CALL", call), DeadCodeElimination(), changes=changes)


def test_maps_keep_one_operand() -> None:
    """A map says how large its result is by its operands: one stays although nobody reads it."""
    text = """HloModule m
f { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] constant(3) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] sine(x)
  ROOT r = f32[4] map(x, y), dimensions={0}, to_apply=f }
"""
    module, _ = proof.check(text, DeadCodeElimination())
    assert len(module.entry.root.operands) == 1


def test_a_branch_without_needs_is_given_an_empty_tuple() -> None:
    """A branch that reads nothing takes (), the other one what it reads."""
    text = """HloModule m
yes { t = (f32[4], f32[4]) parameter(0)
  ROOT c = f32[4] constant({1, 2, 3, 4}) }
no { t = (f32[4], f32[4]) parameter(0)
  ROOT b = f32[4] get-tuple-element(t), index=1 }
ENTRY e { p = pred[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] parameter(2)
  t = (f32[4], f32[4]) tuple(x, y)
  ROOT c = f32[4] conditional(p, t, t), true_computation=yes, false_computation=no }
"""
    module, _ = proof.check(text, DeadCodeElimination())
    assert [str(module.computations[name].parameters[0].shape) for name in ("yes", "no")] == [
        "()",
        "(f32[4])",
    ]


def test_barriers_hand_on_what_is_taken() -> None:
    """An element that nobody takes behind an optimization barrier is not computed; the barrier stays."""
    text = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] sine(x)
  z = f32[4] cosine(x)
  t = (f32[4], f32[4]) tuple(y, z)
  b = (f32[4], f32[4]) opt-barrier(t)
  ROOT r = f32[4] get-tuple-element(b), index=1 }
"""
    module, _ = proof.check(text, DeadCodeElimination())
    assert [one.opcode for one in module.entry] == [
        "parameter", "cosine", "tuple", "opt-barrier", "get-tuple-element"
    ]  # fmt: skip


def test_side_effects_keep_a_call_whose_results_nobody_takes() -> None:
    """What a computation does beside its result is done, with what that needs."""
    text = """HloModule m
f { a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  n = f32[4] negate(a)
  t = token[] after-all()
  o = token[] outfeed(b, t), outfeed_shape=f32[4]
  ROOT r = (f32[4], f32[4]) tuple(n, b) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] sine(x)
  c = (f32[4], f32[4]) call(y, x), to_apply=f
  ROOT r = f32[4] negate(x) }
"""
    module = hloopt.parse(text)
    assert DeadCodeElimination().run(module, PassLog())
    hloopt.verify(module)
    assert {"outfeed"} <= {instruction.opcode for instruction in module.instructions()}
    assert "sine" not in {instruction.opcode for instruction in module.instructions()}


@pytest.mark.parametrize("fuel", range(8))
@pytest.mark.parametrize("call", ["call(x, y), to_apply=f", "fusion(x, y), kind=kLoop, calls=f"])
def test_fuel_leaves_a_valid_module(fuel: int, call: str) -> None:
    """Stopped after any number of rewrites, the module is valid and computes the same."""
    text = KEEPING.replace("CALL", call)
    given, module = hloopt.parse(text), hloopt.parse(text)
    assert DeadCodeElimination().run(module, PassLog(fuel=fuel)) is (fuel > 0)
    hloopt.verify(module)
    arrays = proof.inputs(given, 0)
    (one,), (other,) = hloopt.evaluate(given, arrays), hloopt.evaluate(module, arrays)
    assert proof.identical(one, other)


@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Whatever is removed, results stay."""
    text = module_text(random.Random(seed))
    proof.check(text, DeadCodeElimination(), draws=1, changes=None)

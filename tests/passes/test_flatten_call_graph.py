"""Each call its own computation."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.passes.flatten_call_graph import FlattenCallGraph
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

NESTED = """HloModule m
inner { a = f32[4] parameter(0)
  ROOT r = f32[4] negate(a) }
outer { a = f32[4] parameter(0)
  b = f32[4] call(a), to_apply=inner
  ROOT r = f32[4] call(b), to_apply=inner }
ENTRY e { x = f32[4] parameter(0)
  p = pred[] parameter(1)
  y = f32[4] call(x), to_apply=outer
  i = s32[] convert(p)
  ROOT z = f32[4] conditional(i, y, y, y), branch_computations={outer, inner, inner} }
"""


def test_every_call_gets_its_own() -> None:
    """Two of outer, and one of inner for each of the six places that call it then."""
    module, log = proof.check(NESTED, FlattenCallGraph())
    assert all(sum(entry.callers.values()) <= 1 for entry in module)
    assert sorted(module.computations) == ["e", *["inner", *(f"inner.{k}" for k in range(1, 6))],
                                           "outer", "outer.1"]  # fmt: skip
    assert log.hits["give a call its own computation"] == 6


def test_the_module_stays_below_the_limit() -> None:
    """What would make it larger stays shared, and is told."""
    module = hloopt.parse(NESTED)
    log = PassLog(kinds=frozenset({"missed"}))
    assert FlattenCallGraph(largest=14).run(module, log)
    assert module.instruction_count() <= 14
    assert "the limit is 14" in log.remarks[0].reason


def test_regions_and_states_stay_shared() -> None:
    """What reduces apply, and what keeps the state of random numbers."""
    text = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
draw { a = f32[4] parameter(0)
  s = u64[2] rng-get-and-update-state(), delta=1
  ROOT r = f32[4] negate(a) }
ENTRY e { x = f32[4] parameter(0)
  zero = f32[] constant(0)
  one = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  two = f32[] call(one, zero), to_apply=sum
  y = f32[4] call(x), to_apply=draw
  z = f32[4] call(y), to_apply=draw
  ROOT r = (f32[], f32[4]) tuple(two, z) }
"""
    assert not FlattenCallGraph().run(hloopt.parse(text), PassLog())


def test_the_limit_counts() -> None:
    """No module has less than an instruction."""
    with pytest.raises(UsageError, match="largest must be at least 1, got"):
        FlattenCallGraph(largest=0)


@pytest.mark.parametrize("seed", one_in(3, range(25)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Calls, loops and branches."""
    proof.check(module_text(random.Random(seed)), FlattenCallGraph(), draws=1, changes=None)

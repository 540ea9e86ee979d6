"""Equal instructions and computations: regrouped integers, exchanged sides, shared regions."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

CSE = CommonSubexpressionElimination()


def chains(op: str, dtype: str) -> str:
    """All ways to combine three parameters, half of them grouped to the left."""
    lines = [f"p{k} = {dtype}[3] parameter({k})" for k in range(3)]
    names = []
    for number, (a, b, c) in enumerate(permutations(["p0", "p1", "p2"])):
        lines.append(f"m{number}x = {dtype}[3] {op}({a}, {b})")
        pair = (f"m{number}x", c) if number % 2 else (c, f"m{number}x")
        lines.append(f"n{number}x = {dtype}[3] {op}({', '.join(pair)})")
        names.append(f"n{number}x")
    shapes = ", ".join([f"{dtype}[3]"] * len(names))
    lines.append(f"ROOT r = ({shapes}) tuple({', '.join(names)})")
    body = "\n".join(lines)
    return f"HloModule m\nENTRY e {{\n{body}\n}}\n"


@pytest.mark.parametrize("dtype", ["s32", "u8", "pred"])
@pytest.mark.parametrize("op", ["add", "multiply", "and", "or", "xor", "minimum", "maximum"])
def test_integer_chains_of_the_same_terms_are_one(op: str, dtype: str) -> None:
    """Whatever the order and the grouping, overflow included."""
    module, _ = proof.check(chains(op, dtype), CSE, DeadCodeElimination(), draws=4)
    assert len(set(module.entry.root.operands)) == 1


@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_float_chains_keep_their_grouping(op: str) -> None:
    """Only the two operands of one op are exchanged: three groupings stay."""
    module, _ = proof.check(chains(op, "f32"), CSE, DeadCodeElimination(), draws=4)
    assert len(set(module.entry.root.operands)) == 3


def test_long_chains_are_compared_op_by_op() -> None:
    """A thousand terms cost no more each than ten: chains are remembered up to eight terms."""
    lines = ["p = s32[3] parameter(0)", "a0 = s32[3] negate(p)"]
    lines += [f"a{k}x = s32[3] add(a{k - 1}{'x' if k > 1 else ''}, p)" for k in range(1, 1000)]
    body = "\n".join(lines[:-1]) + "\nROOT " + lines[-1]
    proof.check(f"HloModule m\nENTRY e {{\n{body}\n}}\n", CSE, draws=1, changes=False)


@pytest.mark.parametrize("name", ["call", "map"])
def test_calls_share_equal_computations(name: str) -> None:
    """Callees of the same structure are one, and then the calls may be."""
    dims = ", dimensions={0}" if name == "map" else ""
    shape = "s32[]" if name == "map" else "s32[3]"
    text = f"""HloModule m
f {{ a = {shape} parameter(0)
  b = {shape} parameter(1)
  ROOT r = {shape} subtract(a, b) }}
g {{ x = {shape} parameter(0)
  y = {shape} parameter(1)
  ROOT z = {shape} subtract(x, y) }}
h {{ x = {shape} parameter(0)
  y = {shape} parameter(1)
  ROOT z = {shape} subtract(y, x) }}
ENTRY e {{ x = s32[3] parameter(0)
  y = s32[3] parameter(1)
  one = s32[3] {name}(x, y){dims}, to_apply=f
  two = s32[3] {name}(y, x){dims}, to_apply=g
  three = s32[3] {name}(x, x){dims}, to_apply=h
  ROOT r = (s32[3], s32[3], s32[3]) tuple(one, two, three) }}
"""
    module, _ = proof.check(text, CommonSubexpressionElimination(computations=True))
    assert sorted(module.computations) == ["e", "f", "h"]
    proof.check(text, CSE, changes=False)


def test_loops_and_branches_keep_their_own_computations() -> None:
    """Passes change bodies in place, which must then belong to one loop."""
    text = """HloModule m
one { a = s32[3] parameter(0)
  ROOT r = s32[3] negate(a) }
two { a = s32[3] parameter(0)
  ROOT r = s32[3] negate(a) }
ENTRY e { p = pred[] parameter(0)
  x = s32[3] parameter(1)
  y = s32[3] parameter(2)
  ROOT c = s32[3] conditional(p, x, y), true_computation=one, false_computation=two }
"""
    proof.check(text, CommonSubexpressionElimination(computations=True), changes=False)


@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Merging in calls, loops and branches, with computations shared."""
    text = module_text(random.Random(seed))
    proof.check(text, CommonSubexpressionElimination(computations=True), draws=1, changes=None)

"""Products in loops: what is the same in each iteration counts once, so that it can leave the loop."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.ir import Module
from hloopt.linear_algebra import LinearAlgebra
from hloopt.rewrite import PassLog
from tests.passes.proof import identical, inputs

PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def looped(
    rows: int, trips: int | None, depth: int = 96, element: str = "s32", carried: str = "a"
) -> str:
    """``x = (x a) b`` in each of so many iterations, or in as many as an input says."""
    matrix, left = f"{element}[{depth},{depth}]", f"{element}[{rows},{depth}]"
    state = f"(s32[], s32[], {left}, {matrix}, {matrix})"
    count = "parameter(3)" if trips is None else f"constant({trips})"
    return f"""HloModule m
less {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}}
next {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  x = {left} get-tuple-element(s), index=2
  a = {matrix} get-tuple-element(s), index=3
  b = {matrix} get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  xa = {left} dot(x, a), {PRODUCT}
  xab = {left} dot(xa, b), {PRODUCT}
  changed = {matrix} add(a, b)
  ROOT r = {state} tuple(j, n, xab, {carried}, b)
}}
ENTRY e {{
  x = {left} parameter(0)
  a = {matrix} parameter(1)
  b = {matrix} parameter(2)
  zero = s32[] constant(0)
  n = s32[] {count}
  t = {state} tuple(zero, n, x, a, b)
  w = {state} while(t), condition=less, body=next
  ROOT y = {left} get-tuple-element(w), index=2
}}
"""


def products(given: Module, where: str) -> int:
    """How many dots a computation has."""
    return sum(one.opcode == "dot" for one in given.computations[where])


def test_a_product_of_invariants_leaves_the_loop() -> None:
    given = hloopt.parse(looped(64, 100))
    found = hloopt.optimize(given, "linear-algebra,while-invariant-motion,dce")
    assert (products(found, "next"), products(found, "e")) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        looped(1, 10),  # 10 rows in all are fewer than the 96 of the product
        looped(64, None),  # how often is not known
        looped(64, 100, carried="changed"),  # one side is another one each time
        looped(64, 1),
    ],
    ids=["few rows", "unknown count", "carried", "once"],
)
def test_a_product_that_does_not_pay_stays(text: str) -> None:
    given = hloopt.parse(text)
    LinearAlgebra().run(given, PassLog())
    assert products(given, "next") == 2


@pytest.mark.parametrize("trips", [0, 2, 5])
def test_bits_are_kept(trips: int) -> None:
    given = hloopt.parse(looped(7, trips, depth=12))
    found = hloopt.optimize(given, "O2", target="host")
    for seed in range(4):
        values = inputs(given, seed)
        (wanted,), (got,) = hloopt.evaluate(given, values), hloopt.evaluate(found, values)
        assert identical(wanted, got)


def test_the_remark_counts_iterations() -> None:
    log = PassLog(kinds=frozenset({"passed"}))
    LinearAlgebra(reassociate=True).run(hloopt.parse(looped(64, 100, element="f32")), log)
    (remark,) = log.remarks
    assert "in 100 iterations" in remark.reason

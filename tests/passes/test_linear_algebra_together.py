"""Identities that meet: numbers, structure, split dimensions and sums that are read twice beside each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloopt
from hloopt.analysis.cost import module_cost
from hloopt.ir import Module
from hloopt.linear_algebra import LinearAlgebra
from hloopt.rewrite import PassLog
from tests.passes.proof import identical, inputs
from tests.passes.test_linear_algebra import EYE, MATRIX, PRODUCT, VECTOR, N, module

DIAGONAL = (
    EYE
    + f"""zero = f32[] constant(0)
    zeros = {MATRIX} broadcast(zero), dimensions={{}}
    """
)
TOGETHER = {
    "(G H) of six factors, of which two alone are summed": (
        f"""ab = {VECTOR} dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
          lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        abc = {VECTOR} multiply(ab, c)
        abcd = {VECTOR} multiply(abc, d)
        abcde = {VECTOR} multiply(abcd, e)
        all = {VECTOR} multiply(abcde, f)
        gh = {MATRIX} dot(g, h), {PRODUCT}
        ROOT r = {VECTOR} dot(gh, all), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR, VECTOR, VECTOR, VECTOR, MATRIX, MATRIX),
        6 * N**2 + 10 * N,
    ),
    "s (x A) beside x A": (
        f"""xa = {VECTOR} dot(b, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        s = f32[] dot(xa, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        t = f32[] cosine(s)
        spread = {VECTOR} broadcast(t), dimensions={{}}
        scaled = {VECTOR} multiply(b, spread)
        y = {VECTOR} dot(scaled, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        z = {VECTOR} dot(scaled, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
        ROOT r = {VECTOR} add(y, z)""",
        (MATRIX, VECTOR),
        4 * N**2 + 20 * N,
    ),
    "diag(d) (A A')": (
        DIAGONAL
        + f"""spread = {MATRIX} broadcast(b), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        aa = {MATRIX} dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        ROOT r = {MATRIX} dot(diagonal, aa), {PRODUCT}""",
        (MATRIX, VECTOR),
        int(2 * N**3 * 0.626),
    ),
    "one-hot rows of diag(d) A": (
        DIAGONAL
        + f"""spread = {MATRIX} broadcast(b), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        places = s32[{N},{N}] broadcast(c), dimensions={{0}}
        is_one = pred[{N},{N}] compare(places, columns), direction=EQ
        hot = {MATRIX} convert(is_one)
        da = {MATRIX} dot(diagonal, a), {PRODUCT}
        ROOT r = {MATRIX} dot(hot, da), {PRODUCT}""",
        (MATRIX, VECTOR, f"s32[{N}]"),
        6 * N**2,
    ),
    "A (B + D) + C B = (A + C) B + A D": (
        DIAGONAL
        + f"""spread = {MATRIX} broadcast(d), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        sum = {MATRIX} add(b, diagonal)
        p = {MATRIX} dot(a, sum), {PRODUCT}
        q = {MATRIX} dot(c, b), {PRODUCT}
        ROOT r = {MATRIX} add(p, q)""",
        (MATRIX, MATRIX, MATRIX, VECTOR),
        2 * N**3 + 6 * N**2,
    ),
    "(AB + AC) D + (AB + AC) E": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ac = {MATRIX} dot(a, c), {PRODUCT}
        sum = {MATRIX} add(ab, ac)
        p = {MATRIX} dot(sum, d), {PRODUCT}
        q = {MATRIX} dot(sum, e), {PRODUCT}
        ROOT r = {MATRIX} add(p, q)""",
        (MATRIX,) * 5,
        4 * N**3 + 2 * N**2,
    ),
    "y'(A y), where y = (B + u v')x": (
        f"""left = {MATRIX} broadcast(c), dimensions={{0}}
        right = {MATRIX} broadcast(d), dimensions={{1}}
        outer = {MATRIX} multiply(left, right)
        sum = {MATRIX} add(b, outer)
        y = {VECTOR} dot(sum, e), {PRODUCT}
        ay = {VECTOR} dot(a, y), {PRODUCT}
        ROOT r = f32[] dot(y, ay), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}""",
        (MATRIX, MATRIX, VECTOR, VECTOR, VECTOR),
        4 * N**2 + 20 * N,
    ),
    "A (B + diag(k)) beside AB, k of a Kronecker product": (
        DIAGONAL
        + f"""left = f32[32,32,32,32] broadcast(c), dimensions={{0,2}}
        right = f32[32,32,32,32] broadcast(d), dimensions={{1,3}}
        both = f32[32,32,32,32] multiply(left, right)
        kron = {MATRIX} reshape(both)
        k = {VECTOR} dot(kron, e), {PRODUCT}
        spread = {MATRIX} broadcast(k), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        sum = {MATRIX} add(b, diagonal)
        ab = {MATRIX} dot(a, b), {PRODUCT}
        p = {MATRIX} dot(a, sum), {PRODUCT}
        ROOT r = ({MATRIX}, {MATRIX}) tuple(ab, p)""",
        (MATRIX, MATRIX, "f32[32,32]", "f32[32,32]", VECTOR),
        2 * N**3 + 4 * N**2,
    ),
}


def _read(name: str) -> Module:
    body, parameters, _ = TOGETHER[name]
    return hloopt.parse(module(body, *parameters), name)


@pytest.mark.parametrize("name", TOGETHER)
def test_takes_the_flops_of_the_best_form(name: str) -> None:
    given = hloopt.optimize(_read(name), "O2{fast_math=true}", "host")
    assert module_cost(given).flops <= TOGETHER[name][2]


@pytest.mark.parametrize("name", TOGETHER)
def test_second_run_changes_nothing(name: str) -> None:
    given = _read(name)
    algebra = LinearAlgebra(reassociate=True, target="host")
    assert algebra.run(given, PassLog())
    hloopt.verify(given)
    assert not algebra.run(given, PassLog())


@pytest.mark.parametrize("name", [name for name in TOGETHER if "cosine" not in TOGETHER[name][0]])
def test_integers_keep_all_bits(name: str) -> None:
    body, parameters, _ = TOGETHER[name]
    text = re.sub(
        r"\b32,32,32,32\b|\b32,32\b",
        lambda found: found[0].replace("32", "4"),
        module(body, *parameters),
    )
    text = re.sub(rf"\b{N}\b", "16", text).replace("f32", "s32")
    given = hloopt.parse(text, name)
    better = hloopt.optimize(given, "call-inliner,linear-algebra{target=host},dce")
    for seed in range(2):
        arrays = inputs(given, seed)
        pairs = zip(hloopt.evaluate(given, arrays), hloopt.evaluate(better, arrays), strict=True)
        assert all(identical(np.asarray(one), np.asarray(other)) for one, other in pairs)

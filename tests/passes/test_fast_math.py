"""``fast_math`` does what XLA does by default, and no more; ``floats_are_real`` is XLA's option for the rest.

What XLA (its CPU compiler of 2026, default flags) makes of each was asked; ``tests/oracle`` asks again.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir.canonical import fingerprint
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import PassLog
from hloopt.simplify import Simplify
from tests.helpers.support import invoke

_XY = " x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
_C = " c0 = f32[] constant({})\n c = f32[6] broadcast(c0), dimensions={{}}\n"

# By what XLA keeps as it is: instructions, of which the last is the root.
KEPT = {
    "A * 0 => 0": _XY + _C.format(0) + "ROOT r = f32[6] multiply(x, c)",
    "A - A => 0": _XY + "ROOT r = f32[6] subtract(x, x)",
    "(A - B) + B => A": _XY + "d = f32[6] subtract(x, y)\n ROOT r = f32[6] add(d, y)",
    "(A + B) - B => A": _XY + "d = f32[6] add(x, y)\n ROOT r = f32[6] subtract(d, y)",
    "A - (A - B) => B": _XY + "d = f32[6] subtract(x, y)\n ROOT r = f32[6] subtract(x, d)",
    "P * A + Q * A => (P + Q) * A": _XY + "z = f32[6] parameter(2)\n p = f32[6] multiply(x, z)\n"
    "q = f32[6] multiply(y, z)\n ROOT r = f32[6] add(p, q)",
    "power(A, 0.5) => sqrt(A)": _XY + _C.format(0.5) + "ROOT r = f32[6] power(x, c)",
    "exp(log(A)) => A": _XY + "l = f32[6] log(x)\n ROOT r = f32[6] exponential(l)",
    "compare(A - B, 0) => compare(A, B)": _XY + _C.format(0) + "d = f32[6] subtract(x, y)\n"
    "ROOT r = pred[6] compare(d, c), direction=EQ",
    "select(A > B, A, B) => max(A, B)": _XY + "g = pred[6] compare(x, y), direction=GT\n"
    "ROOT r = f32[6] select(g, x, y)",
    "max(A, min(A, B)) => A": _XY + "m = f32[6] minimum(x, y)\n ROOT r = f32[6] maximum(x, m)",
    "dot(dot(A, B), C) => dot(A, dot(B, C)) with fewer products":
    " x = f32[9,8] parameter(0)\n y = f32[8,7] parameter(1)\n z = f32[7,1] parameter(2)\n"
    "d = f32[9,7] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = f32[9,1] dot(d, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
}  # fmt: skip


def module(body: str) -> hloopt.Module:
    return hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n", "special")


@pytest.mark.parametrize("name", KEPT)
def test_fast_math_keeps_what_xla_keeps(name: str) -> None:
    """Infinities and NaN would become numbers, or the other way round: only floats_are_real takes that."""
    given = module(KEPT[name])
    kept = module(KEPT[name])
    Simplify(fast_math=True).run(kept, PassLog())
    assert fingerprint(kept) == fingerprint(given)
    log = PassLog()
    assert Simplify(floats_are_real=True).run(kept, log)
    assert log.hits[name] == 1


@pytest.mark.parametrize("opcode", ["sqrt", "rsqrt"])
def test_squares_of_roots_need_an_operand_that_has_one(opcode: str) -> None:
    """NaN stays NaN: XLA wants to know that the number is not negative."""
    for made, rewritten in ((" x = f32[6] parameter(0)", False), (" p = f32[6] parameter(0)\n x = f32[6] abs(p)", True)):  # fmt: skip
        given = module(f"{made}\n s = f32[6] {opcode}(x)\n ROOT r = f32[6] multiply(s, s)")
        assert Simplify(fast_math=True).run(given, PassLog()) is rewritten


def test_a_common_factor_is_taken_out_where_it_is_a_power_of_two() -> None:
    """Products with it are exact, as long as nothing overflows: XLA regroups these."""
    for factor, rewritten in ((0.25, True), (-2, True), (3, False), (0, False), ("inf", False)):
        body = _XY + _C.format(factor) + "p = f32[6] multiply(x, c)\n q = f32[6] multiply(y, c)\n"
        log = PassLog()
        Simplify(fast_math=True).run(module(f"{body} ROOT r = f32[6] add(p, q)"), log)
        assert bool(log.hits["P * A + Q * A => (P + Q) * A"]) is rewritten, factor


def test_the_logarithm_of_a_power_of_zero_is_zero() -> None:
    """power(x, 0) is 1 for every x, an infinite one as well: XLA selects."""
    given = module(_XY + "p = f32[6] power(x, y)\n ROOT r = f32[6] log(p)")
    fast = hloopt.optimize(given, "simplify{fast_math=true}")
    assert "power" not in fast.to_text()
    arrays = [
        np.array([-np.inf, np.inf, 0, np.nan, 2, 2], np.float32),
        np.array([0, -0.0, 0, 0, 3, np.nan], np.float32),
    ]
    np.testing.assert_allclose(
        hloopt.evaluate(fast, arrays)[0], hloopt.evaluate(given, arrays)[0], rtol=1e-6
    )


def test_nothing_times_zero_is_what_xla_has() -> None:
    """{nan, inf, -1} * 0 is {nan, nan, -0} with XLA's default flags, recorded, and here at every level."""
    given = module(
        " x = f32[3] parameter(0)\n z = f32[] constant(0)\n b = f32[3] broadcast(z), dimensions={}\n"
        "ROOT r = f32[3] multiply(x, b)"
    )
    arrays = [np.array([np.nan, np.inf, -1], np.float32)]
    for level in ("O1", "O2", "O3"):
        fast = hloopt.optimize(given, f"{level}{{fast_math=true}}")
        (result,) = hloopt.evaluate(fast, arrays)
        assert np.isnan(result[:2]).all()
        assert result[2] == 0
        assert np.signbit(result[2])


def test_the_command_tells_which_option_a_rule_needs() -> None:
    """Of a rule, and in the list of all of simplify's."""
    told = " ".join(invoke("passes", "exp(log(A)) => A").stdout.split())
    assert "with floats_are_real only" in told
    listed = " ".join(invoke("passes", "simplify").stdout.split())
    assert "rules with fast_math only" in listed
    assert "rules with floats_are_real only" in listed


def test_rules_of_xla_alone() -> None:
    """own=false leaves out what XLA's simplifier for GPUs has not, such as A | A => A."""
    either = "p = pred[6] parameter(0)\n ROOT r = pred[6] or(p, p)"
    assert Simplify().run(module(either), PassLog())
    assert not Simplify(own=False).run(module(either), PassLog())
    twice = "x = f32[6] parameter(0)\n n = f32[6] negate(x)\n ROOT r = f32[6] negate(n)"
    assert Simplify(own=False).run(module(twice), PassLog())


def test_of_two_comparisons_xla_keeps_both() -> None:
    """What JAX writes for a remainder: not zero, and of another sign than the divisor."""
    both = (
        "x = s32[6] parameter(0)\n c = s32[] constant(0)\n z = s32[6] broadcast(c), dimensions={}\n"
        "n = pred[6] compare(x, z), direction=NE\n m = pred[6] compare(x, z), direction=LT\n"
        "ROOT r = pred[6] and(n, m)"
    )
    assert Simplify().run(module(both), PassLog())
    assert not Simplify(own=False).run(module(both), PassLog())


def test_of_a_reshape_xla_slices_the_first_rows_only() -> None:
    """A slice that starts at 0 moves before a reshape, others stay, however often the reshape is used."""
    entry = (
        "x = f32[4,6] parameter(0)\n y = f32[24] reshape(x)\n s = f32[6] slice(y), slice={%s}\n"
        "ROOT r = (f32[6], f32[24]) tuple(s, y)"
    )
    assert Simplify(own=False).run(module(entry % "[0:6]"), PassLog())
    assert not Simplify(own=False).run(module(entry % "[6:12]"), PassLog())
    assert not Simplify(own=False).run(module(entry % "[0:11:2]"), PassLog())
    once = "x = f32[4,6] parameter(0)\n y = f32[24] reshape(x)\n ROOT r = f32[6] slice(y), slice={[6:12]}"
    assert Simplify().run(module(once), PassLog())
    assert not Simplify(own=False).run(module(once), PassLog())


def test_conditionals_of_scalars_stay_conditionals() -> None:
    """As on XLA's GPUs, where they have tuples for results when the simplifier sees them."""
    text = (
        "HloModule m\none { a = f32[] parameter(0)\n ROOT b = f32[] negate(a) }\n"
        "two { c = f32[] parameter(0)\n ROOT d = f32[] exponential(c) }\n"
        "ENTRY e { i = s32[] parameter(0)\n x = f32[] parameter(1)\n"
        "ROOT r = f32[] conditional(i, x, x, x), branch_computations={one, two, one} }\n"
    )
    assert Simplify().run(hloopt.parse(text), PassLog())
    assert not Simplify(own=False).run(hloopt.parse(text), PassLog())


SLICED = """ x = f32[6,64] parameter(0)
 y = f32[8,64] parameter(1)
 a = f32[3,64] slice(y), slice={[0:3], [0:64]}
 b = f32[5,64] slice(y), slice={[3:8], [0:64]}
 c = f32[6,3] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
 d = f32[6,5] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
 ROOT r = f32[6,8] concatenate(c, d), dimensions={1}"""


@pytest.mark.parametrize("fast_math", [False, True])
def test_a_wider_dot_may_add_in_another_order(fast_math: bool) -> None:
    """What is read is the whole of y, once that is allowed; a remark says that it would be."""
    given, log = module(SLICED), PassLog(kinds=frozenset({"missed"}))
    Simplify(fast_math=fast_math).run(given, log)
    parse_pipeline("dce").run(given)
    opcodes = [one.opcode for one in given.entry]
    assert opcodes.count("dot") == (1 if fast_math else 2)
    assert ("slice" in opcodes) is not fast_math
    missed = [one.reason for one in log.remarks if "wider dot" in one.reason]
    assert bool(missed) is not fast_math


@pytest.mark.parametrize("fast_math", [False, True])
def test_side_by_side_no_zero_changes_its_sign(fast_math: bool) -> None:
    """-0 + 0 is 0, which fast_math may forget."""
    given = module(
        """ x = f32[2] parameter(0)
 y = f32[3] parameter(1)
 zero = f32[] constant(0)
 p = f32[5] pad(x, zero), padding=0_3
 q = f32[5] pad(y, zero), padding=2_0
 ROOT r = f32[5] add(p, q)"""
    )
    Simplify(fast_math=fast_math).run(given, PassLog())
    assert given.entry.root.opcode == ("concatenate" if fast_math else "add")
    minus = [np.full(2, -0.0, np.float32), np.full(3, -0.0, np.float32)]
    (result,) = hloopt.evaluate(given, minus)
    assert (np.signbit(result) == fast_math).all()

"""Forms that give NaN, infinity or few digits, and their stable ones, which are no findings."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Finding

_SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _found(body: str) -> list[Finding]:
    module = hloopt.parse(
        f"HloModule m\n{_SUM}ENTRY main {{\n  x = f32[8,32] parameter(0)\n{body}\n}}\n"
    )
    return list(hloopt.why(module, kinds=["not-finite", "cancellation"]).rows)


_ONES = "  one = f32[] constant(1)\n  ones = f32[8,32] broadcast(one), dimensions={}\n"
_ZEROS = "  zero = f32[] constant(0)\n  zeros = f32[8,32] broadcast(zero), dimensions={}\n"
_MASK = f"{_ZEROS}  p = pred[8,32] compare(x, zeros), direction=GT\n"
_SIGMOID = f"""{_ONES}  n = f32[8,32] negate(x)
  e = f32[8,32] exponential(n)
  a = f32[8,32] add(e, ones)
  s = f32[8,32] divide(ones, a)
"""
_SOFTMAX = """  e = f32[8,32] exponential({0})
  s = f32[8] reduce(e, zero), dimensions={{1}}, to_apply=sum
  b = f32[8,32] broadcast(s), dimensions={{0}}
  ROOT r = f32[8,32] divide(e, b)"""
_SHIFT = """  low = f32[] constant(-inf)
  m = f32[8] reduce(x, low), dimensions={1}, to_apply=most
  mb = f32[8,32] broadcast(m), dimensions={0}
  d = f32[8,32] subtract(x, mb)
"""


@pytest.mark.parametrize(
    ("body", "kind", "site", "remedy"),
    [
        (
            f"{_MASK}  k = f32[8,32] convert(p)\n  l = f32[8,32] log(x)\n  ROOT r = f32[8,32] multiply(k, l)",
            "not-finite",
            "r",
            "jnp.where(mask",
        ),
        (
            f"{_MASK}  g = f32[8,32] select(p, x, zeros)\n  ROOT r = f32[8,32] divide(g, x)",
            "not-finite",
            "r",
            "jnp.where(ok, x, 1)",
        ),
        (_ZEROS + _SOFTMAX.format("x"), "not-finite", "r", "jax.nn.softmax"),
        (
            f"{_ONES}  e = f32[8,32] exponential(x)\n  a = f32[8,32] add(ones, e)\n  ROOT r = f32[8,32] log(a)",
            "not-finite",
            "r",
            "softplus",
        ),
        (
            f"{_SIGMOID}  ROOT r = f32[8,32] log(s)",
            "not-finite",
            "r",
            "jax.nn.log_sigmoid(x)",
        ),
        (
            f"{_SIGMOID}  d = f32[8,32] subtract(ones, s)\n  ROOT r = f32[8,32] log(d)",
            "not-finite",
            "r",
            "jax.nn.log_sigmoid(-x)",
        ),
        (
            "  s = f32[8,32] logistic(x)\n  d = f32[8,32] negate(s)\n  ROOT r = f32[8,32] log-plus-one(d)",
            "not-finite",
            "r",
            "jax.nn.log_sigmoid(-x)",
        ),
        (
            f"{_ONES}  a = f32[8,32] add(x, ones)\n  ROOT r = f32[8,32] log(a)",
            "cancellation",
            "r",
            "log1p",
        ),
        (
            f"{_ONES}  e = f32[8,32] exponential(x)\n  ROOT r = f32[8,32] subtract(e, ones)",
            "cancellation",
            "r",
            "expm1",
        ),
    ],
)
def test_forms_are_found(body: str, kind: str, site: str, remedy: str) -> None:
    """Where the stable form is made, nothing is wrong; on usual inputs both give the same."""
    (row,) = _found(body)
    assert (row.kind, row.instruction) == (kind, site)
    assert remedy in row.remedies[0].text
    assert row.gain.after == 0 < row.gain.before
    assert row.gain.verdict in ("equal", "within tolerance")


@pytest.mark.parametrize(
    "body",
    [
        f"{_MASK}  l = f32[8,32] log(x)\n  ROOT r = f32[8,32] select(p, l, zeros)",
        f"{_MASK}  k = f32[8,32] convert(p)\n  l = f32[8,32] tanh(x)\n  ROOT r = f32[8,32] multiply(k, l)",
        f"{_ONES}  ROOT r = f32[8,32] log-plus-one(x)",
        "  n = f32[8,32] abs(x)\n  g = f32[8,32] negate(n)\n  e = f32[8,32] exponential(g)\n  ROOT r = f32[8,32] log-plus-one(e)",
        f"{_ONES}  e = f32[8,32] exponential(x)\n  ROOT r = f32[8,32] add(e, ones)",
        f"{_ONES}  ROOT r = f32[8,32] divide(ones, ones)",
        f"{_ONES}  s = f32[8,32] logistic(x)\n  a = f32[8,32] add(s, ones)\n  ROOT r = f32[8,32] log(a)",
        f"{_SIGMOID}  low = f32[] constant(0.01)\n  f = f32[8,32] broadcast(low), dimensions={{}}\n  k = f32[8,32] add(s, f)\n  ROOT r = f32[8,32] log(k)",
    ],
)
def test_stable_forms_are_not(body: str) -> None:
    """A select after the product, log1p, exponentials of what is not above 0."""
    assert not _found(body)


def test_a_softmax_that_takes_its_maximum_off_is_none() -> None:
    """Though its exponentials are divided by their sum."""
    most = "most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n"
    module = hloopt.parse(
        f"HloModule m\n{_SUM}{most}ENTRY main {{\n  x = f32[8,32] parameter(0)\n{_ZEROS}{_SHIFT}{_SOFTMAX.format('d')}\n}}\n"
    )
    assert not hloopt.why(module, kinds=["not-finite"]).rows


def test_what_was_merged_is_named() -> None:
    """Both instructions of the text as given, though the module that is looked through has one."""
    example = """  y = f32[8,32] sine(x)
  z = f32[8,32] sine(x)
  ROOT q = f32[8,32] divide(y, z)"""
    (row,) = _found(example)
    assert "%y and %z, which compute the same, are merged" in row.why

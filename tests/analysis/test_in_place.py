"""Operands that are updated in place, and operands whose bytes a result may take."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.in_place import InPlace, in_place_pairs, may_overwrite
from hloopt.ir import Instruction

ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }\n"


def root(body: str, computations: str = "") -> Instruction:
    text = f"HloModule m\n{ADD}{computations}ENTRY e {{\n{body}\n}}\n"
    module = hloopt.parse(text)
    hloopt.verify(module)
    return module.entry.root


HEAD = "p = f32[8]{0} parameter(0) v = f32[2]{0} parameter(1) i = s32[] parameter(2)\n"


def test_updates_write_their_first_operand() -> None:
    """One pair for a dynamic-update-slice, one for each input of a scatter."""
    update = root(HEAD + "ROOT r = f32[8]{0} dynamic-update-slice(p, v, i)")
    assert in_place_pairs(update) == (InPlace(0, (), ()),)
    scatter = root(
        """p = f32[8]{0} parameter(0) q = f32[8]{0} parameter(1) i = s32[2,1]{1,0} parameter(2)
  u = f32[2]{0} parameter(3) v = f32[2]{0} parameter(4)
  ROOT r = (f32[8]{0}, f32[8]{0}) scatter(p, q, i, u, v), update_window_dims={},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=two""",
        """two { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2)
  d = f32[] parameter(3) s = f32[] add(a, c) t = f32[] add(b, d)
  ROOT o = (f32[], f32[]) tuple(s, t) }\n""",
    )
    assert in_place_pairs(scatter) == (InPlace(0, (), (0,)), InPlace(1, (), (1,)))


def test_an_operand_that_is_read_elsewhere_too_is_none() -> None:
    """The same array as operand and as update would be read while it changes."""
    update = root(HEAD + "ROOT r = f32[8]{0} dynamic-update-slice(p, p, i)")
    assert in_place_pairs(update) == ()


def test_custom_calls_say_what_they_write() -> None:
    """output_to_operand_aliasing, with indices on both sides."""
    call = root(
        """p = (f32[8]{0}, f32[2]{0}) parameter(0) v = f32[2]{0} parameter(1)
  ROOT r = (f32[2]{0}, f32[8]{0}) custom-call(p, v), custom_call_target="t",
    output_to_operand_aliasing={{1}: (0, {0}), {0}: (1, {})}"""
    )
    assert in_place_pairs(call) == (InPlace(0, (0,), (1,)), InPlace(1, (), (0,)))


def fusion(body: str, shape: str = "f32[8]{0}", kind: str = "kLoop") -> Instruction:
    head = HEAD if "(p, v, i)" in body else "p = f32[8]{0} parameter(0)\n"
    operands = "p, v, i" if head is HEAD else "p"
    call = f"ROOT r = {shape} fusion({operands}), kind={kind}, calls=f"
    return root(head + call, f"f {{\n{head}{body}\n}}\n")


def test_fusions_of_an_update_write_their_operand() -> None:
    """As root, behind bitcasts, or as an element of the root; not where the body reads the array besides."""
    update = "u = f32[8]{0} dynamic-update-slice(p, v, i)"
    assert in_place_pairs(fusion(update.replace("u =", "ROOT u ="))) == (InPlace(0, (), ()),)
    several = fusion(
        f"{update} n = f32[2]{{0}} negate(v) ROOT t = (f32[2]{{0}}, f32[8]{{0}}) tuple(n, u)",
        "(f32[2]{0}, f32[8]{0})",
    )
    assert in_place_pairs(several) == (InPlace(0, (), (1,)),)
    assert in_place_pairs(fusion(f"{update} ROOT a = f32[8]{{0}} add(u, p)")) == ()
    besides = fusion(
        f"{update} n = f32[8]{{0}} reverse(p), dimensions={{0}} "
        "ROOT t = (f32[8]{0}, f32[8]{0}) tuple(n, u)",
        "(f32[8]{0}, f32[8]{0})",
    )
    assert in_place_pairs(besides) == ()


@pytest.mark.parametrize(
    ("body", "may"),
    [
        ("p = f32[8]{0} parameter(0) ROOT r = f32[8]{0} negate(p)", True),
        ("p = f32[8]{0} parameter(0) ROOT r = s32[8]{0} bitcast-convert(p)", True),
        ("p = f32[8]{0} parameter(0) ROOT r = bf16[8]{0} convert(p)", False),
        ("p = f32[8]{0} parameter(0) ROOT r = f32[8]{0} reverse(p), dimensions={0}", False),
        (
            "p = f32[2,2]{1,0} parameter(0) ROOT r = f32[2,2]{1,0} transpose(p), dimensions={1,0}",
            False,
        ),
        ("p = f32[2,2]{1,0} parameter(0) ROOT r = f32[2,2]{0,1} negate(p)", False),
        ("p = f32[] parameter(0) ROOT r = f32[1]{0} broadcast(p), dimensions={}", False),
    ],
)
def test_only_what_keeps_places_may_overwrite(body: str, may: bool) -> None:
    """Elementwise, as wide, in the same order in memory."""
    assert may_overwrite(root(body), 0) is may


def test_loop_fusions_may_overwrite_what_they_read_in_place() -> None:
    """Each output of a pointwise body, through reshapes; no other kind, no other read of the operand."""
    pointwise = "n = f32[8]{0} negate(p) m = f32[2,4]{1,0} reshape(n) "
    shape = "(f32[8]{0}, f32[2,4]{1,0})"
    result = f"ROOT t = {shape} tuple(n, m)"
    loop = fusion(pointwise + result, shape)
    assert may_overwrite(loop, 0, (0,))
    assert may_overwrite(loop, 0, (1,))
    assert not may_overwrite(loop, 0)
    assert not may_overwrite(fusion(pointwise + result, shape, "kInput"), 0, (0,))
    turned = "k = f32[8]{0} reverse(p), dimensions={0} o = f32[8]{0} add(k, p) "
    assert not may_overwrite(fusion(turned + "ROOT a = f32[8]{0} negate(o)"), 0)

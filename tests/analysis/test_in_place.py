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
    """As root, behind bitcasts, or as an element of the root; other results are computed first."""
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
    assert in_place_pairs(besides) == (InPlace(0, (), (1,)),)


SLICE = "d = f32[2]{0} dynamic-slice(p, i), dynamic_slice_sizes={2} "
UNCHANGED = """e = f32[1,2]{1,0} broadcast(d), dimensions={1}
  w = f32[2]{0} reshape(e)"""
SPREAD = """z = f32[] constant(0) e = f32[] reduce(d, z), to_apply=add, dimensions={0}
  w = f32[2]{0} broadcast(e), dimensions={}"""


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (SLICE + "w = f32[2]{0} add(d, d)", 1),
        (SLICE.replace("(p", "(k").replace("d =", "k = f32[8]{0} negate(p) d =") + UNCHANGED, 1),
        (SLICE + "w = f32[2]{0} reverse(d), dimensions={0}", 0),
        ("j = s32[] negate(i) " + SLICE.replace("i)", "j)") + UNCHANGED, 0),
        ("w = f32[2]{0} slice(p), slice={[0:2]}", 0),
        (SLICE + SPREAD, 0),
        ("k = f32[8]{0} reverse(p), dimensions={0} " + SLICE.replace("(p", "(k") + UNCHANGED, 0),
    ],
)
def test_an_update_may_read_what_it_writes(body: str, pairs: int) -> None:
    """Of several elements each may be computed from the one that it takes the place of, and from no other."""
    head = "p = f32[8]{0} parameter(0) i = s32[] parameter(1)\n"
    update = "ROOT u = f32[8]{0} dynamic-update-slice(p, w, i)"
    call = "ROOT r = f32[8]{0} fusion(p, i), kind=kLoop, calls=f"
    made = root(head + call, f"f {{\n{head}{body} {update}\n}}\n")
    assert len(in_place_pairs(made)) == pairs


def test_a_single_element_may_be_computed_from_all() -> None:
    """It is written when everything has been read; so is the place it goes to."""
    head = "p = s32[8]{0} parameter(0)\n"
    body = """z = s32[] constant(0) n = s32[8]{0} reverse(p), dimensions={0}
  m = s32[] reduce(n, z), dimensions={0}, to_apply=most
  w = s32[1]{0} slice(n), slice={[2:3]} ROOT u = s32[8]{0} dynamic-update-slice(p, w, m)"""
    most = "most { x = s32[] parameter(0) y = s32[] parameter(1) ROOT z = s32[] maximum(x, y) }\n"
    call = "ROOT r = s32[8]{0} fusion(p), kind=kLoop, calls=f"
    made = root(head + call, f"{most}f {{\n{head}{body}\n}}\n")
    assert in_place_pairs(made) == (InPlace(0, (), ()),)
    two = body.replace("[1]", "[2]").replace("[2:3]", "[2:4]")
    assert in_place_pairs(root(head + call, f"{most}f {{\n{head}{two}\n}}\n")) == ()


def test_an_update_that_another_reads_is_none() -> None:
    """Of two that read each other's array neither could come first."""
    head = "p = f32[8]{0} parameter(0) q = f32[8]{0} parameter(1) i = s32[] parameter(2)\n"
    shape = "(f32[8]{0}, f32[8]{0})"
    body = f"""{head} d = f32[1]{{0}} dynamic-slice(p, i), dynamic_slice_sizes={{1}}
  e = f32[1]{{0}} dynamic-slice(q, i), dynamic_slice_sizes={{1}}
  u = f32[8]{{0}} dynamic-update-slice(p, e, i) v = f32[8]{{0}} dynamic-update-slice(q, d, i)
  ROOT t = {shape} tuple(u, v)"""
    call = f"ROOT r = {shape} fusion(p, q, i), kind=kLoop, calls=f"
    assert in_place_pairs(root(head + call, f"f {{\n{body}\n}}\n")) == ()


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


@pytest.mark.parametrize(("operand", "may"), [(0, True), (1, False), (2, False)])
@pytest.mark.parametrize("kind", ["kCustom", "kOutput"])
def test_what_comes_behind_a_dot_may_overwrite(kind: str, operand: int, may: bool) -> None:
    """A tile is read where it is written; the factors of the dot are read everywhere."""
    body = """f {
  p = f32[8,8]{1,0} parameter(0) a = f32[8,8]{1,0} parameter(1) b = f32[8,8]{1,0} parameter(2)
  d = f32[8,8]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[8,8]{1,0} add(p, d) }
"""
    call = """p = f32[8,8]{1,0} parameter(0) a = f32[8,8]{1,0} parameter(1) b = f32[8,8]{1,0} parameter(2)
  ROOT r = f32[8,8]{1,0} fusion(p, a, b), calls=f, kind="""
    assert may_overwrite(root(call + kind, body), operand) is may

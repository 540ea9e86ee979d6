"""Tiled transposes: every element arrives, for sizes around tiles, all widths, with work before and after."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.codegen.program import kernel_steps
from hloopt.kernel_ir.expressions import Var
from hloopt.kernel_ir.types import SBYTE, vector
from tests.codegen.harness import check_kernel, planned
from tests.helpers.kernel_code import KernelCode


def _module(*lines: str, parameters: str = "", roots: str, shapes: str) -> str:
    body = "\n  ".join(lines)
    return f"HloModule m\n\nENTRY main {{\n  {body}\n  ROOT out = ({shapes}) tuple({roots})\n}}\n"


def _transposes(cases: list[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> str:
    lines, roots, shapes = [], [], []
    for number, (kind, dims, permutation) in enumerate(cases):
        result = [dims[source] for source in permutation]
        source_text = f"{kind}[{','.join(map(str, dims))}]"
        result_text = f"{kind}[{','.join(map(str, result))}]"
        lines.append(f"p{number} = {source_text} parameter({number})")
        order = ",".join(map(str, permutation))
        lines.append(f"t{number} = {result_text} transpose(p{number}), dimensions={{{order}}}")
        roots.append(f"t{number}")
        shapes.append(result_text)
    return _module(*lines, roots=", ".join(roots), shapes=", ".join(shapes))


CLASSIC = [
    ("f32", (32, 32), (1, 0)),
    ("f32", (33, 65), (1, 0)),
    ("f32", (16, 100), (1, 0)),
    ("f32", (8, 1100), (1, 0)),
    ("f64", (50, 41), (1, 0)),
    ("c64", (40, 33), (1, 0)),
    ("c128", (17, 34), (1, 0)),
    ("f32", (3, 40, 20), (0, 2, 1)),
    ("f32", (3, 40, 20), (2, 1, 0)),
    ("f32", (20, 3, 40), (2, 0, 1)),
    ("f32", (2, 17, 3, 33), (3, 2, 0, 1)),
    ("f32", (40, 1, 50), (2, 1, 0)),
    ("f16", (64, 48), (1, 0)),
    ("s8", (64, 64), (1, 0)),
    ("pred", (33, 70), (1, 0)),
    ("s32", (40, 50, 2), (1, 0, 2)),
    ("f16", (33, 40, 3), (1, 0, 2)),
]

PACKED = [
    ("f16", (64, 64), (1, 0)),
    ("bf16", (64, 130), (1, 0)),
    ("f16", (200, 20), (1, 0)),
    ("s8", (128, 128), (1, 0)),
    ("u8", (160, 40), (1, 0)),
    ("f8e5m2", (128, 256), (1, 0)),
    ("f16", (3, 64, 64), (0, 2, 1)),
    ("f16", (64, 20, 4), (1, 2, 0)),
    ("f16", (64, 20, 8), (2, 1, 0)),
]


def test_every_element_arrives() -> None:
    """Sizes below, at and beyond a tile, two to four dimensions, elements of 1 to 16 bytes."""
    check_kernel(_transposes(CLASSIC), "transpose", exact=True)


@pytest.mark.parametrize("rows", [1, 8, 32])
def test_any_number_of_rows_at_a_time_will_do(rows: int) -> None:
    """The tile's height is the user's to choose."""
    check_kernel(
        _transposes(CLASSIC[:4]), "transpose", {"rows": rows}, exact=True, everywhere=False
    )


def test_vectors_of_narrow_elements_are_moved_at_once() -> None:
    """A vector of two or four needs sizes it divides; the tile grows with it."""
    cases = [("f16", (64, 128), (1, 0)), ("s8", (128, 64), (1, 0))]
    check_kernel(_transposes(cases), "transpose", {"vector": 2}, exact=True)


def test_narrow_elements_are_packed_into_banks() -> None:
    """Two or four elements of a thread share a bank; tiles may be smaller than the threads' square."""
    code = KernelCode.of(check_kernel(_transposes(PACKED), "packed-transpose", exact=True))
    assert "result" in code.addresses("store_vector")
    assert vector(SBYTE, 4) in [one.type for one in code.named("stored") if isinstance(one, Var)]


FUSED = """HloModule m

body {
  a = f32[70,40] parameter(0)
  b = f32[40,70] parameter(1)
  n = f32[70,40] negate(a)
  t = f32[40,70] transpose(n), dimensions={1,0}
  s = f32[40,70] add(t, b)
  u = f32[40,70] exponential(t)
  r = f32[40,7,10] reshape(s)
  ROOT out = (f32[40,7,10], f32[40,70]) tuple(r, u)
}

ENTRY main {
  p = f32[70,40] parameter(0)
  q = f32[40,70] parameter(1)
  ROOT f = (f32[40,7,10], f32[40,70]) fusion(p, q), kind=kInput, calls=body
}
"""


def test_work_before_and_after_is_fused() -> None:
    """The operand is computed while reading, the results while writing; the element goes through once."""
    code = KernelCode.of(check_kernel(FUSED, "transpose"))
    assert len(code.calls("expf")) == 1
    assert len(code.arrays("shared")) == 1


def test_a_transpose_read_elsewhere_too_is_right() -> None:
    """What the root reads of the transpose at another place is computed by itself."""
    text = """HloModule m

body {
  a = f32[40,40] parameter(0)
  t = f32[40,40] transpose(a), dimensions={1,0}
  ROOT s = f32[40,40] add(t, a)
}

ENTRY main {
  p = f32[40,40] parameter(0)
  ROOT f = f32[40,40] fusion(p), kind=kInput, calls=body
}
"""
    check_kernel(text, "transpose", exact=True)


@pytest.mark.parametrize(
    ("shape", "order", "why"),
    [
        ("f32[4,4]", "{1,0}", "too small"),
        ("s4[64,64]", "{1,0}", "shares bytes"),
        ("f32[64,64]", "{0,1}", "moves nothing"),
    ],
)
def test_what_no_tile_is_worth_having_for_is_refused(shape: str, order: str, why: str) -> None:
    """Small, packed and idle transposes stay with the loop kernel."""
    text = f"HloModule m\n\nENTRY main {{\n  p = {shape} parameter(0)\n  ROOT t = {shape} transpose(p), dimensions={order}\n}}\n"
    _, plan, _ = planned(text, "transpose")
    assert [step.spec.kernel for step in kernel_steps(plan.steps)] == ["loop"], why


def test_a_tile_that_cannot_be_is_the_users_error() -> None:
    """The message says what would do."""
    with pytest.raises(hloopt.UsageError, match="32 columns"):
        planned(_transposes(CLASSIC[:1]), "transpose", {"tile": 24})

"""The concatenate kernel: every operand arrives, along any dimension, with work before and after."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.codegen.program import kernel_steps
from tests.codegen.harness import check_kernel, planned
from tests.helpers.kernel_code import KernelCode

TEXT = """HloModule m

minor {
  a = f32[6,8] parameter(0)
  b = f32[6,4] parameter(1)
  c = f32[6,12] parameter(2)
  n = f32[6,4] negate(b)
  k = f32[6,24] concatenate(a, n, c), dimensions={1}
  e = f32[6,24] exponential(k)
  ROOT r = f32[12,12] reshape(e)
}

outer {
  a = bf16[3,16] parameter(0)
  b = bf16[1,16] parameter(1)
  ROOT k = bf16[4,16] concatenate(a, b), dimensions={0}
}

middle {
  a = s8[2,3,5] parameter(0)
  b = s8[2,1,5] parameter(1)
  z = s8[2,0,5] parameter(2)
  d = s8[2,7,5] parameter(3)
  ROOT k = s8[2,11,5] concatenate(a, b, z, d), dimensions={1}
}

ENTRY main {
  a = f32[6,8] parameter(0)
  b = f32[6,4] parameter(1)
  c = f32[6,12] parameter(2)
  f0 = f32[12,12] fusion(a, b, c), kind=kLoop, calls=minor
  d = bf16[3,16] parameter(3)
  e = bf16[1,16] parameter(4)
  f1 = bf16[4,16] fusion(d, e), kind=kLoop, calls=outer
  p = s8[2,3,5] parameter(5)
  q = s8[2,1,5] parameter(6)
  z = s8[2,0,5] parameter(7)
  r = s8[2,7,5] parameter(8)
  f2 = s8[2,11,5] fusion(p, q, z, r), kind=kLoop, calls=middle
  v = c64[5] parameter(9)
  f3 = c64[10] concatenate(v, v), dimensions={0}
  ROOT out = (f32[12,12], bf16[4,16], s8[2,11,5], c64[10]) tuple(f0, f1, f2, f3)
}
"""


@pytest.mark.parametrize("unroll", [None, 1])
def test_every_operand_arrives(unroll: int | None) -> None:
    """Along the last, the first and a middle dimension, an operand twice, one empty, vectors and none."""
    tile = None if unroll is None else {"unroll": unroll, "vector": unroll}
    check_kernel(TEXT, "concatenate", tile)


def test_neighbours_are_stored_as_vectors() -> None:
    """Four elements a thread of operands whose sizes four divides are one access."""
    text = """HloModule m

ENTRY main {
  a = f32[5,8] parameter(0)
  b = f32[5,16] parameter(1)
  ROOT k = f32[5,24] concatenate(a, b), dimensions={1}
}
"""
    code = KernelCode.of(check_kernel(text, "concatenate", {"unroll": 4, "vector": 4}))
    assert code.addresses("store_vector") == ["result"] * 2
    assert len(code.calls("load_vector<4>")) == 2


def test_a_tile_that_does_not_divide_is_the_users_error() -> None:
    """The message says what would."""
    with pytest.raises(hloopt.UsageError, match="3 and what divides it"):
        planned(
            "HloModule m\n\nENTRY main {\n  a = f32[3] parameter(0)\n  b = f32[6] parameter(1)\n"
            "  ROOT k = f32[9] concatenate(a, b), dimensions={0}\n}\n",
            "concatenate",
            {"unroll": 2},
        )


def test_packed_elements_are_left_to_the_loop() -> None:
    """Two operands may meet within a byte."""
    _, plan, _ = planned(
        "HloModule m\n\nENTRY main {\n  a = s4[3] parameter(0)\n"
        "  ROOT k = s4[6] concatenate(a, a), dimensions={0}\n}\n",
        "concatenate",
    )
    assert [step.spec.kernel for step in kernel_steps(plan.steps)] == ["loop"]


@pytest.mark.parametrize(
    ("before", "kernel"),
    [
        ("concatenate(a, a), dimensions={0}", "concatenate"),
        ("transpose(w), dimensions={1,0}", "transpose"),
    ],
)
def test_an_op_by_itself_is_not_laid_out_for_what_made_its_operands(
    before: str, kernel: str
) -> None:
    """They are in memory by then, so a loop over the result reads them as they lie."""
    text = f"""HloModule m

ENTRY main {{
  a = f32[32,64] parameter(0)
  w = f32[64,64] parameter(1)
  b = f32[64,64] {before}
  c = f32[64,64] negate(b)
  ROOT d = f32[64,64] add(c, w)
}}
"""
    _, plan, _ = planned(text, kernel)
    ran = {step.instruction.name: step.spec.kernel for step in kernel_steps(plan.steps)}
    assert ran == {"b": kernel, "c": "loop", "d": "loop"}

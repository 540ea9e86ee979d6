"""A reduce of one operand may return a tuple of one: no rule takes it for an array."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.pipelines import PASSES
from tests.passes.proof import check, identical, inputs

REGIONS = "".join(
    f"{name} {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] {opcode}(a, b) ROOT t = (f32[]) tuple(c) }}\n"
    for name, opcode in (("add", "add"), ("max", "maximum"), ("mul", "multiply"))
)
OPERANDS = [
    "f32[2,3] negate(x)",
    "f32[2,3] convert(h)",
    "f32[2,3] transpose(y), dimensions={1,0}",
    "f32[2,3] reshape(v)",
    "f32[2,3] broadcast(w), dimensions={0}",
    "f32[2,3] reverse(x), dimensions={0,1}",
    "f32[2,3] multiply(x, c)",
    "f32[2,3] pad(x, z), padding=0_0x0_0",
    "f32[2,3] concatenate(a, b), dimensions={1}",
    "f32[2,3] dot(x, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[2,3] parameter(9)",
]


@pytest.mark.every_value
@pytest.mark.parametrize("region", ["add", "max", "mul"])
@pytest.mark.parametrize("operand", OPERANDS)
def test_reduce(operand: str, region: str) -> None:
    text = f"""HloModule m
{REGIONS}ENTRY e {{
  x = f32[2,3] parameter(0)
  y = f32[3,2] parameter(1)
  v = f32[6] parameter(2)
  w = f32[2] parameter(3)
  h = bf16[2,3] parameter(4)
  a = f32[2,1] parameter(5)
  b = f32[2,2] parameter(6)
  s = f32[3,3] parameter(7)
  one = f32[] constant(2)
  c = f32[2,3] broadcast(one), dimensions={{}}
  z = f32[] constant({"-inf" if region == "max" else "0"})
  p = {operand}
  q = (f32[2]) reduce(p, z), dimensions={{1}}, to_apply={region}
  ROOT r = f32[2] get-tuple-element(q), index=0
}}
""".replace("parameter(9)", "parameter(8)")
    check(text, PASSES["simplify"](), changes=None)
    module = hloopt.parse(text)
    for seed in range(8):
        arrays = inputs(module, seed)
        got = hloopt.compile(module, exact=True).run(arrays)
        assert all(map(identical, got, hloopt.evaluate(module, arrays)))

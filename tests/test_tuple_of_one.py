"""Ops whose result is a tuple of one array: every pass and every executor keeps the tuple."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.pipelines import PASSES
from hloopt.rewrite import PassLog

SUM = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = f32[] add(a, b)
  ROOT t = (f32[]) tuple(s) }
"""
OPS = {
    "reduce": "(f32[6]) reduce(p, z), dimensions={0}, to_apply=add",
    "reduce whole": "(f32[]) reduce(p, z), dimensions={0,1}, to_apply=add",
    "reduce-window": "(f32[20,3]) reduce-window(p, z), window={size=1x2 stride=1x2}, to_apply=add",
    "running": "(f32[20,6]) reduce-window(p, z), window={size=20x1 pad=19_0x0_0}, to_apply=add",
    "single": "(f32[20,6]) reduce-window(p, z), window={size=1x1}, to_apply=add",
    "over all": "(f32[1,1]) reduce-window(p, z), window={size=20x6}, to_apply=add",
    "all-to-all": "(f32[20,6]) all-to-all(p), replica_groups={{0}}",
}


def module_text(op: str, *, taken: bool, fused: bool) -> str:
    """The op as the result, or its element in other ops; in a fusion or not."""
    shape, _, call = op.partition(") ")
    element = shape[1:]
    body = f"p = f32[20,6] parameter(0)\nz = f32[] constant(0)\nr = {shape}) {call}"
    if taken:
        body += f"\ng = {element} get-tuple-element(r), index=0\nROOT n = {element} negate(g)"
    else:
        body = body.replace("\nr =", "\nROOT r =")
    if not fused:
        return f"HloModule m\n{SUM}ENTRY e {{ {body} }}\n"
    result = element if taken else f"{shape})"
    return (
        f"HloModule m\n{SUM}body {{ {body} }}\nENTRY e {{ p = f32[20,6] parameter(0)\n"
        f"ROOT f = {result} fusion(p), kind=kLoop, calls=body }}\n"
    )


@pytest.mark.every_value
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("taken", [False, True], ids=["result", "taken"])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_a_tuple_of_one_array(op: str, taken: bool, fused: bool) -> None:
    """In the interpreter, on the CPU, and after each pass alone."""
    if fused and "all-to-all" in op:
        pytest.skip("a fusion holds no collective op")
    module = hloopt.parse(module_text(op, taken=taken, fused=fused))
    hloopt.verify(module)
    x = np.arange(120, dtype=np.float32).reshape(20, 6)
    (want,) = hloopt.evaluate(module, [x])
    assert np.array_equal(hloopt.compile(module).run([x])[0], want)
    for kind in PASSES.values():
        changed = hloopt.parse(module.to_text())
        kind().run(changed, PassLog())
        hloopt.verify(changed)
        assert np.array_equal(hloopt.evaluate(changed, [x])[0], want), kind.name

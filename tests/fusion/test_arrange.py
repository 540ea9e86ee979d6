"""Operands and results of a fusion in another order."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.fusion.merge import arrange_operands, arrange_results
from hloopt.ir import Module, edit

TEXT = """HloModule m

body {
  p = f32[4] parameter(0)
  q = s32[4] parameter(1)
  c = f32[4] convert(q)
  d = f32[4] subtract(p, c)
  n = s32[4] negate(q)
  ROOT both = (f32[4], s32[4]) tuple(d, n)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = s32[4] parameter(1)
  f = (f32[4], s32[4]) fusion(x, y), kind=kLoop, calls=body
  first = f32[4] get-tuple-element(f), index=0
  second = s32[4] get-tuple-element(f), index=1
  ROOT out = (s32[4], f32[4]) tuple(second, first)
}
"""


def outcome(module: Module) -> list[bytes]:
    """What the module computes."""
    inputs = [np.arange(4, dtype="f4") / 3, np.arange(4, dtype="i4") * 5]
    return [array.tobytes() for array in hloopt.evaluate(module, inputs)]


def test_operands_change_places_with_the_parameters() -> None:
    """The body reads the same through other numbers."""
    module = hloopt.parse(TEXT)
    fusion = module.entry.by_name["f"]
    arrange_operands(fusion, [1, 0])
    hloopt.verify(module)
    assert [operand.name for operand in fusion.operands] == ["y", "x"]
    assert [entry.name for entry in fusion.attributes["calls"].parameters] == ["q", "p"]
    assert [entry.name for entry in fusion.attributes["calls"]][:2] == ["q", "p"]
    assert outcome(module) == outcome(hloopt.parse(TEXT))
    assert hloopt.parse(module.to_text()).to_text() == module.to_text()


def test_results_change_places_with_their_readers() -> None:
    """The shapes follow."""
    module = hloopt.parse(TEXT)
    fusion = module.entry.by_name["f"]
    assert arrange_results(fusion, [1, 0])
    hloopt.verify(module)
    assert str(fusion.shape) == "(s32[4], f32[4])"
    assert module.entry.by_name["first"].attributes["index"] == 1
    assert outcome(module) == outcome(hloopt.parse(TEXT))


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("ROOT out = (s32[4], f32[4]) tuple(second, first)", "ROOT out = (f32[4], s32[4]) copy(f)"),
        TEXT.replace("  f = (", "  ROOT f = (").replace("ROOT out", "out"),
        TEXT.replace("calls=body", "calls=body, output_to_operand_aliasing={{0}: (0, {})}"),
    ],
    ids=["read whole", "the root", "shared buffers"],
)  # fmt: skip
def test_results_that_stay_as_they_are(text: str) -> None:
    """Somebody would see the order."""
    module = hloopt.parse(text)
    before = module.to_text()
    assert not arrange_results(module.entry.by_name["f"], [1, 0])
    assert module.to_text() == before


def test_what_is_no_order_is_refused() -> None:
    """Each number once."""
    body = hloopt.parse(TEXT).computations["body"]
    with pytest.raises(ValueError, match=r"\[0, 0\] is not an order of 2 parameters"):
        edit.permute_parameters(body, [0, 0])

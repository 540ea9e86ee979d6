"""``select-and-scatter-expander``: a window reduction of values and places, and a scatter."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.passes.expand.select_and_scatter_expander import SelectAndScatterExpander
from hloopt.rewrite import PassLog
from tests.passes.proof import check


def pooling(
    shape: str, source: str, window: str, direction: str = "GE", scatter: str = "add"
) -> str:
    name = shape.split("[", maxsplit=1)[0]
    return f"""HloModule pooling

chosen {{
  a = {name}[] parameter(0)
  b = {name}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}
}}

combined {{
  a = {name}[] parameter(0)
  b = {name}[] parameter(1)
  ROOT r = {name}[] {scatter}(a, b)
}}

ENTRY main {{
  x = {shape} parameter(0)
  source = {source} parameter(1)
  init = {name}[] parameter(2)
  ROOT y = {shape} select-and-scatter(x, source, init), window={{{window}}}, select=chosen, scatter=combined
}}
"""


@pytest.mark.every_value
@pytest.mark.parametrize(
    ("dims", "source", "window"),
    [
        ("8", "4", "size=2 stride=2"),
        ("7", "3", "size=3 stride=2"),
        ("5,6", "3,3", "size=3x2 stride=2x2 pad=1_1x0_0"),
        ("4", "6", "size=2 stride=1 pad=2_1"),
        ("3,4", "2,3", "size=2x2"),
        ("2,5,5,3", "2,2,2,3", "size=1x3x3x1 stride=1x2x2x1"),
        ("4", "5", "size=3 pad=1_1 lhs_dilate=2 rhs_dilate=2"),
        ("3", "5", "size=1 pad=1_1"),
        ("0", "3", "size=2 pad=2_2"),
        ("3", "0", "size=4"),
    ],
)
@pytest.mark.parametrize("name", ["f32", "s32"])
def test_every_window(name: str, dims: str, source: str, window: str) -> None:
    """Strides, overlaps, padding and dilation; windows that hold no element at all give nothing."""
    text = pooling(f"{name}[{dims}]", f"{name}[{source}]", window)
    module, log = check(text, SelectAndScatterExpander(), draws=20)
    assert log.hits == {"expand select-and-scatter": 1}
    assert "select-and-scatter" not in {one.opcode for one in module.instructions()}


@pytest.mark.every_value
@pytest.mark.parametrize("direction", ["GE", "GT", "LE", "LT", "EQ", "NE"])
@pytest.mark.parametrize("scatter", ["add", "maximum", "subtract"])
def test_every_selection_and_combination(direction: str, scatter: str) -> None:
    """Whatever is selected, NaN among it, and in whatever order it is combined."""
    text = pooling("f32[9]", "f32[4]", "size=3 stride=2", direction, scatter)
    check(text, SelectAndScatterExpander(), draws=24)


@pytest.mark.parametrize("name", ["bf16", "f16", "f64", "u8", "s64"])
def test_every_type(name: str) -> None:
    """The places are integers, whatever the values are."""
    check(pooling(f"{name}[6]", f"{name}[3]", "size=2 stride=2"), SelectAndScatterExpander())


def test_any_layout() -> None:
    """The result has the layout of the op."""
    text = pooling("f32[4,6]{0,1}", "f32[2,3]{0,1}", "size=2x2 stride=2x2")
    module, _ = check(text, SelectAndScatterExpander())
    assert str(module.entry.result_shape) == "f32[4,6]{0,1}"


def test_one_number_for_all_dimensions() -> None:
    """The window reduction has two inputs, whatever the rank: values and places."""
    text = pooling("f32[2,5,5,3]", "f32[2,2,2,3]", "size=1x3x3x1 stride=1x2x2x1")
    module, _ = check(text, SelectAndScatterExpander(), draws=2)
    (window,) = (one for one in module.instructions() if one.opcode == "reduce-window")
    assert len(window.operands) == 4


def test_a_selection_with_effects_stays() -> None:
    """A region that does more than compare is not written a second time."""
    text = pooling("f32[8]", "f32[4]", "size=2 stride=2").replace(
        "  ROOT r = pred[] compare(a, b), direction=GE",
        '  told = f32[] custom-call(a), custom_call_target="tell", custom_call_has_side_effect=true\n'
        "  ROOT r = pred[] compare(told, b), direction=GE",
    )
    log = PassLog(kinds=frozenset({"missed"}))
    assert not SelectAndScatterExpander().run(hloopt.parse(text, "text"), log)
    assert [remark.reason for remark in log.remarks] == ["told of its selection has effects"]


def test_the_gradient_of_pooling() -> None:
    """The source goes to the first of the largest elements of each window."""
    module = hloopt.parse(pooling("f32[6]", "f32[3]", "size=2 stride=2"), "text")
    arrays = [
        np.array([1, 3, 5, 5, 2, -1], np.float32),
        np.array([10, 20, 30], np.float32),
        np.array(0, np.float32),
    ]
    better = hloopt.optimize(module, "select-and-scatter-expander")
    (got,) = hloopt.evaluate(better, arrays)
    assert list(got) == [0, 10, 20, 0, 30, 0]

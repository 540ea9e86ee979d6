"""``topk-expander``: a stable sort and two slices, to the same values and indices."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.passes.expand.topk_expander import TopkExpander
from hloopt.rewrite import PassLog
from hloopt.types import DTYPES
from tests.passes.proof import check

TYPES = [name for name, kind in DTYPES.items() if kind.is_array and not kind.is_complex]


def topk_text(shape: str, values: str, indices: str, attributes: str) -> str:
    return f"""HloModule largest
ENTRY main {{
  x = {shape} parameter(0)
  ROOT r = ({values}, {indices}) topk(x), {attributes}
}}
"""


@pytest.mark.every_value
@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("name", TYPES)
def test_every_type_in_the_same_order(name: str, largest: str) -> None:
    """NaNs, zeros of both signs and ties come in the order of the op, of any type that has one."""
    text = topk_text(
        f"{name}[2,23]{{1,0}}",
        f"{name}[2,20]{{1,0}}",
        "s32[2,20]{1,0}",
        f"k=20, largest={largest}",
    )
    module, log = check(text, TopkExpander(), draws=4)
    assert log.hits == {"expand topk": 1}
    (sort,) = (one for one in module.instructions() if one.opcode == "sort")
    assert sort.attributes["is_stable"]


@pytest.mark.parametrize(
    ("dims", "k", "order"),
    [
        ((5,), 5, "0"),
        ((5,), 0, "0"),
        ((1,), 1, "0"),
        ((3, 4), 2, "0,1"),
        ((2, 3, 4), 1, "1,0,2"),
        ((0, 4), 2, "1,0"),
        ((2, 0), 0, "1,0"),
    ],
)
def test_every_size_and_layout(dims: tuple[int, ...], k: int, order: str) -> None:
    """All elements, none, and stacks in any layout."""
    whole, kept = (",".join(map(str, (*dims[:-1], last))) for last in (dims[-1], k))
    text = topk_text(
        f"f32[{whole}]{{{order}}}",
        f"f32[{kept}]{{{order}}}",
        f"s32[{kept}]{{{order}}}",
        f"k={k}, largest=true",
    )
    check(text, TopkExpander())


CALL = """HloModule call

greater {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}

ENTRY main {
  x = f32[3,8]{1,0} parameter(0)
  ROOT r = (f32[3,2]{1,0}, s32[3,2]{1,0}) custom-call(x), custom_call_target="TopK", called_computations={greater}
}
"""


def test_the_call() -> None:
    """The custom call is the same, and the comparator that nobody asked goes with it."""
    module, log = check(CALL, TopkExpander())
    assert log.hits == {"expand TopK": 1}
    assert "greater" not in module.computations


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "called_computations",
            "custom_call_has_side_effect=true, called_computations",
            "the call has custom_call_has_side_effect",
        ),
        (
            "(f32[3,2]{1,0}, s32[3,2]{1,0}) custom",
            "(f32[2,2]{1,0}, s32[2,2]{1,0}) custom",
            "is not",
        ),
    ],
)
def test_calls_that_do_something_else_stay(old: str, new: str, reason: str) -> None:
    """A call with a side effect or of other shapes is left alone, and says so."""
    log = PassLog(kinds=frozenset({"missed"}))
    assert not TopkExpander().run(hloopt.parse(CALL.replace(old, new), "text"), log)
    (remark,) = log.remarks
    assert reason in remark.reason


def test_ties_of_many_equal_values() -> None:
    """Of equal elements the one at the lower index comes first."""
    text = topk_text("s8[50]{0}", "s8[9]{0}", "s32[9]{0}", "k=9")
    array = np.tile(np.array([3, 1, 3, 2, 3], np.int8), 10)
    module, _ = check(text, TopkExpander(), given=[[array]])
    _, places = hloopt.evaluate(module, [array])
    assert list(places) == [0, 2, 4, 5, 7, 9, 10, 12, 14]


@pytest.mark.parametrize(
    ("shape", "k", "stays"),
    [
        ("f32[4,1024]", 16, True),
        ("bf16[1024]", 1, True),
        ("f32[4,1023]", 16, False),
        ("f32[4,1024]", 17, False),
        ("s32[4,1024]", 16, False),
        ("f32[2,2,1024]", 16, False),
    ],
)
def test_what_a_library_has(shape: str, k: int, stays: bool) -> None:
    """library=true: a few of many floats, of one array or of several."""
    element, dims = shape.rstrip("]").split("[")
    kept = ",".join((*dims.split(",")[:-1], str(k)))
    text = topk_text(shape, f"{element}[{kept}]", f"s32[{kept}]", f"k={k}, largest=true")
    check(text, TopkExpander(library=True), changes=not stays, draws=1)
    check(text, TopkExpander(), draws=1)


@pytest.mark.parametrize("result", ["(f32[], f32[])", "((f32[], f32[]), f32[])", "()", "f32[]"])
@pytest.mark.parametrize("source", ["f32[]", "f32[2048]{0}", "(f32[], f32[])"])
@pytest.mark.parametrize("target", ["other", "TopK"])
def test_calls_of_any_shape(result: str, source: str, target: str) -> None:
    """What is no array of a row or more is no candidate of a library, nor of the expander."""
    text = (
        f"HloModule m\nENTRY main {{\n x = {source} parameter(0)\n"
        f' ROOT r = {result} custom-call(x), custom_call_target="{target}"\n}}\n'
    )
    assert not TopkExpander(library=True).run(hloopt.parse(text), PassLog())

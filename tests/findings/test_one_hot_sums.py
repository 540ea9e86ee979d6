"""Sums of which one element is not zero: that element is picked, wherever the indices' dimensions are."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import Planner, pipeline_for
from hloopt.findings.one_hot_sums import picking
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.targets import find_target

TEXT = """HloModule sum
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4,6,5] parameter(0)
  ids = s32[{indices}] parameter(1)
  start = f32[] constant({start})
  zeros = f32[4,6,5] broadcast(start), dimensions={{}}
  rows = s32[4,6,5] broadcast(ids), dimensions={{{at}}}
  columns = s32[4,6,5] iota(), iota_dimension={along}
  hit = pred[4,6,5] compare(rows, columns), direction={direction}
  one = f32[4,6,5] convert(hit)
  p = f32[4,6,5] {product}
  ROOT r = f32[{result}] reduce(p, start), dimensions={{{over}}}, to_apply=add
}}
"""
PLAIN = {
    "indices": "4,6",
    "at": "0,1",
    "along": "2",
    "direction": "EQ",
    "product": "multiply(one, x)",
    "start": "0",
    "result": "4,6",
    "over": "2",
}


def candidates(**changes: str) -> tuple[Module, list[FindingCandidate]]:
    """What may be a finding on an H200."""
    module, target = hloopt.parse(TEXT.format(**{**PLAIN, **changes})), find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    return module, list(picking(Subject(module, planner)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"product": "select(hit, x, zeros)"},
        {"indices": "4,5", "at": "0,2", "along": "1", "result": "4,5", "over": "1"},
        {"indices": "6", "at": "1", "result": "4,6"},
        {"indices": "5", "at": "2", "along": "0", "result": "6,5", "over": "0"},
        {"result": "4", "over": "1,2"},
        {"indices": "5", "at": "2", "along": "1", "result": "4", "over": "1,2"},
    ],
    ids=["plain", "select", "middle", "shared", "first", "two-sums", "shared-and-two-sums"],
)
def test_the_element_is_picked(changes: dict[str, str]) -> None:
    """The results are the same, for indices that no element has, too."""
    module, (one,) = candidates(**changes)
    rng = np.random.default_rng(1)
    dims = [int(size) for size in {**PLAIN, **changes}["indices"].split(",")]
    given = [
        rng.normal(size=(4, 6, 5)).astype(np.float32),
        rng.integers(-2, 8, dims, dtype=np.int32),
    ]
    copy = clone_module(module)
    assert one.change(copy, [copy.entry.root])
    hloopt.verify(copy)
    assert "gather" in {instruction.opcode for instruction in copy.instructions()}
    expected, made = hloopt.evaluate(module, given), hloopt.evaluate(copy, given)
    np.testing.assert_allclose(made[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"direction": "LE"},
        {"start": "1"},
        {"product": "add(one, x)"},
        {"result": "6,5", "over": "0"},
    ],
    ids=["range", "start", "added", "other-dimension"],
)
def test_other_sums_are_no_candidates(changes: dict[str, str]) -> None:
    """More than one element, another start, nothing multiplied by zero, a sum over other elements."""
    assert not candidates(**changes)[1]


@pytest.mark.parametrize("product", ["multiply(y{n}, y{n})", "multiply(x, y{n})"])
def test_long_chains_of_products_are_given_up(product: str) -> None:
    """What is read twice is looked at once, and depth does not matter: 2**1500 ways lead to the first factor."""
    lines = "\n  ".join(f"y{n + 1} = f32[4,6,5] {product.format(n=n)}" for n in range(1500))
    text = TEXT.replace("  p = f32[4,6,5] {product}", "  y0 = f32[4,6,5] cosine(x)\n  LINES\n  p = f32[4,6,5] {product}")  # fmt: skip
    given = {**PLAIN, "product": "multiply(y1500, y1500)"}
    module, target = hloopt.parse(text.format(**given).replace("LINES", lines)), find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    assert not list(picking(Subject(module, planner)))

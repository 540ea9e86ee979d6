"""Factors that are scaled before their product."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings.planning import Planner, pipeline_for
from hloopt.findings.scaled_factors import before_products
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.targets import find_target

SHAPES = {"x": (8, 512), "w": (512, 384), "s": (384,)}


def module_of(
    *,
    op: str = "multiply(w, spread)",
    scale: str = "384",
    along: str = "{1}",
    tail: str = "",
    x: str = "8,512",
    kind: str = "f32",
) -> Module:
    """A product of ``x`` and of ``w`` scaled by ``s``, which the first dimension of ``w`` contracts."""
    rows = x.split(",", maxsplit=1)[0]
    return hloopt.parse(f"""HloModule m
ENTRY main {{
  x = {kind}[{x}] parameter(0)
  w = {kind}[512,384] parameter(1)
  s = {kind}[{scale}] parameter(2)
  spread = {kind}[512,384] broadcast(s), dimensions={along}
  scaled = {kind}[512,384] {op}
  {tail or f"ROOT r = {kind}[{rows},384] dot(x, scaled), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"}
}}
""")


NARROW = """narrow = bf16[512,384] convert(scaled)
  y = bf16[8,512] convert(x)
  ROOT r = f32[8,384] dot(y, narrow), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
SWAPPED = "ROOT r = f32[384,8] dot(scaled, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}"


def candidates(module: Module) -> list[FindingCandidate]:
    """What may be a finding on an H200."""
    target = find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    return list(before_products(Subject(module, planner)))


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({}, "its result has 3,072"),
        ({"op": "multiply(spread, w)"}, "its result has 3,072"),
        ({"op": "divide(w, spread)"}, "its result has 3,072"),
        ({"scale": "", "along": "{}"}, "its result has 3,072"),
        ({"scale": "512", "along": "{0}"}, "its other factor %x has 4,096"),
        (
            {"scale": "512", "along": "{0}", "op": "divide(w, spread)"},
            "its other factor %x has 4,096",
        ),
        ({"tail": NARROW}, "its result has 3,072"),
        ({"tail": SWAPPED}, "its result has 3,072"),
    ],
    ids=["columns", "swapped", "divided", "scalar", "rows", "rows divided", "narrowed", "left"],
)
def test_less_is_scaled_for_the_same_result(options: dict[str, str], moved: str) -> None:
    """Of the result along free dimensions, of the other factor along those that are contracted."""
    module = module_of(**options)
    (one,) = candidates(module)
    assert "196,608 elements are scaled before the product" in one.why
    assert moved in one.why
    rng = np.random.default_rng(2)
    given = [
        np.asarray(rng.uniform(0.5, 1.5, each.array.dims), np.float32)
        for each in module.entry.parameters
    ]
    (expected,) = hloopt.evaluate(module, given)
    copy = clone_module(module)
    assert one.change(copy, [copy.entry.by_name["r"]])
    hloopt.verify(copy)
    (made,) = hloopt.evaluate(copy, given)
    np.testing.assert_allclose(made, expected, rtol=2e-2 if "tail" in options else 1e-5)
    parse_pipeline("dce").run(copy)
    scalings = [each for each in copy.entry if each.opcode in ("multiply", "divide")]
    assert scalings
    assert all(each.array.elements <= 4096 for each in scalings)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "512,384", "along": "{0,1}"},
        {"op": "divide(spread, w)"},
        {"op": "add(w, spread)"},
        {"x": "400,512"},
        {"x": "400,512", "scale": "512", "along": "{0}"},
        {"kind": "s32"},
    ],
    ids=["by element", "denominator", "sum", "large result", "large factor", "whole numbers"],
)
def test_other_factors_stay(options: dict[str, str]) -> None:
    """Where nothing smaller could be scaled, or what is done is no scaling."""
    assert not candidates(module_of(**options))


def test_each_of_two_scaled_factors_is_a_candidate_of_its_own() -> None:
    """Its change leaves the other one alone."""
    module = hloopt.parse("""HloModule m
ENTRY main {
  x = f32[64,4096] parameter(0)
  w = f32[4096,64] parameter(1)
  s = f32[64] parameter(2)
  t = f32[64] parameter(3)
  rows = f32[64,4096] broadcast(s), dimensions={0}
  columns = f32[4096,64] broadcast(t), dimensions={1}
  left = f32[64,4096] multiply(x, rows)
  right = f32[4096,64] multiply(w, columns)
  ROOT r = f32[64,64] dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""")
    found = candidates(module)
    assert [one.blocking[0].name for one in found] == ["left", "right"]
    for one, kept in zip(found, ("right", "left"), strict=True):
        copy = clone_module(module)
        assert one.change(copy, [copy.entry.by_name["r"]])
        parse_pipeline("dce").run(copy)
        large = [
            each for each in copy.entry if each.opcode == "multiply" and each.array.elements > 4096
        ]
        assert [each.name for each in large] == [kept]


def test_a_small_factor_is_worth_no_word() -> None:
    """Whatever reads it."""
    text = module_of().to_text().replace("512", "64").replace("384", "64")
    assert not candidates(hloopt.parse(text))

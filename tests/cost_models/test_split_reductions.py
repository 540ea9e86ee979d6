"""Reductions whose results blocks share: priced as the two launches that they have."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.emitters.tree_split import split_parts
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.kernels import select_kernels
from hloopt.ir import Module
from hloopt.kernels.costs import kernel_costs, totals
from hloopt.passes.reductions.tree_rewriter import TreeReductionRewriter
from hloopt.pipelines import optimize_module
from hloopt.rewrite import PassLog
from hloopt.targets import find_gpu

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _reduce(source: str, result: str, dimension: int) -> Module:
    return hloopt.parse(
        f"HloModule m\n{SUM}ENTRY e {{\n x = {source} parameter(0)\n z = f32[] constant(0)\n"
        f" ROOT r = {result} reduce(x, z), dimensions={{{dimension}}}, to_apply=sum\n}}\n"
    )


def _priced(module: Module) -> tuple[int, float]:
    costs = kernel_costs(module, Predictor(model_for(DEFAULT, find_gpu("h200"))))
    total = totals(module, costs)
    assert total.seconds is not None
    return total.launches, total.seconds


@pytest.mark.parametrize(
    ("source", "result", "dimension"),
    [("f32[12544,64]", "f32[64]", 0), ("f32[2000000]", "f32[]", 0), ("f32[4,300000]", "f32[4]", 1)],
)
def test_two_launches_cost_as_the_two_reductions_that_xla_makes(
    source: str, result: str, dimension: int
) -> None:
    """XLA cuts these before it fuses; here it is the kernel that does: within a third of each other."""
    module = _reduce(source, result, dimension)
    launches, seconds = _priced(module)
    cut = _reduce(source, result, dimension)
    assert TreeReductionRewriter(fast_math=True).run(cut, PassLog())
    steps, other = _priced(optimize_module(cut, "priority-fusion", target="h200"))
    assert launches == steps == 2
    assert 0.67 < seconds / other < 1.5


def test_the_kernel_has_the_launches_that_are_priced() -> None:
    module = _reduce("f32[12544,64]", "f32[64]", 0)
    chosen = select_kernels(module, pipeline="O0", target="h200")
    (row,) = [one for one in chosen.rows if one.spec.kernel == "split-reduction"]
    assert len(row.spec.steps) == _priced(module)[0]


@pytest.mark.parametrize(
    ("source", "result", "dimension"),
    [
        (
            "f32[4096,8192]",
            "f32[8192]",
            0,
        ),  # a block has so many columns, and all cores have blocks
        ("f32[4096,1024]", "f32[4096]", 1),
        ("f32[1024,8]", "f32[1024]", 1),  # a warp has several rows
        ("f32[64,8]", "f32[8]", 0),  # a loop for each result
        ("f32[0,8]", "f32[8]", 0),
    ],
)
def test_what_a_block_finishes_is_one_launch(source: str, result: str, dimension: int) -> None:
    assert _priced(_reduce(source, result, dimension))[0] == 1


def test_a_producer_is_priced_in_the_kernel_that_is_split() -> None:
    """Reading for all blocks, not for the few that hold the results: it joins the reduction."""
    text = (
        f"HloModule m\n{SUM}ENTRY e {{\n x = f32[12544,64] parameter(0)\n y = f32[12544,64] negate(x)\n"
        " z = f32[] constant(0)\n ROOT r = f32[64] reduce(y, z), dimensions={0}, to_apply=sum\n}\n"
    )
    module = optimize_module(hloopt.parse(text), "priority-fusion", target="h200")
    assert [one.opcode for one in module.entry] == ["parameter", "fusion"]
    launches, seconds = _priced(module)
    assert launches == 2
    assert seconds < 5e-6


def test_parts_keep_the_cores_busy_with_four_steps_each() -> None:
    target = find_gpu("h200")
    assert split_parts(target, 2, 1024, 392) == 98
    assert split_parts(target, 1000, 1024, 392) == 1
    assert split_parts(target, 2, 1024, 3) == 1

"""Kernels of sorts, as many as XLA compiles for an H200."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.cost_models.sorting import sort_passes
from hloopt.ir import Instruction
from hloopt.targets import find_target


def sort(kind: str, *dims: int, values: int = 1) -> Instruction:
    """The last dimension sorted by the first operand."""
    shape = f"{kind}[{','.join(map(str, dims))}]"
    places = [f"b{at} = {kind}[] parameter({at})" for at in range(2 * values)]
    given = [f"x{at} = {shape} parameter({at})" for at in range(values)]
    names = ", ".join(f"x{at}" for at in range(values))
    result = shape if values == 1 else f"({', '.join([shape] * values)})"
    lines = "\n  ".join
    text = f"""HloModule sorted
less {{
  {lines(places)}
  ROOT l = pred[] compare(b0, b1), direction=LT
}}
ENTRY main {{
  {lines(given)}
  ROOT s = {result} sort({names}), dimensions={{{len(dims) - 1}}}, to_apply=less
}}
"""
    return hloopt.parse(text).entry.root


@pytest.mark.parametrize(
    ("made", "kernels"),
    [
        (sort("f32", 64, 1000, values=2), 1),
        (sort("f32", 64, 5000, values=2), 3),
        (sort("f32", 64, 32000, values=3), 10),
        (sort("f32", 8, 32000, values=5), 15),
        (sort("f32", 8, 32000, values=9), 21),
        (sort("f32", 8, 128256, values=2), 21),
        (sort("f32", 1 << 20, values=2), 45),
        (sort("f32", 8, 1), 1),
    ],
)
def test_kernels_are_those_of_xla(made: Instruction, kernels: int) -> None:
    """Counted in the thunks that XLA writes."""
    assert sort_passes(made) == kernels


def test_each_kernel_reads_and_writes_all() -> None:
    """On a GPU; on the host a sort is one call."""
    long, short = sort("f32", 64, 32768), sort("f32", 512, 4096)
    times = [
        Predictor(model_for(DEFAULT, find_target("h200"))).predict(one) for one in (long, short)
    ]
    assert [one.launches for one in times] == [10, 1]
    assert [(one.blocks, one.threads) for one in times] == [(512, 1024), (512, 1024)]
    assert times[0].seconds == pytest.approx(10 * times[1].seconds, rel=0.05)
    host = Predictor(model_for(DEFAULT, find_target("host"))).predict(long)
    assert host.launches == 1

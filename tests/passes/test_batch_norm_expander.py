"""``batch-norm-expander``: the three ops as sums and products, within rounding."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import hloopt
from hloopt.passes.expand.batch_norm_expander import BatchNormExpander
from hloopt.types import DTYPES
from tests.passes.proof import check

RTOL = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def module_of(opcode: str, shape: str, vector: str, feature: int) -> str:
    counts = {"training": "xvv", "inference": "xvvvv", "grad": "xvvvx"}
    kinds = {"x": shape, "v": vector}
    lines = [f"  p{at} = {kinds[k]} parameter({at})" for at, k in enumerate(counts[opcode])]
    result = shape if opcode == "inference" else f"({shape}, {vector}, {vector})"
    marks = f'epsilon=0.001, feature_index={feature}, metadata={{op_name="norm"}}'
    operands = ", ".join(f"p{at}" for at in range(len(counts[opcode])))
    return "\n".join(
        [
            "HloModule norm",
            "ENTRY main {",
            *lines,
            f"  ROOT r = {result} batch-norm-{opcode}({operands}), {marks}",
            "}",
            "",
        ]
    )


def arrays_of(opcode: str, name: str, dims: tuple[int, ...], feature: int) -> list[np.ndarray]:
    rng, kind = np.random.default_rng(prod(dims)), DTYPES[name].numpy
    x, g = (rng.normal(0.5, 1, dims).astype(kind) for _ in range(2))
    size = dims[feature]
    scale, offset, mean = (rng.normal(0, 1, size).astype(kind) for _ in range(3))
    variance = (rng.random(size) + 0.5).astype(kind)
    return {
        "training": [x, scale, offset],
        "inference": [x, scale, offset, mean, variance],
        "grad": [x, scale, mean, variance, g],
    }[opcode]


@pytest.mark.every_value
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("opcode", ["training", "inference", "grad"])
@pytest.mark.parametrize(
    ("name", "dims", "order", "feature"),
    [
        ("f32", (4, 3, 5), "2,1,0", 2),
        ("f32", (4, 3, 5), "0,2,1", 1),
        ("f64", (3, 7), "1,0", 0),
        ("f16", (8, 4), "1,0", 1),
        ("bf16", (8, 4), "1,0", 1),
        ("f32", (6,), "0", 0),
        ("f32", (1, 3), "1,0", 1),
    ],
)
def test_the_ops_within_rounding(
    name: str, dims: tuple[int, ...], order: str, feature: int, opcode: str, short: bool
) -> None:
    """Every op, type, layout and feature dimension gives the same numbers within rounding."""
    shape = f"{name}[{','.join(map(str, dims))}]{{{order}}}"
    text = module_of(opcode, shape, f"{name}[{dims[feature]}]{{0}}", feature)
    arrays = arrays_of(opcode, name, dims, feature)
    module, log = check(text, BatchNormExpander(short), rtol=RTOL[name], given=[arrays])
    assert log.hits == {f"expand batch-norm-{opcode}": 1}
    kept = [one for one in module.entry if one.opcode != "parameter"]
    assert all(str(one.metadata) == '{op_name="norm"}' for one in kept)
    if DTYPES[name].is_narrow_float:
        assert {one.array.dtype.name for one in kept if one.opcode == "reduce"} <= {"f32"}


@pytest.mark.parametrize("opcode", ["training", "inference", "grad"])
@pytest.mark.parametrize("dims", [(0, 3), (3, 0)])
def test_nothing_to_normalise(opcode: str, dims: tuple[int, ...]) -> None:
    """Arrays without elements, and features without any: the mean of nothing is NaN."""
    shape = f"f32[{dims[0]},{dims[1]}]{{1,0}}"
    text = module_of(opcode, shape, f"f32[{dims[1]}]{{0}}", 1)
    check(text, BatchNormExpander(), rtol=1e-6, given=[arrays_of(opcode, "f32", dims, 1)])


def test_digits_are_kept_where_the_mean_is_large() -> None:
    """The variance of numbers around 4096 keeps its digits, which XLA's short formula loses."""
    rng = np.random.default_rng(0)
    x = (4096 + rng.normal(0, 1, (64, 2))).astype(np.float32)
    one = np.ones(2, np.float32)
    module = hloopt.parse(module_of("training", "f32[64,2]{1,0}", "f32[2]{0}", 1), "text")
    *_, want = hloopt.evaluate(module, [x, one, one])
    *_, kept = hloopt.evaluate(hloopt.optimize(module, "batch-norm-expander"), [x, one, one])
    short = hloopt.optimize(module, "batch-norm-expander{short=true}")
    *_, lost = hloopt.evaluate(short, [x, one, one])
    assert np.abs(kept - want).max() < 1e-5 < 1e-2 < np.abs(lost - want).max()

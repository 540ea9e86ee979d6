"""``ragged-dot-expander``: a dot and masks, for every part the ragged dimension can play."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.passes.expand.ragged_dot_expander import RaggedDotExpander
from hloopt.types import DTYPES
from tests.passes.proof import check

FREE = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
LAST_GROUP = (
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={0}, rhs_group_dims={2}"
)
FREE_BATCH = (
    "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, "
    "lhs_ragged_dims={1}, rhs_group_dims={0}"
)
TWO_FREE = (
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={1}, rhs_group_dims={0}"
)
CONTRACTING = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
CONTRACTING_BATCH = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, "
    "lhs_ragged_dims={2}"
)
TWO_CONTRACTING = "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}, lhs_ragged_dims={2}"
BATCH = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, "
    "lhs_ragged_dims={0}"
)
TWO_BATCH = (
    "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, "
    "lhs_ragged_dims={1}"
)
CASES = [
    ("7,4", "3,4,5", "3", "7,5", FREE),
    ("7,4", "4,5,3", "3", "7,5", LAST_GROUP),
    ("2,7,4", "3,2,4,5", "3", "2,7,5", FREE_BATCH),
    ("2,7,4", "3,2,4,5", "2,3", "2,7,5", FREE_BATCH),
    ("2,7,4", "3,4,5", "3", "2,7,5", TWO_FREE),
    ("2,7,4", "3,4,5", "2,3", "2,7,5", TWO_FREE),
    ("4,7", "7,5", "3", "3,4,5", CONTRACTING),
    ("2,4,7", "2,7,5", "3", "3,2,4,5", CONTRACTING_BATCH),
    ("2,4,7", "2,7,5", "2,3", "3,2,4,5", CONTRACTING_BATCH),
    ("4,2,7", "7,2,5", "2,3", "3,4,5", TWO_CONTRACTING),
    ("7,2,4", "7,4,5", "3", "7,2,5", BATCH),
    ("2,7,4", "2,7,4", "2,3", "2,7", TWO_BATCH),
    ("7,4", "1,4,5", "1", "7,5", FREE),
    ("0,4", "3,4,5", "3", "0,5", FREE),
]


def ragged(
    lhs: str, rhs: str, sizes: str, result: str, attributes: str, name: str = "f32", out: str = ""
) -> str:
    return f"""HloModule ragged
ENTRY main {{
  x = {name}[{lhs}] parameter(0)
  y = {name}[{rhs}] parameter(1)
  n = s32[{sizes}] parameter(2)
  ROOT z = {out or name}[{result}] ragged-dot(x, y, n), {attributes}
}}
"""


def arrays_of(lhs: str, rhs: str, sizes: str, name: str, seed: int) -> list[np.ndarray]:
    rng, kind = np.random.default_rng(seed), DTYPES[name]
    x, y = (
        rng.integers(-3, 4, [int(size) for size in dims.split(",")]).astype(kind.numpy)
        for dims in (lhs, rhs)
    )
    groups = rng.integers(0, 5, [int(size) for size in sizes.split(",")]).astype(np.int32)
    return [x, y, groups]


@pytest.mark.every_value
@pytest.mark.parametrize(("lhs", "rhs", "sizes", "result", "attributes"), CASES)
@pytest.mark.parametrize("name", ["f32", "s32"])
def test_every_part_of_the_ragged_dimension(
    lhs: str, rhs: str, sizes: str, result: str, attributes: str, name: str
) -> None:
    """Free, contracting and batch; groups for all or for each index before; groups that are too long."""
    text = ragged(lhs, rhs, sizes, result, attributes, name)
    given = [arrays_of(lhs, rhs, sizes, name, seed) for seed in range(4)]
    module, log = check(text, RaggedDotExpander(), rtol=1e-6, given=given)
    assert log.hits == {"expand ragged-dot": 1}
    opcodes = [one.opcode for one in module.instructions()]
    assert "ragged-dot" not in opcodes
    assert opcodes.count("dot") <= 1


@pytest.mark.parametrize(
    ("name", "out"),
    [("bf16", "f32"), ("f16", "f16"), ("f64", "f64"), ("s8", "s32"), ("c64", "c64")],
)
@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "attributes"),
    [("7,4", "3,4,5", "7,5", FREE), ("4,7", "7,5", "3,4,5", CONTRACTING)],
)
def test_every_type(name: str, out: str, lhs: str, rhs: str, result: str, attributes: str) -> None:
    """The dot is of the op's types; so is the result."""
    text = ragged(lhs, rhs, "3", result, attributes, name, out)
    given = [arrays_of(lhs, rhs, "3", name, 1)]
    check(text, RaggedDotExpander(), rtol=1e-2, given=given)


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "attributes"),
    [("7,4", "3,4,5", "7,5", FREE), ("4,7", "7,5", "3,4,5", CONTRACTING)],
)
def test_infinities_stay_in_their_group(lhs: str, rhs: str, result: str, attributes: str) -> None:
    """An infinity of one group makes no NaN in another."""
    arrays = arrays_of(lhs, rhs, "3", "f32", 2)
    arrays[1].reshape(-1)[-1] = np.inf
    arrays[0] = np.abs(arrays[0]) + 1
    arrays[2] = np.array([2, 3, 2], np.int32)
    text = ragged(lhs, rhs, "3", result, attributes)
    module, _ = check(text, RaggedDotExpander(), rtol=1e-6, given=[arrays])
    (got,) = hloopt.evaluate(module, arrays)
    assert np.isinf(got).any()
    assert not np.isnan(got).any()


@pytest.mark.parametrize("sizes", [[1, -1, 1], [-3, 9, 2], [2, 2, -4]])
@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "attributes"),
    [("7,4", "3,4,5", "7,5", FREE), ("4,7", "7,5", "3,4,5", CONTRACTING)],
)
def test_a_negative_size_is_an_empty_group(
    lhs: str, rhs: str, result: str, attributes: str, sizes: list[int]
) -> None:
    """It takes nothing from the groups around it."""
    arrays = arrays_of(lhs, rhs, "3", "f32", 2)
    arrays[2] = np.array(sizes, np.int32)
    text = ragged(lhs, rhs, "3", result, attributes)
    module, _ = check(text, RaggedDotExpander(), rtol=1e-6, given=[arrays])
    empty = [*arrays[:2], np.maximum(arrays[2], 0)]
    assert np.array_equal(*(hloopt.evaluate(module, given)[0] for given in (arrays, empty)))


def test_precision_and_algorithm_go_over() -> None:
    """What the op asks of its products the dot asks, too."""
    asked = ", operand_precision={highest,highest}, algorithm=dot_f32_f32_f32"
    module, _ = check(
        ragged("7,4", "3,4,5", "3", "7,5", FREE + asked),
        RaggedDotExpander(),
        rtol=1e-6,
        given=[arrays_of("7,4", "3,4,5", "3", "f32", 0)],
    )
    (dot,) = (one for one in module.instructions() if one.opcode == "dot")
    assert str(dot.attributes["operand_precision"]) == "{highest,highest}"
    assert dot.attributes["algorithm"] == "dot_f32_f32_f32"

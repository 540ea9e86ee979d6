"""``cholesky-expander`` and ``triangular-solve-expander``: loops and dots, within rounding."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.expand.cholesky_expander import CholeskyExpander
from hloopt.passes.expand.triangular_solve_expander import TriangularSolveExpander
from hloopt.rewrite import Pipeline
from hloopt.types import DTYPES
from tests.passes.proof import check

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

RTOL = {"f32": 1e-4, "f64": 1e-11, "c64": 1e-4, "c128": 1e-11, "f16": 2e-2, "bf16": 8e-2}
TRANSPOSITIONS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def opcodes(module: Module) -> set[str]:
    return {instruction.opcode for instruction in module.instructions()}


def numbers(name: str, dims: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(len(dims) + sum(dims))
    return rng.normal(size=dims) + (1j * rng.normal(size=dims) if name.startswith("c") else 0)


def definite(name: str, dims: tuple[int, ...], lower: bool) -> Array:
    """Positive definite matrices; NaN in the triangle that is not to be read."""
    root = numbers(name, dims)
    square = root @ np.swapaxes(root.conj(), -1, -2) / max(1, dims[-1]) + 2 * np.eye(dims[-1])
    read = np.tril(np.ones(dims[-2:])) if lower else np.triu(np.ones(dims[-2:]))
    return np.where(read, square, np.nan).astype(DTYPES[name].numpy)


def shape_of(name: str, dims: tuple[int, ...], order: str = "") -> str:
    layout = f"{{{order}}}" if order else ""
    return f"{name}[{','.join(map(str, dims))}]{layout}"


def cholesky_text(shape: str, lower: bool) -> str:
    return f"""HloModule factor
ENTRY main {{
  a = {shape} parameter(0)
  ROOT l = {shape} cholesky(a), lower={str(lower).lower()}, metadata={{op_name="factor"}}
}}
"""


@pytest.mark.every_value
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("name", "dims", "block"),
    [
        ("f32", (7, 7), 64),
        ("f32", (2, 7, 7), 3),
        ("f32", (4, 4), 1),
        ("f64", (2, 2, 5, 5), 2),
        ("c64", (5, 5), 2),
        ("c128", (2, 4, 4), 64),
        ("f16", (3, 3), 64),
        ("bf16", (3, 3), 64),
        ("f32", (1, 1), 64),
        ("f32", (0, 3, 3), 64),
        ("f32", (2, 0, 0), 64),
    ],
)
def test_factors_within_rounding(name: str, dims: tuple[int, ...], block: int, lower: bool) -> None:
    """Only the named triangle is read, the other one of the result is zero, whatever the block."""
    text = cholesky_text(shape_of(name, dims), lower)
    given = [[definite(name, dims, lower)]]
    module, log = check(text, CholeskyExpander(block), rtol=RTOL[name], given=given)
    assert log.hits == {"expand cholesky": 1}
    assert "cholesky" not in opcodes(module)
    new = [one for one in module.instructions() if one.name != "a"]
    assert all(
        str(one.metadata) == '{op_name="factor"}' for one in new if one.opcode != "parameter"
    )


@pytest.mark.parametrize("order", ["0,1", "1,0"])
def test_factors_in_any_layout(order: str) -> None:
    """Operand and result keep their layout."""
    text = cholesky_text(shape_of("f32", (4, 4), order), lower=True)
    module, _ = check(
        text, CholeskyExpander(), rtol=1e-4, given=[[definite("f32", (4, 4), lower=True)]]
    )
    assert str(module.entry.result_shape) == f"f32[4,4]{{{order}}}"


@pytest.mark.parametrize("block", [1, 2, 64])
@pytest.mark.parametrize("place", range(4))
def test_a_matrix_that_is_not_definite_is_nan(block: int, place: int) -> None:
    """A pivot that is zero or negative makes its own matrix NaN, and no other of the stack."""
    matrices = np.stack([np.eye(4), np.eye(4), np.eye(4)]).astype(np.float32)
    matrices[0, place, place] = 0
    matrices[2, place, place] = -1
    text = cholesky_text("f32[3,4,4]", lower=True)
    module, _ = check(text, CholeskyExpander(block), rtol=1e-6, given=[[matrices]])
    (got,) = hloopt.evaluate(module, [matrices])
    assert np.isnan(got[[0, 2]]).all()
    assert np.array_equal(got[1], np.eye(4))


def solve_text(
    a: str, b: str, left: bool, lower: bool, unit: bool, transposition: str = "NO_TRANSPOSE"
) -> str:
    flags = f"left_side={left}, lower={lower}, unit_diagonal={unit}".lower()
    return f"""HloModule solve
ENTRY main {{
  a = {a} parameter(0)
  b = {b} parameter(1)
  ROOT x = {b} triangular-solve(a, b), {flags}, transpose_a={transposition}
}}
"""


def system(
    name: str, size: int, count: int, batch: tuple[int, ...], left: bool, lower: bool, unit: bool
) -> list[Array]:
    """A triangle with NaN where it is not to be read, and right-hand sides."""
    kind = DTYPES[name].numpy
    matrix = numbers(name, (*batch, size, size)) / (2 * max(1, size)) + 2 * np.eye(size)
    every, shift = np.ones((size, size)), 1 if unit else 0
    read = np.tril(every, -shift) if lower else np.triu(every, shift)
    sides = numbers(name, (*batch, size, count) if left else (*batch, count, size))
    return [np.where(read, matrix, np.nan).astype(kind), sides.astype(kind)]


@pytest.mark.every_value
@pytest.mark.parametrize(
    ("left", "lower", "unit", "transposition"),
    list(product((True, False), (True, False), (True, False), TRANSPOSITIONS)),
)
@pytest.mark.parametrize(
    ("name", "size", "count", "batch", "block"),
    [("c64", 5, 2, (), 2), ("f32", 4, 1, (2, 1), 64)],
)
def test_every_flag(
    name: str, size: int, count: int, batch: tuple[int, ...], block: int,
    left: bool, lower: bool, unit: bool, transposition: str,
) -> None:  # fmt: skip
    """Sides, triangles, unit diagonals and transpositions; nothing else of the matrix is read."""
    arrays = system(name, size, count, batch, left, lower, unit)
    a, b = (shape_of(name, array.shape) for array in arrays)
    text = solve_text(a, b, left, lower, unit, transposition)
    module, log = check(text, TriangularSolveExpander(block), rtol=RTOL[name], given=[arrays])
    assert log.hits == {"expand triangular-solve": 1}
    assert "triangular-solve" not in opcodes(module)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("name", "size", "count", "block"),
    [("f64", 9, 3, 4), ("f16", 3, 2, 64), ("bf16", 3, 2, 64), ("c128", 3, 1, 1), ("f32", 1, 3, 64),
     ("f32", 0, 2, 64), ("f32", 3, 0, 64)],
)  # fmt: skip
def test_every_type_and_size(name: str, size: int, count: int, block: int, lower: bool) -> None:
    """Blocks that divide the size and those that do not, one row, and none."""
    arrays = system(name, size, count, (), True, lower, unit=False)
    a, b = (shape_of(name, array.shape) for array in arrays)
    text = solve_text(a, b, True, lower, unit=False)
    check(text, TriangularSolveExpander(block), rtol=RTOL[name], given=[arrays])


def test_layouts_of_a_system() -> None:
    """Columns first in the matrix, rows first in the sides, and the result like these."""
    arrays = system("f32", 4, 3, (), True, True, unit=False)
    text = solve_text("f32[4,4]{0,1}", "f32[4,3]{0,1}", True, True, unit=False)
    module, _ = check(text, TriangularSolveExpander(), rtol=1e-4, given=[arrays])
    assert str(module.entry.result_shape) == "f32[4,3]{0,1}"


def test_a_zero_on_the_diagonal_divides() -> None:
    """There is no error: infinities and NaNs stand where the op has them."""
    matrix = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 2]], np.float32)
    sides = np.array([[1, 1], [2, 1], [3, np.inf]], np.float32)
    text = solve_text("f32[3,3]", "f32[3,2]", True, True, unit=False)
    check(text, TriangularSolveExpander(), given=[[matrix, sides]])


def test_rows_to_come_are_not_touched_by_an_infinity() -> None:
    """An infinite right-hand side reaches only the rows that depend on it."""
    matrix = np.tril(np.ones((3, 3), np.float32))
    sides = np.array([[1], [2], [np.inf]], np.float32)
    text = solve_text("f32[3,3]", "f32[3,1]", True, True, unit=False)
    check(text, TriangularSolveExpander(), given=[[matrix, sides]])


@pytest.mark.parametrize("expander", [CholeskyExpander, TriangularSolveExpander])
def test_a_block_has_a_row(
    expander: type[CholeskyExpander | TriangularSolveExpander],
) -> None:
    """A block of nothing is refused with the option's value."""
    with pytest.raises(UsageError, match="block must be at least 1, got 0"):
        expander(block=0)


@pytest.mark.parametrize("kind", [CholeskyExpander, TriangularSolveExpander])
def test_matrices_up_to_a_size_stay(kind: type[CholeskyExpander | TriangularSolveExpander]) -> None:
    """``above`` leaves matrices of so many rows to a kernel, and expands larger ones."""
    module = hloopt.parse(kind.example)
    Pipeline((kind(above=4),)).run(module)
    assert kind.opcodes & opcodes(module)
    Pipeline((kind(above=3),)).run(module)
    assert not kind.opcodes & opcodes(module)

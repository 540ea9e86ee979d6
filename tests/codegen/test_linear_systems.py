"""Cholesky factors and triangular systems."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.products import module_of, shape


def _solve(kind: str, rows: int, columns: int, left: bool, **flags: str) -> tuple[str, list[str]]:
    dims = [2, rows, columns] if left else [2, columns, rows]
    words = {"left_side": str(left).lower(), "transpose_a": "NO_TRANSPOSE", **flags}
    attributes = ", ".join(f"{name}={value}" for name, value in words.items())
    text = f"{shape(kind, dims)} triangular-solve(%0, %1), {attributes}"
    return text, [shape(kind, [2, rows, rows]), shape(kind, dims)]


def test_every_kind_of_system() -> None:
    """Left and right, lower and upper, transposed, adjoint, with ones on the diagonal; real and complex."""
    systems = [
        _solve(kind, 7, 5, left, lower=lower, unit_diagonal=unit, transpose_a=transposed)
        for number, (left, lower, unit, transposed) in enumerate(
            product(
                (True, False),
                ("true", "false"),
                ("true", "false"),
                ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
            )
        )
        for kind in (("c64", "f32")[number % 2 :][:1] if transposed != "ADJOINT" else ("c128",))
    ]
    check_kernel(module_of(systems), "triangular-solve", twice=False, everywhere=False)


def test_sizes_of_systems() -> None:
    """One row, more right sides than a block has, few right sides of many rows."""
    systems = [
        _solve("f32", *size, True, lower="true") for size in ((1, 3), (20, 70), (60, 1), (1, 1))
    ]
    check_kernel(module_of(systems), "triangular-solve")


def test_call_of_cublas() -> None:
    """cuBLAS's call says the same in its options; its scratch space is left alone."""
    text = """HloModule call

ENTRY main {
  a = f32[6,6] parameter(0)
  b = f32[6,3] parameter(1)
  r = (f32[6,3], s8[16]) custom-call(a, b), custom_call_target="__cublas$triangularSolve", backend_config={"triangular_solve_options":{"left_side":true,"lower":false,"unit_diagonal":false,"transpose_a":"TRANSPOSE"}}
  ROOT x = f32[6,3] get-tuple-element(r), index=0
}
"""
    check_kernel(text, "triangular-solve", twice=False, everywhere=False)


@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky(lower: str) -> None:
    """Factors in shared memory and in scratch memory; a matrix that is not positive definite gives NaN."""
    cases = [("f32", 6), ("c64", 30), ("f64", 90), ("f32", 1)]
    text = module_of(
        [
            (f"{kind}[2,{n},{n}] cholesky(%0), lower={lower}", [f"{kind}[2,{n},{n}]"])
            for kind, n in cases
        ]
    )
    draw = np.random.default_rng(1)
    inputs = []
    for kind, n in cases:
        part = draw.standard_normal((2, n, n)) + 1j * (kind == "c64") * draw.standard_normal(
            (2, n, n)
        )
        matrix = part @ np.swapaxes(part.conj(), -1, -2) + np.eye(n)
        if n == 6:
            matrix[1, 3, 3] = -1
        carrier = {"f32": np.float32, "c64": np.complex64, "f64": np.float64}[kind]
        inputs.append((matrix if kind == "c64" else matrix.real).astype(carrier))
    assert np.isnan(hloopt.evaluate(hloopt.parse(text), inputs)[0][1]).all()
    first = lower == "true"
    check_kernel(text, "cholesky", inputs=inputs, twice=first, everywhere=first)


def test_large_systems_are_refused() -> None:
    """A system of more rows than the limit is refused with both figures."""
    module = hloopt.parse(module_of([_solve("f32", 2000, 1, True, lower="true")]))
    instruction = next(found for found in module.entry if found.opcode == "triangular-solve")
    site = Site(region_of(instruction), find_target("h200"), Limits())
    verdict = find_kernel("triangular-solve").fits(site)
    assert (verdict.reason, verdict.option) == (
        "2000 rows, a block has at most 1024",
        "linear_system_size",
    )


def test_tiles_that_cannot_be() -> None:
    """A tile that cannot be is a usage error that says what would do."""
    text = module_of([_solve("f32", 64, 200, True, lower="true")])
    for tile, message in (
        ({"threads": 40, "columns": 1}, "a multiple of 16, 16 to 1024"),
        ({"threads": 64, "columns": 200}, "columns=200; shared memory holds 1 to 96"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(text, "triangular-solve", tile)

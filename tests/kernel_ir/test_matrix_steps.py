"""What statements of matrices and copies are printed as, where they assemble, and what the table says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hloopt.backends.nvrtc import CompilationError, compile_cuda, nvrtc_for
from hloopt.codegen.program import KernelProgram
from hloopt.errors import DeviceError
from hloopt.kernel_ir.expressions import Array, Var
from hloopt.kernel_ir.listing import listing
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS, capability_of, device_functions
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.statements import Commit, Copy, For, LoadMatrices, MultiplyMatrices, Wait
from hloopt.kernel_ir.types import INT, UINT, USHORT
from tests.helpers.warp_kernels import NUMPY, THREAD, fragments, multiply_kernel, program

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module")
def assembler() -> None:
    """Skip where NVRTC is not installed."""
    try:
        nvrtc_for("sm_75")
    except DeviceError as error:
        pytest.skip(str(error))


def capability(architecture: str) -> tuple[int, int]:
    number = int(architecture.removeprefix("sm_"))
    return number // 10, number % 10


def assembles(made: KernelProgram, architectures: Sequence[str]) -> None:
    for architecture in architectures:
        (resources,) = compile_cuda(made.text, architecture).resources.values()
        assert not resources.spill_stores


@pytest.mark.parametrize("name", MATRIX_STEPS)
def test_every_element_is_in_one_register(name: str) -> None:
    """The registers of the lanes hold each element of the three matrices once."""
    step = MATRIX_STEPS[name]
    sizes = ((step.m, step.k), (step.k, step.n), (step.m, step.n))
    for held, size in zip(fragments(name), sizes, strict=True):
        places = [tuple(at) for lane in held for register in lane for at in register]
        assert sorted(places) == list(np.ndindex(*size))
    each = 4 // np.dtype(NUMPY[step.dtype]).itemsize if step.dtype != "f64" else 1
    counts = (step.left * each, step.right * each, step.sums)
    assert [32 * one for one in counts] == [rows * columns for rows, columns in sizes]


@pytest.mark.parametrize("name", MATRIX_STEPS)
def test_steps_assemble_where_the_table_says(assembler: None, name: str) -> None:
    """From the first device on that has one; before it the assembler refuses."""
    made, step = multiply_kernel(MATRIX_STEPS[name]), MATRIX_STEPS[name]
    (function,) = (part.function for part in made.parts if part.function)
    assert capability_of(function.body) == step.capability
    assembles(made, [one for one in ARCHITECTURES if capability(one) >= step.capability])
    for architecture in ARCHITECTURES:
        if capability(architecture) < step.capability:
            with pytest.raises(CompilationError, match="refuses the program"):
                compile_cuda(made.text, architecture)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_loads_and_copies_assemble_everywhere(assembler: None, count: int) -> None:
    """Devices without asynchronous copies make plain ones."""

    def write(scope: Scope, memory: dict[str, Array]) -> None:
        tile = scope.array(USHORT, (256,), "tile", space="shared", align=16)
        for size, at in ((16, THREAD * 8), (8, THREAD * 4), (4, THREAD * 2)):
            place, source = tile.address(at), memory["given"].address(at)
            scope.add(Copy(place, source, size, THREAD < 31))
        scope.add(Commit())
        scope.add(Wait(0))
        scope.barrier()
        for transposed in (False, True):
            registers = tuple(scope.variable(UINT, "r") for _ in range(count))
            scope.add(LoadMatrices(registers, tile.address(THREAD * 8), transposed))
            for at, register in enumerate(registers):
                scope.set(memory["result"][THREAD * count + at], register, "+")

    arrays = {"given": (USHORT, 256, True), "result": (UINT, 32 * count, False)}
    assembles(program(arrays, write), ARCHITECTURES)


def test_what_the_listing_says() -> None:
    """A line for each."""
    tile = Array("tile", USHORT, (256,), "shared")
    given = Array("given", USHORT, (256,), "global")
    r, s, x = Var("r", UINT), Var("s", UINT), Var("x", INT)
    statements = (
        Copy(tile.address(x), given.address(x), 16),
        Copy(tile.address(x), given.address(x), 16, x < 3),
        Commit(),
        Wait(1),
        LoadMatrices((r, s), tile.address(x), is_transposed=True),
        MultiplyMatrices("m16n8k8.f16", (r, s, r, s), (r, s), (r,)),
    )
    made = multiply_kernel(MATRIX_STEPS["m16n8k8.f16"]).parts[0].function
    assert made is not None
    _, *lines = listing(type(made)("k", (), statements, 32))
    assert [line.strip() for line in lines] == [
        "copy 16 bytes &tile[x] from &given[x]",
        "copy 16 bytes &tile[x] from &given[x] where x < 3",
        "commit copies",
        "wait but for 1 groups of copies",
        "load matrices (r, s) from &tile[x] transposed",
        "multiply m16n8k8.f16 (r, s, r, s) += (r, s) * (r)",
    ]
    assert list(device_functions((For(x, x, x, statements),))) == [
        "copy_async<16>",
        "copy_async<16>",
        "commit_async",
        "wait_async<1>",
        "load_matrices_x2<true>",
        "multiply_m16n8k8_f16",
    ]
    assert capability_of(statements) == (7, 5)
    assert capability_of(statements[:4]) == (0, 0)

"""Kernels of matrix operations, written in the kernel IR, and fragments of matrices as PTX lays them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from hloopt.codegen.device import Uses
from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.kernel_ir.expressions import Array, Cast, Expr, Var
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS, MatrixStep, device_functions
from hloopt.kernel_ir.scope import Names, Scope
from hloopt.kernel_ir.statements import Function, MultiplyMatrices, Parameter
from hloopt.kernel_ir.types import INT, UINT, Type
from hloopt.kernel_ir.verifier import verify

__all__ = ["NUMPY", "THREAD", "fragments", "multiply_kernel", "program"]

THREAD: Expr = Cast(INT, Var("threadIdx.x", UINT))
NUMPY: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "f64": np.float64,
}
Matrix = np.ndarray[Any, Any]


def program(
    arrays: dict[str, tuple[Type, int, bool]],
    write: Callable[[Scope, dict[str, Array]], None],
    *,
    threads: int = 32,
    checked: bool = True,
) -> KernelProgram:
    """A program of the kernel ``k``: of each array its type, how many elements, and whether it is only read."""
    memory = {
        name: Array(name, kind, (count,), "global") for name, (kind, count, _) in arrays.items()
    }
    scope, uses = Scope(Names(None, frozenset(arrays))), Uses()
    write(scope, memory)
    parameters = tuple(
        Parameter(memory[name], True, is_read) for name, (_, _, is_read) in arrays.items()
    )
    function = Function("k", parameters, scope.statements(), threads)
    if checked:
        verify(function)
    for name in device_functions(function.body):
        uses.add(name.partition("<")[0])
    for kind, _, _ in arrays.values():
        if kind.kind == "struct":
            uses.add(kind.name)
    return KernelProgram(uses.source(), uses.names(), (ProgramPart((), function),))


def multiply_kernel(step: MatrixStep) -> KernelProgram:
    """One step of one warp: registers of each lane are read from memory, sums are written back."""

    def write(scope: Scope, memory: dict[str, Array]) -> None:
        registers = {}
        for name, count in (("sums", step.sums), ("left", step.left), ("right", step.right)):
            kind = memory[name].element
            registers[name] = own = scope.array(kind, (count,), f"own_{name}")
            for at in range(count):
                scope.set(own[at], memory[name][THREAD * count + at])
        sums = tuple(registers["sums"][at] for at in range(step.sums))
        left = tuple(registers["left"][at] for at in range(step.left))
        right = tuple(registers["right"][at] for at in range(step.right))
        scope.add(MultiplyMatrices(step.name, sums, left, right))
        for at, register in enumerate(sums):
            scope.set(memory["sums"][THREAD * step.sums + at], register)

    return program(
        {
            "left": (step.register, 32 * step.left, True),
            "right": (step.register, 32 * step.right, True),
            "sums": (step.sum, 32 * step.sums, False),
        },
        write,
    )


def fragments(name: str) -> tuple[list[list[Any]], list[list[Any]], list[list[Any]]]:
    """Which element (row, column) each lane has in each register and place of the three operands."""
    step = MATRIX_STEPS[name]
    each = 8 // np.dtype(NUMPY[step.dtype]).itemsize if step.dtype == "f64" else 0
    each = each or 4 // np.dtype(NUMPY[step.dtype]).itemsize
    left, right, sums = [], [], []
    for lane in range(32):
        g, t = lane // 4, lane % 4
        left.append(
            [
                [(g + 8 * (r & 1), each * t + 4 * each * (r >> 1) + e) for e in range(each)]
                for r in range(step.left)
            ]
        )
        right.append(
            [[(each * t + 4 * each * r + e, g) for e in range(each)] for r in range(step.right)]
        )
        sums.append([[(g + 8 * (r >> 1), 2 * t + (r & 1))] for r in range(step.sums)])
    return left, right, sums

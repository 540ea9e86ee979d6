"""Products of small matrices that a warp's matrix unit makes in one step, and which functions statements are.

Lane l of a warp is ``g = l / 4``, ``t = l % 4``.  A register of 32 bits holds e = 32 / (bits of an
element) neighbours, the first lowest; one of f64 is an element (e = 1).  With rows and columns of the left
operand (m, k), the right one (k, n) and the sums (m, n)::

    left[r]    row g + 8 (r % 2), columns e t + 4 e (r / 2) + 0 .. e - 1     (of m = 8: row g)
    right[r]   rows e t + 4 e r + 0 .. e - 1, column g
    sums[r]    row g + 8 (r / 2), column 2 t + r % 2

(PTX ISA, "Matrix Fragments".)  So ``LoadMatrices`` of 4 at row ``lane % 16``, bytes from ``16 (lane / 16)``
on, is a left operand of 16 rows of 32 bytes whatever its elements; of 2 at row ``lane % 8``, bytes from
``16 (lane / 8)`` on, a right one whose columns lie so; transposed of 2 at row ``lane``, a right one of 16 rows
of 16-bit elements.  The sums of two neighbouring products, rounded to 16 bits, are a left operand 16 deep:
``pack(c[0], c[1])``, ``pack(c[2], c[3])``, then those of the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.kernel_ir.statements import (
    Commit,
    Copy,
    LoadMatrices,
    MultiplyMatrices,
    Statement,
    Wait,
    walk,
)
from hloopt.kernel_ir.types import DOUBLE, FLOAT, INT, UINT, Type

__all__ = ["MATRIX_STEPS", "MatrixStep", "capability_of", "device_functions"]


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """A product of m by k and k by n elements of ``dtype``.

    left, right, sums  registers of a lane
    register, sum      their types; products are exact and rounded when they are added
    capability         of the first device that has it
    """

    m: int
    n: int
    k: int
    dtype: str
    left: int
    right: int
    sums: int
    register: Type
    sum: Type
    capability: tuple[int, int]

    @property
    def name(self) -> str:
        """The key of the table, such as ``m16n8k16.bf16``."""
        return f"m{self.m}n{self.n}k{self.k}.{self.dtype}"


_STEPS = (
    MatrixStep(16, 8, 16, "f16", 4, 2, 4, UINT, FLOAT, (8, 0)),
    MatrixStep(16, 8, 16, "bf16", 4, 2, 4, UINT, FLOAT, (8, 0)),
    MatrixStep(16, 8, 8, "f16", 2, 1, 4, UINT, FLOAT, (7, 5)),
    MatrixStep(16, 8, 8, "tf32", 4, 2, 4, UINT, FLOAT, (8, 0)),
    MatrixStep(16, 8, 32, "s8", 4, 2, 4, UINT, INT, (8, 0)),
    MatrixStep(8, 8, 4, "f64", 1, 1, 2, DOUBLE, DOUBLE, (8, 0)),
)

MATRIX_STEPS: Final[Mapping[str, MatrixStep]] = MappingProxyType(
    {step.name: step for step in _STEPS}
)


def capability_of(body: Sequence[Statement]) -> tuple[int, int]:
    """The least compute capability of a device that has the matrix steps of statements; (0, 0) of none.

    Asynchronous copies need none: devices without them copy at once.
    """
    found = [(0, 0)]
    for statement in walk(body):
        if isinstance(statement, MultiplyMatrices):
            found.append(MATRIX_STEPS[statement.step].capability)
        elif isinstance(statement, LoadMatrices):
            found.append((7, 5))
    return max(found)


def device_functions(body: Sequence[Statement]) -> Iterator[str]:
    """The functions of the device library that statements are printed as, template arguments included."""
    for statement in walk(body):
        match statement:
            case Copy():
                yield f"copy_async<{statement.bytes}>"
            case Commit():
                yield "commit_async"
            case Wait():
                yield f"wait_async<{statement.groups}>"
            case LoadMatrices():
                transposed = str(statement.is_transposed).lower()
                yield f"load_matrices_x{len(statement.registers)}<{transposed}>"
            case MultiplyMatrices():
                yield f"multiply_{statement.step.replace('.', '_')}"

"""What parts of a plan take on a target."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.cost import Cost
from hloopt.cost_models.device_times import LAUNCH_NS
from hloopt.cost_models.gemm import GemmSizes, best_time
from hloopt.cost_models.host import kernel_costs
from hloopt.cost_models.roofline import multiply_rate
from hloopt.numbers import seconds
from hloopt.targets import Target
from hloopt.types import DType

__all__ = ["AlgebraPrices", "gained_time"]

_HOST_STEP: Final = 2e-7
"""Seconds of a kernel besides its work, where a launch is a call of a function."""


_TURNED: Final = 3e-9
"""Seconds of an element that the host reads along columns and writes along rows, or the other way round (1 to
6 ns in XLA, NumPy and native code, 256 to 1,024 rows of f32)."""
_MIRRORED: Final = (1e-9, 10e-9)
"""Seconds of an element that is written a second time, transposed, and put beside others along both sides: of
a matrix that the cache has room for, and of a larger one (9 ns in native code, up to 20 in XLA and NumPy, 512
to 1,024 rows of f32)."""
_SOLVING: Final = 0.5
"""Of the rate of other arithmetic what a library gets out of triangular systems: half of a product's, with
OpenBLAS on one core, for 1,024 rows and as many right sides."""


def gained_time(before: float, after: float) -> str:
    """``48.2 => 2.13 us``, for remarks."""
    old, new = seconds(before), seconds(after)
    number, unit = old.split()
    return f"{number if new.endswith(f' {unit}') else old} => {new}"


class AlgebraPrices:
    """Seconds of parts of a plan on a target: memory and arithmetic overlap, products and sums are launched.

    The same rates price the instructions that are there and those that would be made.  ``algorithm`` is that
    of the products.
    """

    def __init__(self, target: Target, dtype: DType, algorithm: object = "") -> None:
        self.target = target
        self._dtype = dtype
        self._known: dict[tuple[int, int, int, int], float] = {}
        self._memory = float(target.memory_bandwidth)
        self._cache = 1e9 * kernel_costs()["l2_bytes_per_ns"]
        self.launch = LAUNCH_NS * 1e-9 if target.has_threads else _HOST_STEP
        self.bytes = dtype.bits / 8
        self.is_narrow = dtype.is_narrow_float
        self.flops = target.peak_flops(dtype.name) or target.peak_flops("f32") or 1e12
        self._product_rate = multiply_rate(dtype.name, target, str(algorithm))
        self.product_flops = self._product_rate or self.flops

    def product(self, multiply_adds: int, elements: int) -> float:
        """Of a matrix product that reads and writes so many elements."""
        return self.launch + max(2 * multiply_adds / self.product_flops, self._moved(elements))

    def matrix_product(self, batch: int, rows: int, columns: int, depth: int) -> float:
        """Of products of matrices of these sides, by the model of libraries where the target has one."""
        sides = (batch, rows, columns, depth)
        found = self._known.get(sides)
        if found is None:
            found = self._known[sides] = self._matrix_product(*sides)
        return found

    def _matrix_product(self, batch: int, rows: int, columns: int, depth: int) -> float:
        given, made = batch * (rows + columns) * depth, batch * rows * columns
        peak = self._product_rate
        if not self.target.has_threads or not peak:
            return self.product(made * depth, given + made)
        sizes = GemmSizes(batch, rows, columns, depth, self._dtype.name, self.bytes)
        moved = (int(elements * self.bytes) for elements in (given, made))
        cost = Cost(2 * made * depth, 0, *moved)
        return self.launch + best_time(sizes, cost, self.target, peak).exec_ns * 1e-9

    def solve(self, matrices: int, rows: int, columns: int) -> float:
        """Of triangular systems of so many rows, each for so many right sides."""
        moved = self._moved(matrices * (rows * rows // 2 + 2 * rows * columns))
        work = matrices * rows * rows * columns
        return self.launch + max(work / (_SOLVING * self.flops), moved)

    def factor(self, matrices: int, rows: int, *, cholesky: bool = False) -> float:
        """Of LU factors, or Cholesky factors, which take half the arithmetic."""
        work = (1 if cholesky else 2) * matrices * rows**3 / 3
        return self.launch + max(work / (_SOLVING * self.flops), self._moved(matrices * rows**2))

    def sum(self, elements: int) -> float:
        """Of adding up an array."""
        return self.launch + max(elements / self.flops, self._moved(elements))

    def elementwise(self, elements: int) -> float:
        """Of an op on each element, which becomes part of a kernel."""
        return elements / self.flops + self._moved(elements)

    def turned(self, elements: int) -> float:
        """Of an op on each element that reads one operand along its columns."""
        return self.elementwise(elements) if self.target.has_threads else elements * _TURNED

    def mirrored(self, elements: int, whole: int) -> float:
        """Of writing so many elements transposed, too, as the other half of a matrix of ``whole`` elements."""
        if self.target.has_threads:
            return 2 * self.elementwise(elements)
        return elements * _MIRRORED[2 * whole * self.bytes > self.target.l2_size]

    def _moved(self, elements: int) -> float:
        """Of reading or writing so many; what is small stays in the caches of a processor."""
        moved = elements * self.bytes
        if self.target.has_threads or moved > self.target.l2_size:
            return moved / self._memory
        return moved / self._cache

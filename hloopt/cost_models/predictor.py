"""How long each kernel of a module takes: the one price that every report shows.

A cost model prices what XLA writes as code, ``gemm`` the products that libraries run, ``host-products`` those
of the host, and the roofline what no model covers: other libraries, other devices, the rest of the host.
Scatters take as long as their updates wait for each other at least (``contention.py``).
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Final

from hloopt.cost_models.collectives import LINKS, collective_run_time
from hloopt.cost_models.contention import waiting_ns
from hloopt.cost_models.gemm import NAME as GEMM
from hloopt.cost_models.gemm import gemm_run_time
from hloopt.cost_models.host_products import NAME as HOST_PRODUCTS
from hloopt.cost_models.host_products import host_product_time
from hloopt.cost_models.matrix_units import NAME as MATRIX_UNITS
from hloopt.cost_models.matrix_units import matrix_unit_run_time
from hloopt.cost_models.model import Bound, CostModel, RunTime
from hloopt.cost_models.registry import ROOFLINE
from hloopt.cost_models.roofline import Roofline, product_of
from hloopt.cost_models.sorting import in_passes
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["Prediction", "Predictor"]

_BY_ROOFLINE: Final = frozenset({
    "linear", "sort", "random", "collective", "async", "host", "custom", "unknown",
})  # fmt: skip
"""Families of ops that libraries, other devices or the host run: XLA's models price code that XLA writes."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long one run takes, in seconds, its launches included; ``by`` a model or the roofline."""

    seconds: float
    bound: Bound
    by: str
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    compute_seconds: float = 0.0
    blocks: int = 0
    threads: int = 0
    coalesced: bool = True
    launches: int = 1


class Predictor:
    """Times of kernels on a model's target; ``roofline`` as the model prices products, too.

    launch_seconds  of one kernel, whatever it does
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.target = model.target
        self.launch_seconds = model.launch_ns * 1e-9
        self._roofline = Roofline(model.target)

    def run_time(self, kernel: Instruction) -> tuple[RunTime, str]:
        """How long a kernel runs, without its launch, and by which model."""
        if product_of(kernel) is not None:
            least = self._roofline.rates(kernel)
            if self.model.name == ROOFLINE:
                return least, ROOFLINE
            found = matrix_unit_run_time(kernel, self.target)
            if found is not None:
                return found, MATRIX_UNITS
            found = gemm_run_time(kernel, self.target)
            if found is not None:
                return found, GEMM
            found = host_product_time(kernel, least, self.target)
            return (least, ROOFLINE) if found is None else (found, HOST_PRODUCTS)
        linked = collective_run_time(kernel, self.target)
        if linked is not None and self.model.name != ROOFLINE:
            return linked, LINKS
        if kernel.op.family not in _BY_ROOFLINE:
            priced = self.model.launched_run_time(kernel)
            if isfinite(priced.exec_ns):  # else no tiling of a Triton kernel fits this device
                return self._in_full(kernel, priced), self.model.name
        return self._in_full(kernel, self._roofline.rates(kernel)), ROOFLINE

    def _in_full(self, kernel: Instruction, priced: RunTime) -> RunTime:
        """No model knows that a sort is many kernels, and that updates of a scatter meet."""
        if self.target.has_threads:
            priced = in_passes(kernel, priced, self.model.launch_ns)
        waiting = waiting_ns(kernel, self.target)
        if not waiting:
            return priced
        return replace(priced, exec_ns=max(priced.exec_ns, waiting), waiting_ns=waiting)

    def predict(self, kernel: Instruction) -> Prediction:
        """How long one launch of a kernel takes."""
        found, by = self.run_time(kernel)
        launch_ns = self.model.launch_ns
        return Prediction(
            launch_ns * 1e-9 + found.exec_ns * 1e-9,
            found.bound(launch_ns),
            by,
            found.read_ns * 1e-9,
            found.write_ns * 1e-9,
            found.compute_ns * 1e-9,
            found.blocks,
            found.threads,
            found.coalesced,
            found.launches,
        )

"""The GPU: memory, launches, graphs, libraries and timing, through CuPy; the only room that imports it."""

from __future__ import annotations

from hloopt.backends.cuda.device import CudaDevice
from hloopt.backends.cuda.driver import check_gpu

__all__ = ["CudaDevice", "check_gpu"]

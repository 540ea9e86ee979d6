"""The roofline: what kernels take at least, by the rates that every description of a device has."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hloopt.analysis.backend_config import (
    backend_kind,
    custom_name,
    product_algorithm,
    read_backend_config,
)
from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.emitters.kind import has_kernel
from hloopt.analysis.matrix_factors import ALGORITHMS
from hloopt.cost_models.attention import ATTENTION
from hloopt.cost_models.model import NOTHING, PairCostModel, RunTime
from hloopt.ir import Instruction
from hloopt.ir.walk import slots_of
from hloopt.ops.traits import CONTRACTING
from hloopt.targets.target import Target
from hloopt.types import ArrayShape, leaves, record_of

__all__ = ["Roofline", "multiply_rate", "product_of", "product_rate"]

_LIBRARIES: Final = ("__cublas$", "__cudnn$")
_TRITON: Final = "__triton"


class Roofline(PairCostModel):
    """A lower bound for any device: bytes and flops over its rates, whichever takes longer.

    A kernel reads and writes at the memory's bandwidth and computes at the rate for its element type, that of
    the units for matrices where it holds a matrix product; both overlap fully.  There are no caches, no
    occupancy and no latency, and what no rate is known for (vectors on TPUs) computes in no time.  Launches
    are counted as XLA counts them for GPUs, a microsecond each.  Kernels of TPUs were never compared with it.

    A producer in its user's kernel is computed as often as its elements are used there, and its operands are
    read as often; what both read is read once.  (S. Williams et al., "Roofline", CACM 52(4), 2009.)
    """

    name: ClassVar[str] = "roofline"
    for_any_device: ClassVar[bool] = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._costs: dict[Instruction, Cost] = {}

    def run_time(self, instruction: Instruction) -> RunTime:
        """Of one op or fusion as a separate kernel; zero for what no kernel runs."""
        return self.rates(instruction) if has_kernel(instruction) else NOTHING

    def rates(self, instruction: Instruction) -> RunTime:
        """As ``run_time``, for what libraries, other devices or the host run, too."""
        cost = self._cost(instruction)
        return self._time(_flops(cost), cost.bytes_read, cost.bytes_written, instruction)

    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime:
        """Of a producer in its user's kernel; ``multi_output``: the producer's results are written, too.

        Raises ``ValueError`` for a consumer that does not use the producer.
        """
        used = self.usage.used(producer, consumer)
        first, second = self._cost(producer), self._cost(consumer)
        operands = {consumer.operands[slot] for slot in slots_of(producer, consumer)}
        between = sum(one.shape.byte_size for one in operands) * min(used, 1.0)
        read = max(second.bytes_read - between, 0) + used * first.bytes_read
        read -= self._shared(producer, consumer, used)
        written = second.bytes_written + (first.bytes_written if multi_output else 0)
        kernel = producer if product_of(producer) is not None else consumer
        flops = int(used * _flops(first)) + _flops(second)
        return self._time(flops, max(int(read), 0), written, kernel)

    def grown(self, fusion: Instruction) -> None:
        """Producers have been moved into a fusion, in place of parameters; nothing else in it has changed."""
        self._costs.pop(fusion, None)
        self.usage.grown(fusion)

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._costs.pop(instruction, None)
        super().forget(instruction)

    def _cost(self, instruction: Instruction) -> Cost:
        known = self._costs.get(instruction)
        if known is None:
            known = self._costs[instruction] = instruction_cost(instruction)
        return known

    def _shared(self, producer: Instruction, consumer: Instruction, used: float) -> float:
        """Bytes of operands that both read: of each the smaller reading."""
        theirs = dict(zip(consumer.operands, self.usage.of(consumer).operands, strict=True))
        mine = dict(zip(producer.operands, self.usage.of(producer).operands, strict=True))
        return sum(
            min(used * use.bytes, theirs[operand].bytes, operand.shape.byte_size)
            for operand, use in mine.items()
            if operand in theirs
        )

    def _time(self, flops: int, read: int, written: int, kernel: Instruction) -> RunTime:
        target, product = self.target, product_of(kernel)
        bandwidth = target.memory_bandwidth * 1e-9
        reading, writing = read / bandwidth, written / bandwidth
        peak = (
            target.peak_flops(_dtype(kernel))
            if product is None
            else product_rate(kernel, product, target)
        )
        compute = flops / peak * 1e9 if peak else 0.0
        return RunTime(
            flops, read, written, reading, writing, compute, max(reading + writing, compute)
        )


def product_of(kernel: Instruction) -> Instruction | None:
    """The matrix product or convolution that a kernel is made for."""
    if kernel.opcode == "fusion":
        if custom_name(kernel) == ATTENTION:
            return None  # of several products, and of what is between them
        body = kernel.calls
        return next((entry for entry in body if entry.opcode in CONTRACTING), None)
    target = kernel.custom_call_target
    return kernel if kernel.opcode in CONTRACTING or target.startswith(_LIBRARIES) else None


def product_rate(kernel: Instruction, product: Instruction, target: Target) -> float | None:
    """Of the product that a kernel is made for; None where nothing is known.

    It is ``multiply_rate``, but of kernels that XLA made: it takes TF32 where the precision is not the highest.
    """
    dtype = product.operands[0].array.dtype.name
    algorithm = product_algorithm(product)
    if algorithm not in ALGORITHMS and _is_of_xla(kernel) and not _is_highest(product):
        return target.peak_flops(dtype, "matrix")
    return multiply_rate(dtype, target, algorithm)


def multiply_rate(dtype: str, target: Target, algorithm: str = "") -> float | None:
    """Flops a second of products of an element type; None where nothing is known.

    f32 is multiplied as f32 on plain units, unless the ``algorithm`` of a dot says otherwise.
    """
    if dtype != "f32":
        return target.peak_flops(dtype, "matrix")
    rounded = ALGORITHMS.get(algorithm)
    if rounded is not None:
        peak = target.peak_flops(rounded.unit, "matrix")
        return peak / rounded.products if peak else None
    return target.peak_flops(dtype, "scalar") or target.peak_flops(dtype, "matrix")


def _is_of_xla(kernel: Instruction) -> bool:
    return kernel.opcode == "custom-call" or (
        kernel.opcode == "fusion" and (backend_kind(kernel) or "").startswith(_TRITON)
    )


def _is_highest(product: Instruction) -> bool:
    if product.opcode != "custom-call":
        words = record_of(product.attributes, "operand_precision", tuple) or ()
        return any(word.lower() == "highest" for word in words)
    settings: Any = read_backend_config(product) or {}
    for name in ("gemm_backend_config", "precision_config", "operand_precision"):
        settings = settings.get(name, settings) if isinstance(settings, dict) else None
    return isinstance(settings, list) and "HIGHEST" in settings


def _flops(cost: Cost) -> int:
    return cost.flops + cost.transcendentals


def _dtype(kernel: Instruction) -> str:
    """The type a kernel computes in: that of its first operand, of its result where it has none."""
    shapes = [leaf for operand in kernel.operands for leaf in leaves(operand.shape)]
    shapes += list(leaves(kernel.shape))
    return next((leaf.dtype.name for leaf in shapes if isinstance(leaf, ArrayShape)), "f32")

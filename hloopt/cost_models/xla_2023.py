"""XLA's GPU cost model of spring 2023, by which FusionMerger and multi-output fusion decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from hloopt.analysis.emitters.kind import has_kernel
from hloopt.cost_models.counting import OpCounting, narrow
from hloopt.cost_models.device_times import of_seconds
from hloopt.cost_models.fused_loops import fused_loop_run_time
from hloopt.cost_models.model import NOTHING, Comparison, CostModel, RunTime
from hloopt.cost_models.usage import OperandUse, UsageAnalysis
from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.targets import Target
from hloopt.types import elements_of

__all__ = ["COUNTING", "Xla2023"]

_L2_SPEEDUP: Final = 2.5
_L1_SPEEDUP: Final = 8.0
_L1_BYTES_PER_CORE: Final = 2048

# Clock cycles an element.  An opcode that is named here takes three for the types it does not name.
_CYCLES: Final[Mapping[str, Mapping[str, int]]] = op_table({
    "add": {"f64": 120, "c128": 240},
    "divide": {"s32": 80, "f64": 3200, "c128": 20000},
    "exponential": {"f64": 2200},
    "log": {"f32": 45, "f64": 1000},
    "multiply": {"f64": 120, "c128": 650},
    "power": {"f64": 11000, "c128": 28000},
    "rsqrt": {"f64": 900},
    "sqrt": {"f64": 1100, "c128": 25000},
    "tanh": {"f32": 30, "f64": 2000},
}, ELEMENTWISE, "as its row says")  # fmt: skip
_CYCLES_OF_OTHERS: Final[Mapping[str, int]] = MappingProxyType({"f64": 10, "c128": 20})


def _table() -> Mapping[tuple[str, str], int]:
    table = {
        (opcode, dtype): cycles
        for opcode, row in OPS.items()
        if row.is_elementwise and opcode not in _CYCLES
        for dtype, cycles in _CYCLES_OF_OTHERS.items()
    }
    for opcode, row in _CYCLES.items():
        table |= {(opcode, dtype): cycles for dtype, cycles in row.items()}
    return MappingProxyType(table)


COUNTING: Final = OpCounting(
    cycles=_table(),
    concatenate=0,
    uneven_concatenate=0,
    repeats_init=False,
    bitcasts_keep_indices=False,
)
"""How XLA's GpuHloCostAnalysis counted then: one table for every device, made on an RTX A6000."""


class Xla2023(CostModel):
    """XLA of spring 2023: only the producer is priced, the longer of computing and moving bytes.

    The formulas are those of XLA's ``GpuPerformanceModel::EstimateRunTimes`` (gpu_performance_model.cc) and
    ``GpuHloCostAnalysis`` of April 2023.  Reads go through the caches their operand fits in; nothing is said
    about coalescing or occupancy.  Numbers are rounded where XLA rounds them: to f32, and times to a quarter of
    a nanosecond.  Computing takes no time on a device whose lanes are not known (TPUs).
    """

    name: ClassVar[str] = "xla-2023"

    def __init__(self, target: Target) -> None:
        super().__init__(target, UsageAnalysis(COUNTING))
        self._bandwidth = narrow(target.memory_bandwidth)

    def run_time(self, instruction: Instruction) -> RunTime:
        """By the terms that a producer is priced by where it stays a kernel."""
        if not has_kernel(instruction):
            return NOTHING
        whole = fused_loop_run_time(instruction, self.target)
        if whole is not None:
            return whole
        usage = self.usage.of(instruction)
        read = self._read_operands_ns(usage.operands, 1.0)
        write = self._write_ns(usage.bytes_written)
        compute = self._compute_ns(usage.flops, elements_of(instruction.shape))
        return RunTime(
            usage.flops,
            sum(use.bytes for use in usage.operands),
            usage.bytes_written,
            read,
            write,
            compute,
            max(compute, read + write),
        )

    def compare(
        self,
        producer: Instruction,
        consumers: Sequence[Instruction],
        *,
        multi_output: bool = False,
    ) -> Comparison:
        """What the consumers themselves take is on neither side."""
        usage, alone = self.usage.of(producer), self.run_time(producer)
        unfused = self.launch_ns * (len(consumers) + 1) + alone.exec_ns
        fused = self.launch_ns * len(consumers)
        elements, written = elements_of(producer.shape), usage.bytes_written
        for consumer in consumers:
            used = self.usage.used(producer, consumer)
            compute = self._compute_ns(_share(usage.flops, used), _share(elements, used))
            read = _share(written, used)
            fused += max(compute, self._read_operands_ns(usage.operands, used))
            unfused += self._read_ns(min(written, read), read)
        if multi_output:
            fused += alone.write_ns
        return Comparison(unfused / 1000, fused / 1000)

    def grown(self, fusion: Instruction) -> None:
        """Producers have been moved into a fusion, in place of parameters; nothing else in it has changed."""
        self.usage.grown(fusion)

    def _compute_ns(self, flops: int, elements: int) -> float:
        """A thread computes one element; as many as there are lanes do so at once."""
        lanes = min(elements, self.target.cores * self.target.fpus_per_core)
        rate = narrow(narrow(2e9 * self.target.clock_ghz) * lanes)
        return of_seconds(narrow(narrow(flops) / rate)) if rate else 0.0

    def _read_operands_ns(self, uses: Sequence[OperandUse], used: float) -> float:
        """Reading all operands of a kernel of which the share ``used`` is computed."""
        return sum(self._read_operand_ns(use, used) for use in uses)

    def _read_operand_ns(self, use: OperandUse, used: float) -> float:
        size = int(narrow(narrow(use.bytes) / use.utilization)) if use.utilization else 0
        return self._read_ns(min(size, use.bytes), _share(use.bytes, used))

    def _read_ns(self, different: int, total: int) -> float:
        """Reading ``total`` bytes, of which ``different`` are different ones."""
        speed = self._bandwidth
        if different < self.target.l2_size:
            speed = narrow(speed * _L2_SPEEDUP)
            if different < _L1_BYTES_PER_CORE * self.target.cores:
                speed = narrow(speed * _L1_SPEEDUP)
        return of_seconds(narrow(narrow(total) / speed))

    def _write_ns(self, written: int) -> float:
        return of_seconds(narrow(narrow(written) / self._bandwidth))


def _share(count: int, used: float) -> int:
    """A part of a number, as XLA computes it in f32."""
    return int(narrow(narrow(count) * used))

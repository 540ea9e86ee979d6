"""The host's processor, one core of it: what the kernels of the device ``native`` take.

A kernel that computes C additions (``host.toml``), reads operands o and writes W bytes takes

    compute = C / (clock lanes), times ``branching`` where its loop branches
    read    = sum over o of  net(o) / bandwidth + (total(o) - net(o)) / first-level bandwidth
    write   = W / bandwidth
    exec    = compute + read + write

``total(o)`` are bytes with repeated reads, each element at least as wide as a lane, which it is widened to;
``net(o)`` are those of the array without repetition.  ``bandwidth`` is that of the first- or
second-level cache where all that the kernel reads and writes fits into it, else the memory's.  A core that is
busy with arithmetic loads and stores by the same instructions, so nothing overlaps.  A launch is a function
call.  Of sorts and everything else that NumPy's executor runs, only bytes and flops are known.

A producer in its user's kernel is computed as often as its elements are used there, as XLA's models count it
(``usage.py``); what it makes is neither written nor read, and an operand of both is read once.

A scatter changes an array in place, in a fusion too: of that only what the updates reach is read and written.

A fusion that goes on with what it reduces computes each op once: native keeps the rows, or cuts the fusion.

A loop branches where it pads rows: the place of an element in its row decides whether it is computed.  (Loops
are cut where the parts of a concatenate meet.)  All figures are measured by ``tests/benchmarks/host_costs.py``.

Matrix products that a BLAS makes take

    time = max(flops / peak, bytes / bandwidth) + 2 * (A + B) / second-level cache + 2 * C / bandwidth of C

A BLAS copies blocks of both matrices into panels in the order in which its innermost loop reads them, which
pays where each element is used often: K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", ACM TOMS 34(3), 2008.  The panels are written to the second-level cache and read from it.  The
result is set to zero before, then read and written again (OpenBLAS, ``driver/level3/level3.c``), in the
second-level cache where it fits.  So a product too thin to compute much moves its bytes three times.

The device ``native`` calls a BLAS for products with a side below ``LEAST_SIDE``, unless they are small: others
are kernels of its own, which write their results once, and several side by side are not priced here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from hloopt.analysis.emitters.kind import has_kernel
from hloopt.cost_models.contention import scatter_root
from hloopt.cost_models.counting import OpCounting
from hloopt.cost_models.gemm import product_shape
from hloopt.cost_models.kept_times import KeptTimes
from hloopt.cost_models.model import NOTHING, RunTime
from hloopt.cost_models.roofline import product_of
from hloopt.cost_models.usage import Usage
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import slots_of
from hloopt.ops import OPS
from hloopt.targets import Target
from hloopt.types import DTYPES, ArrayShape, TupleShape

__all__ = [
    "BLAS",
    "LEAST_SIDE",
    "LONGEST_WINDOW",
    "MOST_PRODUCTS",
    "HostModel",
    "additions",
    "blas_run_time",
    "counting",
    "kernel_costs",
]

BLAS: Final = "blas"
"""The name of this model in reports."""

LEAST_SIDE: Final = 8
"""Rows and columns from which native's tiles are full enough."""
MOST_PRODUCTS: Final = 48**3
"""Up to here a loop beats a call of BLAS, which takes 2 us to get there (measured with f32 and AVX-512)."""

LONGEST_WINDOW: Final = 64
"""Elements of a window that a loop reads for each result: longer ones are usually cumulative, else NumPy's."""
_RUNNING_CYCLES: Final = (0.5, 0.2)
"""Clock cycles of an element of those: sums along the last dimension, by pieces, and of lines side by side
(of 0.23 to 0.29 and 0.07 to 0.31 ns measured at 3 GHz, memory included, f32[64,8192], f32[8192,64] and
f32[360,160,120])."""

_TYPES: Final = frozenset({"f32", "f64", "c64", "c128"})
_LANE_BITS: Final = 32
_FILE: Final = Path(__file__).parent / "host.toml"


class HostModel(KeptTimes):
    """A core of the host's processor: vectors, two caches, launches that cost a function call.

    Flops are additions that take as long.  For the target host; any description with lanes and a clock does.
    """

    name: ClassVar[str] = "host"
    for_any_device: ClassVar[bool] = True

    def __init__(self, target: Target) -> None:
        lanes = max(1, target.fpus_per_core)
        last, others = _RUNNING_CYCLES
        running = round(last * lanes), round(others * lanes)
        rules = replace(counting(scalars=False), running=running, longest_window=LONGEST_WINDOW)
        super().__init__(target, rules)
        costs = kernel_costs()
        self.launch_ns = costs["step_ns"]
        self._branching = costs["branching"]
        self._l1, self._l2 = costs["l1_bytes_per_ns"], costs["l2_bytes_per_ns"]
        self._memory = target.memory_bandwidth * 1e-9
        self._lanes = target.clock_ghz * lanes
        self._forks: dict[Instruction, bool] = {}

    def _alone(self, instruction: Instruction) -> RunTime:
        if not has_kernel(instruction):
            return NOTHING
        if _reduces_inside(instruction):
            return self.run_once(instruction)
        usage = self._usage(instruction)
        reads = _reads(instruction, usage)
        return self._time(usage.flops, reads, usage.bytes_written, self._branches(instruction))

    def run_once(self, instruction: Instruction) -> RunTime:
        """Of a kernel that computes each op of a fusion once and keeps what other ops read again."""
        usage, ops = self._usage(instruction), (instruction,)
        if instruction.opcode == "fusion":
            ops = tuple(instruction.attributes["calls"])
        flops = sum(self.usage.op(op).flops for op in ops)
        reads = {one: (net, net) for one, (net, _) in _reads(instruction, usage).items()}
        return self._time(flops, reads, usage.bytes_written, branches=False)

    def _usage(self, instruction: Instruction) -> Usage:
        usage = self.usage.of(instruction)
        scatter = scatter_root(instruction) if instruction.opcode == "fusion" else None
        if scatter is None:
            return usage
        (array,) = scatter.fold_inputs
        if array.opcode != "parameter" or len(array.users) > 1:
            return usage
        changed, number = self.usage.op(scatter).written, array.parameter_number
        uses = list(usage.operands)
        uses[number] = replace(uses[number], bytes=min(changed, uses[number].bytes))
        return replace(usage, bytes_written=changed, operands=tuple(uses))

    def _forget_times(self, instruction: Instruction) -> None:
        super()._forget_times(instruction)
        self._forks.pop(instruction, None)

    def _fused(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> RunTime:
        slots = slots_of(producer, consumer)
        if not slots:
            raise ValueError(f"{consumer.name} does not use {producer.name}")
        first, second = self._usage(producer), self._usage(consumer)
        uses = [second.operands[slot].utilization for slot in slots]
        used = max(uses) if isinstance(producer.shape, TupleShape) else sum(uses)
        reads = _reads(consumer, second)
        for slot in slots:
            reads.pop(consumer.operands[slot], None)
        for operand, (net, total) in _reads(producer, first).items():
            both_net, both_total = reads.get(operand, (0, 0))
            times = max(1.0, used) if total else 0.0
            size = max(operand.shape.byte_size, net)
            # What both read at the same place is loaded once.
            shared = min(total * times, both_total)
            reads[operand] = (
                min(size, max(net, both_net)),
                int(total * times) + both_total - int(shared),
            )
        written = second.bytes_written + (first.bytes_written if multi_output else 0)
        flops = int(first.flops * used) + second.flops
        branches = self._branches(consumer) or self._branches(producer)
        return self._time(flops, reads, written, branches)

    def _time(
        self,
        flops: int,
        reads: dict[Instruction, tuple[int, int]],
        written: int,
        branches: bool,
    ) -> RunTime:
        net = sum(one for one, _ in reads.values())
        total = sum(max(pair) for pair in reads.values())
        bandwidth = self._bandwidth(net + written)
        read_ns = net / bandwidth + (total - net) / self._l1
        write_ns = written / bandwidth
        compute_ns = flops / self._lanes * (self._branching if branches else 1.0)
        spent = compute_ns + read_ns + write_ns
        return RunTime(flops, total, written, read_ns, write_ns, compute_ns, spent)

    def _bandwidth(self, held: int) -> float:
        """Bytes a nanosecond where so many are read and written in all."""
        if held <= self.target.l1_per_core:
            return self._l1
        return self._l2 if held <= self.target.l2_size else self._memory

    def _branches(self, instruction: Instruction) -> bool:
        known = self._forks.get(instruction)
        if known is None:
            ops: Computation | tuple[Instruction] = (instruction,)
            if instruction.opcode == "fusion":
                ops = instruction.attributes["calls"]
            known = self._forks[instruction] = any(
                op.opcode == "pad" and _pads_rows(op) for op in ops
            )
        return known


def _reduces_inside(kernel: Instruction) -> bool:
    """Whether a fusion goes on with what it reduces: native reduces first, or cuts it there."""
    if kernel.opcode != "fusion":
        return False
    body: Computation = kernel.calls
    return any(
        op.opcode == "reduce"
        and any(user is not body.root or user.opcode != "tuple" for user in op.users)
        for op in body
    )


def counting(*, scalars: bool = True) -> OpCounting:
    """How the host's kernels compute; ``scalars`` says whether reads of single numbers count."""
    return OpCounting(
        cycles=additions(),
        default_cycles=1,
        concatenate=1,
        uneven_concatenate=1,
        repeats_init=False,
        scalars=scalars,
    )


def _reads(instruction: Instruction, usage: Usage) -> dict[Instruction, tuple[int, int]]:
    """Bytes of each operand without and with repeated reads, the latter as wide as a lane."""
    found: dict[Instruction, tuple[int, int]] = {}
    for operand, use in zip(instruction.operands, usage.operands, strict=True):
        net, total = min(use.bytes, operand.shape.byte_size), _widened(operand, use.bytes)
        if operand in found:
            net, total = max(net, found[operand][0]), total + found[operand][1]
        found[operand] = net, total
    return found


def _widened(operand: Instruction, count: int) -> int:
    """What loading so many bytes takes in a cache: each element fills a lane."""
    shape = operand.shape
    if not isinstance(shape, ArrayShape) or not 0 < shape.dtype.bits < _LANE_BITS:
        return count
    return count * _LANE_BITS // shape.dtype.bits


def _pads_rows(pad: Instruction) -> bool:
    """Whether the fastest dimension of more than one element is padded."""
    shape = pad.array
    order = shape.layout.minor_to_major if shape.layout else range(shape.rank - 1, -1, -1)
    minor = next((dimension for dimension in order if shape.dims[dimension] > 1), None)
    if minor is None:
        return False
    padding = pad.attributes["padding"][minor]
    return bool(padding.low or padding.high or padding.interior)


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text())


def kernel_costs() -> Mapping[str, float]:
    """What is known of kernels as a whole, by the names in the file."""
    return MappingProxyType(_tables()["kernels"])


@cache
def additions() -> Mapping[tuple[str, str], int]:
    """Additions of f32 that an element of an elementwise op takes as long as, by opcode and element type."""
    tables = _tables()
    types, ops = tables["types"], tables["ops"]
    return MappingProxyType(
        {
            (opcode, dtype): ops.get(opcode, {}).get(dtype, types.get(dtype, 1))
            for opcode, row in OPS.items()
            if row.is_elementwise
            for dtype in DTYPES
        }
    )


def blas_run_time(kernel: Instruction, least: RunTime, target: Target) -> RunTime | None:
    """Of a product that native has a BLAS make, from the least that it takes; None for all others."""
    product = product_of(kernel)
    if target.kind != "cpu" or product is None or product.opcode != "dot":
        return None
    shape = product_shape(product)
    if shape is None or shape.dtype not in _TYPES or shape.batch > 1:
        return None
    if not 1 < min(shape.rows, shape.columns) < LEAST_SIDE:
        return None
    if shape.rows * shape.columns * shape.depth <= MOST_PRODUCTS:
        return None
    cache = kernel_costs()["l2_bytes_per_ns"]
    given = (shape.rows + shape.columns) * shape.depth * shape.element_bytes
    made = shape.rows * shape.columns * shape.element_bytes
    result = cache if made <= target.l2_size else target.memory_bandwidth * 1e-9
    return replace(least, exec_ns=least.exec_ns + 2 * given / cache + 2 * made / result)

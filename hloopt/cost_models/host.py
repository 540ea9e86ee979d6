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
are cut where the parts of a concatenate meet.)  All figures are measured, most of them by
``tests/benchmarks/host_costs.py``; the tables of products, short rows and narrow columns were made by hand.

Matrix products by themselves are in ``host_products.py``.

A loop has short rows where an array of fewer dimensions keeps it from being one loop over all elements: then it
computes functions with few lanes, ``short_rows`` times as long by the elements of a row.  Columns of products
with such arrays, fewer beside each other than fill vectors, are added up number by number: ``narrow_columns``
times as long.  Both are in the price of a kernel that runs in the end, not in those that fusion decides by.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from hloopt.analysis.emitters.kind import has_kernel
from hloopt.cost_models.counting import OpCounting
from hloopt.cost_models.kept_times import KeptTimes
from hloopt.cost_models.model import NOTHING, RunTime
from hloopt.cost_models.usage import Usage
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import slots_of
from hloopt.ops import OPS
from hloopt.targets import Target
from hloopt.types import DTYPES, ArrayShape, TupleShape

__all__ = [
    "LONGEST_WINDOW",
    "HostModel",
    "additions",
    "counting",
    "kernel_costs",
    "measured",
]

LONGEST_WINDOW: Final = 64
"""Elements of a window that a loop reads for each result: longer ones are usually cumulative, else NumPy's."""
_RUNNING_CYCLES: Final = (0.5, 0.2)
"""Clock cycles of an element of those: sums along the last dimension, by pieces, and of lines side by side
(of 0.23 to 0.29 and 0.07 to 0.31 ns measured at 3 GHz, memory included, f32[64,8192], f32[8192,64] and
f32[360,160,120])."""

_LANE_BITS: Final = 32
_COLUMNS: Final = 32
"""Columns of f32 side by side from which on native adds them up as vectors."""
_FUNCTION: Final = 5
"""Additions from which on an op is a function."""
_UNROLLED: Final = 8
"""Elements from which on a sum is a loop."""
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
        self._narrow_columns = costs["narrow_columns"]
        self._short_rows = {int(size): times for size, times in measured("short_rows").items()}
        self._l1, self._l2 = costs["l1_bytes_per_ns"], costs["l2_bytes_per_ns"]
        self._memory = target.memory_bandwidth * 1e-9
        self._lanes = target.clock_ghz * lanes
        self._forks: dict[Instruction, bool] = {}

    def _alone(self, instruction: Instruction) -> RunTime:
        if not has_kernel(instruction):
            return NOTHING
        if _reduces_inside(instruction):
            return self.run_once(instruction)
        usage = self.usage.in_place(instruction)
        reads = _reads(instruction, usage)
        return self._time(usage.flops, reads, usage.bytes_written, self._branches(instruction))

    def launched_run_time(self, instruction: Instruction) -> RunTime:
        """As ``run_time``, with what vectors idle in short rows and narrow columns."""
        found, ops = self.run_time(instruction), _body(instruction)
        row, is_narrow = _row(ops)
        longer = self._narrow_columns if is_narrow else self._short_rows.get(row, 1.0)
        if longer == 1.0:
            return found
        part = 1.0 if is_narrow else self._part_of_functions(ops)
        idle = found.compute_ns * part * (longer - 1)
        return replace(found, compute_ns=found.compute_ns + idle, exec_ns=found.exec_ns + idle)

    def _part_of_functions(self, ops: Sequence[Instruction]) -> float:
        """Of all arithmetic that of functions: compilers pack a few additions and products, too."""
        each = {op: self.usage.op(op).flops for op in ops if op.is_array}
        called = sum(
            flops
            for op, flops in each.items()
            if op.op.is_elementwise and flops >= _FUNCTION * op.array.elements
        )
        return called / max(1, sum(each.values()))

    def run_once(self, instruction: Instruction) -> RunTime:
        """Of a kernel that computes each op of a fusion once and keeps what other ops read again."""
        usage, ops = self.usage.in_place(instruction), (instruction,)
        if instruction.opcode == "fusion":
            ops = tuple(instruction.attributes["calls"])
        flops = sum(self.usage.op(op).flops for op in ops)
        reads = {one: (net, net) for one, (net, _) in _reads(instruction, usage).items()}
        return self._time(flops, reads, usage.bytes_written, branches=False)

    def _forget_times(self, instruction: Instruction) -> None:
        super()._forget_times(instruction)
        self._forks.pop(instruction, None)

    def _fused(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> RunTime:
        slots = slots_of(producer, consumer)
        if not slots:
            raise ValueError(f"{consumer.name} does not use {producer.name}")
        first, second = self.usage.in_place(producer), self.usage.in_place(consumer)
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
            known = self._forks[instruction] = any(
                op.opcode == "pad" and _pads_rows(op) for op in _body(instruction)
            )
        return known


def _body(kernel: Instruction) -> Sequence[Instruction]:
    return tuple(kernel.calls) if kernel.opcode == "fusion" else (kernel,)


def _row(ops: Sequence[Instruction]) -> tuple[int, bool]:
    """The elements of the innermost loop of a kernel, 0 for one over all; whether it adds up narrow columns.

    A broadcast makes loops of a row's dimensions: those that it repeats and those that it does not.
    """
    spread = [
        _run(op) for op in ops if op.opcode == "broadcast" and op.operands[0].array.elements > 1
    ]
    if not spread:
        return 0, False
    for op in ops:
        if op.opcode != "reduce" or not op.is_array:
            continue
        source = op.operands[0].array
        last = max((dim for dim, size in enumerate(source.dims) if size > 1), default=0)
        if last in op.dimensions:
            return 0, False
        depth = prod(source.dims[dim] for dim in op.dimensions)
        if source.dims[last] < _COLUMNS and depth >= _UNROLLED:
            return source.dims[last], True
    return min(spread), False


def _run(spread: Instruction) -> int:
    """The elements of the last dimensions that a broadcast all repeats, or all takes from its operand."""
    kept, size = set(spread.dimensions), 1
    dims = [at for at, count in enumerate(spread.array.dims) if count > 1]
    for at in reversed(dims):
        if (at in kept) != (dims[-1] in kept):
            break
        size *= spread.array.dims[at]
    return size


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


def measured(name: str) -> Mapping[str, Any]:
    """A table of the file."""
    return MappingProxyType(_tables()[name])


def kernel_costs() -> Mapping[str, float]:
    """What is known of kernels as a whole, by the names in the file."""
    return measured("kernels")


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

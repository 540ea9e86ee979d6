"""How long a whole loop takes in one kernel: model ``loop-2026``.  Predicted; no such kernel was measured.

XLA's models price a kernel by the bytes it moves and the flops it computes, as if there were always enough
threads to keep the device busy.  A loop kernel has as many threads as it has work items, and each iteration
waits for the one before it, so what counts is, for each iteration,

    chain    the longest chain of instructions that wait for each other, of a warp alone; where the code
             branches, the instructions beside it, too, which then fill no waits
    issue    instructions of all warps of the busiest scheduler, over what it and its lanes take in a cycle
    memory   bytes all work items read and write in an iteration, over the bandwidth of so many blocks

    time = launches + ends + waves * iterations * max(chain, issue, memory)

``ends`` are the first state's reading and the results' writing, ``waves`` how often the device is filled where
more blocks are launched than it holds at once.  Cycles and counts: ``instructions.toml``, ``latencies.toml``.
The clock and the launch are those of XLA's model of 2026.

Against the schedules of the machine code of six Cartpole loops (``tests/cost_models/loop_cycles.py``, a warp
alone, sm_90) iterations are predicted 2 to 24 % too short, and 39 % where ten steps are one body: the model
overlaps what branches keep apart.  With one lane a work item they are predicted up to 53 % too long.  What
lanes that run a work item together compute for as many iterations at once adds to the chain, shared among
these iterations; what each of them advances through all of these adds to it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

from hloopt.analysis.parallel_loop import LoopMapping, LoopNode, ParallelLoop
from hloopt.analysis.parallel_loop.thread_lanes import LANES, LaneValues
from hloopt.analysis.trip_count import IterationCounts, counted_iterations
from hloopt.cost_models.device_times import L2_SPEEDUP, LAUNCH_NS
from hloopt.cost_models.instructions import latencies_of
from hloopt.cost_models.loop_costs import REGISTER_ELEMENTS, IterationCosts
from hloopt.cost_models.loop_iteration import iteration_of
from hloopt.cost_models.loop_needs import elements_needed
from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = [
    "MODEL",
    "LoopTime",
    "best_lanes",
    "better_mapping",
    "clearly_best",
    "is_priced",
    "loop_time",
]

MODEL: Final = "loop-2026"
"""The name of these predictions in tables and explanations."""

_CLEARLY: Final = 0.9
_REGISTER_UNIT: Final = 8  # registers are given to threads by so many (CUDA Occupancy Calculator)
_BLOCKS_PER_CORE: Final = 32  # where a description says nothing (compute capability 7.0 and newer)
_MOST_REGISTERS: Final = 255  # of a thread (compute capability 3.5 and newer)
_BASE_REGISTERS: Final = 24  # addresses, counters and numbers in flight beside the state


@dataclass(frozen=True, slots=True)
class LoopTime:
    """Nanoseconds of a loop in one kernel, predicted, and what they are made of.

    launch_ns, ends_ns            once
    chain_ns, issue_ns, memory_ns  of an iteration; the longest decides
    recurrence_ns                 of an iteration: the chain if iterations overlapped as far as they can
    counted                       how many iterations, and whether that is known
    waves                         how often the device is filled, and threads take another work item
    blocks, threads               of the launch, threads in a block
    cores                         that have a block at all
    blocks_per_core, registers    that fit at once; of a thread, 32 bits each
    instructions                  of a thread and iteration
    slowest                       on the chain: instruction and nanoseconds
    """

    launch_ns: float
    ends_ns: float
    chain_ns: float
    issue_ns: float
    memory_ns: float
    recurrence_ns: float
    counted: IterationCounts
    waves: int
    blocks: int
    threads: int
    cores: int
    blocks_per_core: int
    registers: int
    instructions: float
    slowest: tuple[tuple[str, float], ...] = ()

    @property
    def iterations(self) -> int:
        """The iterations that count."""
        return self.counted.count

    @property
    def iteration_ns(self) -> float:
        """Of one iteration of one wave."""
        return max(self.chain_ns, self.issue_ns, self.memory_ns)

    @property
    def ns(self) -> float:
        """Of the whole loop, launches included."""
        return self.launch_ns + self.exec_ns

    @property
    def exec_ns(self) -> float:
        """Without the launches."""
        return self.ends_ns + self.waves * self.iterations * self.iteration_ns

    @property
    def more_launches_ns(self) -> float:
        """Of the launches after the first."""
        return max(0.0, self.launch_ns - LAUNCH_NS)

    @property
    def bound(self) -> str:
        """What an iteration waits for: chain, issue or memory."""
        parts = {"chain": self.chain_ns, "issue": self.issue_ns, "memory": self.memory_ns}
        return max(parts, key=lambda part: parts[part])

    @property
    def parts(self) -> str:
        """What once and an iteration are made of, and the slowest instructions of the chain."""
        slow = ", ".join(f"%{name} {ns:.0f} ns" for name, ns in self.slowest)
        return (
            f"{self.blocks:,} blocks of {self.threads} threads on {self.cores} cores; launch"
            f" {self.launch_ns:.0f} ns, ends {self.ends_ns:.0f} ns; an iteration: chain {self.chain_ns:.0f} ns"
            f" ({self.recurrence_ns:.0f} ns from state to state), issue {self.issue_ns:.0f} ns, memory"
            f" {self.memory_ns:.0f} ns; {self.instructions:.0f} instructions"
            + (f"; slowest on the chain: {slow}" if slow else "")
        )

    @property
    def words(self) -> str:
        """In a line."""
        waves = f" x {self.waves} waves" if self.waves > 1 else ""
        return (
            f"{self.counted.words}{waves} of {self.iteration_ns:.0f} ns (chain {self.chain_ns:.0f}, issue"
            f" {self.issue_ns:.0f}, memory {self.memory_ns:.0f}) on {self.cores} cores,"
            f" predicted by {MODEL}"
        )


def loop_time(
    mapping: LoopMapping,
    target: Target,
    *,
    iterations: IterationCounts | None = None,
    threads: int = 0,
    blocks: int = 0,
    registers: int = 0,
    launches: int = 0,
    unrolled: int = 0,
    lanes: int = 0,
) -> LoopTime:
    """The time of a loop by one mapping.

    ``iterations`` where the caller has a better count than the module, else ``counted_iterations``.
    ``threads``, ``blocks``, ``registers`` (of a thread, as compiled) and ``launches`` of the kernel, 0 for what
    the mapping says or would be usual.  ``unrolled``: iterations written one after the other; 0 for two where
    a thread reads ahead, else one, as the kernels are written.  ``lanes``: threads that run a work item
    together; 0 for as many as are best.  Raises ``ValueError`` for a device that is not NVIDIA's, or whose
    threads are not known.
    """
    if not target.has_threads:
        raise ValueError(f"{target.name} runs no kernels: it has no blocks and threads")
    if not lanes:
        lanes = best_lanes(mapping, target)
    latencies = latencies_of(target)
    parallel = mapping.parallel
    shape = _Launch.of(mapping, target, threads, blocks, registers, lanes)
    needs = elements_needed(parallel)
    sharing = shape.threads if mapping.kind == "block" else 1
    costs = IterationCosts(mapping, needs, latencies, target, sharing, lanes)
    iteration = iteration_of(costs, unrolled or (2 if costs.ahead else 1))
    counted = counted_iterations(parallel.loop) if iterations is None else iterations
    cycle = 1 / target.clock_ghz
    launched = launches or (2 if parallel.collected else 1)
    return LoopTime(
        launched * LAUNCH_NS,
        _ends(parallel, target, shape, latencies.memory, counted.count),
        (iteration.chain + iteration.apart) * cycle,
        latencies.issue(iteration.work, shape.warps) * cycle,
        _traffic(parallel) / _bandwidth(target, shape.resident)
        + _again(mapping, needs, target) / shape.waves,
        iteration.recurrence * cycle,
        counted,
        shape.waves * shape.each,
        shape.blocks,
        shape.threads,
        shape.cores,
        shape.per_core,
        shape.registers,
        sum(iteration.work.units),
        tuple((name, cycles * cycle) for name, cycles in iteration.slowest),
    )


def best_lanes(mapping: LoopMapping, target: Target) -> int:
    """How many threads should run a work item together: twice as many where that takes a tenth less.

    No model is nearer.  One where nothing can be shared, where warps fold what work items add to a reduce, and
    on devices that ``loop_time`` cannot predict.
    """
    parallel = mapping.parallel
    sharing = mapping.kind == "thread" and not mapping.problem and not parallel.collected
    if not sharing or not is_priced(target) or not LaneValues(parallel).exchangeable(2):
        return 1
    best, shortest = 2, loop_time(mapping, target, lanes=2).ns
    for lanes in LANES[2:]:
        time = loop_time(mapping, target, lanes=lanes).ns
        if time >= _CLEARLY * shortest:
            break
        best, shortest = lanes, time
    return best if shortest < _CLEARLY * loop_time(mapping, target, lanes=1).ns else 1


def better_mapping(
    mappings: tuple[LoopMapping, ...], target: Target
) -> tuple[LoopMapping, LoopTime] | None:
    """Of the mappings that fit the one whose kernel takes less, with its time.

    An earlier one is taken where a later one is not clearly better.  None where none fits, and on devices
    that ``loop_time`` cannot predict.
    """
    if not is_priced(target):
        return None
    return clearly_best(
        [(mapping, loop_time(mapping, target)) for mapping in mappings if not mapping.problem]
    )


def is_priced(target: Target) -> bool:
    """Whether loops can be timed on a device: NVIDIA's, whose instructions were measured."""
    return target.kind == "cuda" and target.has_threads


def clearly_best(
    timed: Sequence[tuple[LoopMapping, LoopTime]],
) -> tuple[LoopMapping, LoopTime] | None:
    """The one of several that takes least; an earlier one unless it takes a tenth more: no model is nearer."""
    best: tuple[LoopMapping, LoopTime] | None = None
    for mapping, time in timed:
        if best is None or time.ns < _CLEARLY * best[1].ns:
            best = mapping, time
    return best


@dataclass(frozen=True, slots=True)
class _Launch:
    """Blocks of threads on cores.

    warps     of the busiest core, in a wave
    resident  blocks in a wave
    each      work items that a thread, or a block, runs one after the other
    """

    blocks: int
    threads: int
    registers: int
    per_core: int
    waves: int
    cores: int
    warps: int
    resident: int
    each: int

    @staticmethod
    def of(
        mapping: LoopMapping, target: Target, threads: int, blocks: int, registers: int, lanes: int
    ) -> _Launch:
        work_items = max(1, mapping.parallel.work_items) * lanes
        threads = threads or mapping.threads or _usual_threads(mapping, target, work_items)
        per_block = threads if mapping.kind == "thread" else 1
        blocks = blocks or ceil(work_items / per_block)
        registers = registers or mapping.registers or _registers(mapping)
        each = ceil(work_items / (blocks * per_block))
        per_core = max(1, _blocks_per_core(target, threads, registers, mapping.shared_bytes))
        room = target.cores * per_core
        resident = min(blocks, room)
        cores = min(blocks, target.cores)
        busiest = ceil(resident / target.cores)
        warps = busiest * ceil(threads / target.warp_size)
        return _Launch(
            blocks, threads, registers, per_core, ceil(blocks / room), cores, warps, resident, each
        )


def _usual_threads(mapping: LoopMapping, target: Target, work_items: int) -> int:
    """As few as keep every core busy, a warp at least, 128 at most; of a block that shares work, 256."""
    if mapping.kind == "block":
        return min(256, target.threads_per_block)
    each = ceil(work_items / target.cores)
    return min(128, max(target.warp_size, ceil(each / target.warp_size) * target.warp_size))


def _registers(mapping: LoopMapping) -> int:
    """The state's words and what else a thread holds; a block has its arrays in shared memory."""
    words = sum(
        one.local_elements * max(1, one.shape.dtype.bits // 32)
        for one in mapping.parallel.carried
        if one.role in ("owned", "uniform")
        and (mapping.kind == "thread" or one.local_elements == 1)
    )
    return min(_MOST_REGISTERS, _BASE_REGISTERS + 2 * words)


def _blocks_per_core(target: Target, threads: int, registers: int, shared: int) -> int:
    """Blocks that fit on a core at once, by threads, registers, shared memory and their number."""
    given = min(_MOST_REGISTERS, ceil(registers / _REGISTER_UNIT) * _REGISTER_UNIT)
    limits = [target.blocks_per_core or _BLOCKS_PER_CORE]
    warps = ceil(threads / target.warp_size)
    if target.threads_per_core:
        limits.append(target.threads_per_core // (warps * target.warp_size))
    if target.registers_per_core:
        limits.append(target.registers_per_core // (given * warps * target.warp_size))
    if shared and target.shared_per_core:
        taken = shared + target.reserved_shared_per_block
        limits.append(target.shared_per_core // taken)
    return min(limits)


def _traffic(parallel: ParallelLoop) -> float:
    """Bytes of an iteration: written to streamed elements, and read from arrays by the iteration's number."""
    written = sum(
        one.update.operands[1].shape.byte_size
        for one in parallel.carried
        if one.role == "streamed" and one.update is not None
    )
    body = parallel.loop.body
    state = body.parameters[0]
    read = 0
    for entry in body:
        if entry.opcode in ("dynamic-slice", "gather"):
            source = entry.operands[0]
            if source.opcode == "get-tuple-element" and source.operands[0] is state:
                index = source.attributes["index"]
                if parallel.carried[index].role == "invariant":
                    read += entry.shape.byte_size
    return float(written + read)


def _again(mapping: LoopMapping, needs: Mapping[LoopNode, float], target: Target) -> float:
    """Nanoseconds of an iteration in which all work items read what does not change and what no core can keep.

    Arrays of more than half of a core's first-level cache come out of the second level, those of more than half
    of that out of memory.  Threads of a warp share what lies along no axis.
    """
    body = mapping.parallel.loop.body
    state = body.parameters[0]
    speed = target.memory_bandwidth * 1e-9
    total = 0.0
    for entry in body:
        if entry.opcode != "get-tuple-element" or entry.operands[0] is not state:
            continue
        carried = mapping.parallel.carried[entry.attributes["index"]]
        count = needs.get((entry, 0), 0.0)
        if carried.role != "invariant" or count <= REGISTER_ELEMENTS:
            continue
        if all(user.opcode in ("dynamic-slice", "gather") for user in entry.users):
            continue  # by the iteration's number: with the other traffic
        size = carried.shape.byte_size
        if size <= target.shared_per_core // 2:
            continue
        work_items = mapping.parallel.work_items
        if mapping.kind == "thread" and all(axis is None for axis in carried.axes):
            work_items = ceil(work_items / target.warp_size)
        faster = L2_SPEEDUP if size <= target.l2_size // 2 else 1.0
        total += work_items * count * carried.shape.dtype.bits / 8 / (speed * faster)
    return total


def _ends(
    parallel: ParallelLoop, target: Target, shape: _Launch, latency: float, iterations: int
) -> float:
    """The first state is read, and the last written; partial sums are written, and read to be added up.

    What every work item has all of, every block reads.
    """
    moved = sum(2 * one.shape.byte_size for one in parallel.carried if one.role == "owned")
    moved += sum(
        2 * one.shape.byte_size * shape.blocks for one in parallel.carried if one.role == "uniform"
    )
    moved += sum(one.shape.byte_size for one in parallel.carried if one.role == "invariant")
    for reduce in parallel.collected:
        moved += 2 * iterations * shape.blocks * max(1, reduce.shape.byte_size)
    return 2 * latency / target.clock_ghz + moved / _bandwidth(target, shape.resident)


def _bandwidth(target: Target, blocks: int) -> float:
    """Bytes a nanosecond that so many blocks can request."""
    requested = blocks * target.clock_ghz * (target.core_transaction or 32)
    return min(target.memory_bandwidth * 1e-9, requested)

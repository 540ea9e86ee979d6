"""How long a kernel will take: bytes and flops over the rates of the target, and its launches.

Formulas and constants are those of XLA's GPU performance model for one instruction, with the launches of our
own kernels: ``cost_models`` price the one kernel that XLA would make, whatever the tile.  What that
does not know is how a kernel uses the machine: that is the ``Efficiency`` each kernel states, or the table here
by its name.  Kernels of the host are priced by the cost model ``host``, one core of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import prod
from types import MappingProxyType
from typing import Final

from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.layout import moves_minor_dimension
from hloopt.analysis.parallel_loop import LoopMapping, fused_loop
from hloopt.analysis.parallel_loop.block_mapping import block_mapping
from hloopt.analysis.parallel_loop.host_mapping import host_mapping
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.cost_models.device_times import (
    L1_SPEEDUP,
    L2_SPEEDUP,
    LAUNCH_NS,
    PARALLELISM,
)
from hloopt.cost_models.host import HostModel
from hloopt.cost_models.host_while import whole_loop_ns
from hloopt.cost_models.loop_time import LoopTime, is_priced, loop_time
from hloopt.cost_models.roofline import product_of
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Efficiency, Kernel, Site
from hloopt.kernels.spec import Argument, Copy, Fill, KernelSpec, Launch, LeafPlace
from hloopt.targets import Target
from hloopt.types import DTYPES, BufferShape, leaves

__all__ = ["EFFICIENCIES", "LAUNCH_SECONDS", "Estimate", "estimate"]


LOOP_MAPPINGS: Final[Mapping[str, Callable[[Instruction, Target], LoopMapping]]] = MappingProxyType(
    {
        "while-per-thread": thread_mapping,
        "while-per-block": block_mapping,
    }
)
"""Efficiency of kernels that run whole loops."""

LAUNCH_SECONDS: Final = LAUNCH_NS / 1e9
"""What a launch costs however little it does."""

_L1_BYTES = 2048  # XLA: of the first-level cache each core has so many for a kernel
_TRANSACTION = 64  # XLA: bytes that come from memory at once
_CLOCK_BYTES = 32  # XLA: bytes a core can ask for in one clock
_CPU_RATE = 40e9  # flops a second of one core: 8 lanes, a multiply and an add each, 2.5 GHz
_CPU_BANDWIDTH = 10e9  # bytes a second that one core moves
_CPU_CALL = 2e-6  # seconds of a call of NumPy's
_TRANSCENDENTAL = 16  # 16 special function units beside 128 lanes of two flops each


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of memory, flops without transcendental functions, seconds, and what was assumed.

    ``parts`` are what the time of a whole loop is made of, in nanoseconds, those of an iteration among them.
    """

    bytes_read: int
    bytes_written: int
    flops: int
    seconds: float
    note: str = ""
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def bytes_accessed(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


_TILES = "tiles in shared memory keep both sides coalesced"
_NO_ORDER = "updates go to places in no order"

EFFICIENCIES: Final[Mapping[str, Efficiency]] = MappingProxyType({
    "atomic-reduction": Efficiency(0.8, reason="blocks wait for each other where they add up"),
    "scatter": Efficiency(0.25, reason=_NO_ORDER),
    "scatter-atomic": Efficiency(0.2, reason=f"{_NO_ORDER} and wait for each other"),
    "scan": Efficiency(0.5, reason="threads go along rows by themselves"),
    "block-sort": Efficiency(0.5, reason="the network works in shared memory"),
    "transpose": Efficiency(0.9, reason=_TILES),
    "packed-transpose": Efficiency(0.9, reason=_TILES),
    "dot-small": Efficiency(compute=0.25, reason="operands come from shared memory"),
    "dot-split-k": Efficiency(compute=0.5, reason="tiles in shared memory and registers"),
    "dot-tiled": Efficiency(compute=0.5, reason="tiles in shared memory and registers"),
    "convolution-direct": Efficiency(compute=0.1, reason="operands come from the caches"),
    "convolution-implicit-matmul": Efficiency(compute=0.4, reason="tiles in shared memory"),
    "convolution-1x1": Efficiency(compute=0.5, reason="tiles in shared memory"),
})  # fmt: skip
"""Efficiencies of kernels that do not state theirs: assumed until they are measured."""

_PLAIN = Efficiency()


def estimate(site: Site, kernel: Kernel, spec: KernelSpec) -> Estimate:
    """What a kernel would cost at a site with a tile.

    Bytes: every operand once (of slices what they take), every result once; in place only what changes;
    scratch written and read; what steps copy and fill.  ``seconds`` add launches to the longer of memory
    and arithmetic, and a twentieth of the shorter.
    """
    instruction, target = site.region.instruction, site.target
    looped = _loop_time(site, kernel, spec)
    if looped is not None:
        return _of_loop_kernel(instruction, looped)
    cost = instruction_cost(instruction)
    read, written = _bytes(site, cost, spec)
    efficiency = _efficiency(site, kernel, spec)
    if spec.library == "NumPy":
        return _on_cpu(cost, read, written, efficiency)
    if kernel.device == "native":
        return _on_host(site, kernel, cost, read, written, len(spec.steps))
    blocks, threads = _parallel(spec, target.cores, target.fpus_per_core)
    rate = target.clock_ghz * 2e9 * min(blocks, target.cores) * min(threads, target.fpus_per_core)
    work = cost.flops + _TRANSCENDENTAL * cost.transcendentals
    arithmetic = work / (rate * efficiency.compute)
    cap = blocks * target.clock_ghz * 1e9 * _CLOCK_BYTES
    bandwidth = target.memory_bandwidth * efficiency.memory
    memory = read / min(bandwidth, cap) + written / bandwidth
    again = read * max(0.0, efficiency.repeats - 1)
    memory += again / min(bandwidth * _cache_speedup(site, read), cap)
    overlap = PARALLELISM * min(arithmetic, memory)
    launches = max(1, len(spec.steps))
    return Estimate(
        read,
        written,
        cost.flops,
        launches * LAUNCH_SECONDS + arithmetic + memory - overlap,
        efficiency.reason,
    )


def _loop_time(site: Site, kernel: Kernel, spec: KernelSpec) -> LoopTime | None:
    """The estimate of a kernel that runs a whole loop, with its launch; None for every other one."""
    inner = fused_loop(site.region.instruction)
    mapping_of = LOOP_MAPPINGS.get(kernel.name)
    if inner is None or mapping_of is None or not is_priced(site.target):
        return None
    launches = [step for step in spec.steps if isinstance(step, Launch)]
    first = launches[0]
    return loop_time(
        mapping_of(inner.loop, site.target),
        site.target,
        threads=prod(first.block),
        blocks=prod(first.grid),
        launches=len(spec.steps),
        lanes=spec.tile.get("lanes", 1),
    )


def _of_loop_kernel(instruction: Instruction, time: LoopTime) -> Estimate:
    cost = instruction_cost(instruction)
    parts = {
        "launch_ns": time.launch_ns,
        "ends_ns": time.ends_ns,
        "trips": time.iterations,
        "waves": time.waves,
        "chain_ns": time.chain_ns,
        "issue_ns": time.issue_ns,
        "memory_ns": time.memory_ns,
    }
    return Estimate(
        cost.bytes_read,
        cost.bytes_written,
        cost.flops,
        time.ns / 1e9,
        time.words,
        MappingProxyType(parts),
    )


def _on_cpu(cost: Cost, read: int, written: int, efficiency: Efficiency) -> Estimate:
    """The estimate for the NumPy executor, whatever the target: one core of a usual server."""
    work = cost.flops + _TRANSCENDENTAL * cost.transcendentals
    arithmetic = work / (_CPU_RATE * efficiency.compute)
    memory = (read + written) / (_CPU_BANDWIDTH * efficiency.memory)
    spent = _CPU_CALL + max(arithmetic, memory)
    return Estimate(read, written, cost.flops, spent, efficiency.reason)


def _on_host(
    site: Site, kernel: Kernel, cost: Cost, read: int, written: int, steps: int
) -> Estimate:
    """The estimate of a native kernel; products at the rate of the lanes."""
    instruction, target = site.region.instruction, site.target
    model, note = HostModel(target), ""
    looped = fused_loop(instruction)
    if looped is not None:
        whole = whole_loop_ns(host_mapping(looped.loop), target)
        spent = whole * 1e-9 + (read + written) / target.memory_bandwidth
        note = "what no array keeps is computed for each reader"
    elif product_of(instruction) is None:
        by_rows = kernel.name == "native-rows"
        time = model.run_once(instruction) if by_rows else model.run_time(instruction)
        spent = time.exec_ns * 1e-9
    else:
        lanes = target.clock_ghz * 1e9 * target.fpus_per_core
        work = cost.flops + _TRANSCENDENTAL * cost.transcendentals
        spent = work / (2 * lanes) + (read + written) / target.memory_bandwidth
        note = "all lanes multiply and add in every clock: the least that it can take"
    return Estimate(read, written, cost.flops, spent + steps * model.launch_ns * 1e-9, note)


def _cache_speedup(site: Site, read: int) -> float:
    """How many times faster than memory the cache is that holds bytes read again."""
    target = site.target
    if read < _L1_BYTES * target.cores:
        return L2_SPEEDUP * L1_SPEEDUP
    return L2_SPEEDUP if read < target.l2_size else 1.0


def _bytes(site: Site, cost: Cost, spec: KernelSpec) -> tuple[int, int]:
    """Bytes read from and written to memory by all steps.

    What the op reads and its results count once, for the first launch that has them; what later ones read
    and update again comes on top, and so does scratch.
    """
    instruction = site.region.instruction
    once = sum(operand.shape.byte_size for operand in dict.fromkeys(instruction.operands))
    read = min(cost.bytes_read, once) if instruction.opcode != "fusion" else cost.bytes_read
    written = cost.bytes_written
    results = sum(result.shape.byte_size for result in site.region.results)
    if not spec.in_place and written < results:
        read, written = read + results - written, results
    known: set[LeafPlace] = set()
    for step in spec.steps:
        if isinstance(step, Fill):
            written += _place_bytes(site, spec, step.target)
        elif isinstance(step, Copy):
            moved = _place_bytes(site, spec, step.target) if len(spec.steps) > 1 else 0
            read, written = read + moved, written + moved
        else:
            before = frozenset(known)
            for argument in step.arguments:
                place, size = argument.place, _place_bytes(site, spec, argument.place)
                if place.kind == "scratch" or place in before:
                    read += size * (argument.role != "out")
                    written += size * (argument.role == "update" or _is_scratch_out(argument))
                elif argument.role == "update" and not spec.in_place:
                    read += size  # that it is written is counted with the results
                known.add(place)
    return read, written


def _is_scratch_out(argument: Argument) -> bool:
    return argument.role == "out" and argument.place.kind == "scratch"


def _scratch_bytes(dtype: str, elements: int) -> int:
    return (DTYPES[dtype].bits * elements + 7) // 8


def _place_bytes(site: Site, spec: KernelSpec, place: LeafPlace) -> int:
    if place.kind == "scratch":
        entry = spec.scratch[place.number]
        return _scratch_bytes(entry.dtype, entry.elements)
    if place.kind == "operand":
        return site.region.operands[place.number].byte_size
    return _result_sizes(site.region.instruction)[place.number]


def _result_sizes(instruction: Instruction) -> list[int]:
    return [
        (leaf.element if isinstance(leaf, BufferShape) else leaf).byte_size
        for leaf in leaves(instruction.shape)
    ]


def _parallel(spec: KernelSpec, cores: int, lanes: int) -> tuple[int, int]:
    """Blocks and threads of the largest launch; of a library call, and of copies, the whole device."""
    launches = [step for step in spec.steps if isinstance(step, Launch)]
    if spec.library or not launches:
        return 4 * cores, lanes
    largest = max(launches, key=lambda step: prod(step.grid) * prod(step.block))
    return prod(largest.grid), prod(largest.block)


def _efficiency(site: Site, kernel: Kernel, spec: KernelSpec) -> Efficiency:
    if kernel.efficiency is not None:
        return kernel.efficiency(site, spec)
    if kernel.device == "native":
        return _PLAIN
    stated = _FUNCTIONS.get(kernel.name)
    found = stated(site) if stated is not None else EFFICIENCIES.get(kernel.name, _PLAIN)
    return replace(found, compute=found.compute * _lanes_share(site))


def _lanes_share(site: Site) -> float:
    """The rate for the results' type over that of f32; narrow floats are computed as f32."""
    target, dtype = site.target, site.region.results[0].shape.dtype
    name = _COMPUTED.get(dtype.name, "s32" if dtype.is_integer else dtype.name)
    peak, lanes = target.peak_flops(name), target.peak_flops("f32")
    return peak / lanes if peak and lanes else 1.0


_COMPUTED = {"c64": "f32", "c128": "f64", "f16": "f32", "bf16": "f32", "pred": "s32"}


def _of_ordered_scatter(site: Site) -> Efficiency:
    """Each element of the result goes through all indices."""
    scatter = next((one for one in site.region.body if one.opcode == "scatter"), None)
    if scatter is None:
        return _PLAIN
    count = (len(scatter.operands) - 1) // 2
    indices = scatter.operands[count].shape.byte_size
    every = scatter.operands[0].array.elements * indices
    read = max(1, sum(shape.byte_size for shape in site.region.operands))
    return Efficiency(repeats=1 + every / read, reason="each element goes through all indices")


def _of_loop(site: Site) -> Efficiency:
    """A thread an element: what it reads may lie apart from what its neighbours read."""
    region = site.region
    for inner in region.body:
        if moves_minor_dimension(inner):
            share = _share(inner)
            return Efficiency(share, reason=f"{inner.opcode} {inner.name} is not coalesced")
        if inner.opcode == "reduce" and _reduces_minor(inner):
            share = _share(inner.operands[0])
            return Efficiency(share, reason=f"threads reduce rows of {inner.name} one each")
    for inner in region.body:
        if inner.opcode in ("dot", "convolution"):
            cost = instruction_cost(inner)
            repeats = cost.flops * _element_bytes(inner.operands[0]) / max(1, cost.bytes_read)
            reason = f"operands of {inner.name} come from the caches for each multiply-add"
            return Efficiency(repeats=max(1.0, repeats), reason=reason)
    return _PLAIN


_FUNCTIONS: Mapping[str, Callable[[Site], Efficiency]] = {
    "loop": _of_loop,
    "scatter-ordered": _of_ordered_scatter,
}


def _share(instruction: Instruction) -> float:
    """What an element by itself uses of a transaction."""
    return min(1.0, _element_bytes(instruction) / _TRANSACTION)


def _element_bytes(instruction: Instruction) -> float:
    return instruction.array.dtype.bits / 8


def _reduces_minor(reduce: Instruction) -> bool:
    """Whether the fastest dimension of more than one element is reduced."""
    source = reduce.operands[0].array
    order = source.layout.minor_to_major if source.layout else range(source.rank - 1, -1, -1)
    minor = next((dimension for dimension in order if source.dims[dimension] > 1), None)
    return minor is not None and minor in reduce.attributes["dimensions"]

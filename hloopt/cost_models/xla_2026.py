"""XLA's GPU performance model of 2026, on which its priority fusion rests.

A kernel of ``blocks`` times ``threads`` that computes F flops, reads operands o and writes W bytes takes

    compute = F / floor(2 clock min(blocks, cores) min(threads, fpus))
    read    = sum over o of  net(o) / dram + (total(o) - net(o)) / cached
    write   = W / bandwidth
    exec    = compute + read + write - 0.95 min(compute, read + write)

``total(o)`` are bytes with repeated reads, ``net(o)`` without.  ``dram`` is the bandwidth, by the share of
a transaction that is used where reads are not coalesced; ``cached`` is 2.5 times the bandwidth where the
operand fits into the second-level cache, 20 times where into the first, else as ``dram``.  Neither is more
than 32 bytes a clock and block.

A producer P in its user C, with u the utilisation of P by C, computes u F(P) + F(C) and reads of each operand
u total(P) + total(C) less what both share; it writes what C writes, and what P writes where it keeps results.
Fusing P into n users is n launches and n such kernels, against n + 1 launches and all kernels by themselves.

Sources: OpenXLA, xla/service/gpu/model/gpu_performance_model{,_base}.cc, gpu_hlo_cost_analysis.cc,
coalescing_analysis.cc (Apache-2.0), and the log of jaxlib 0.10.2.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from math import floor, prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from hloopt.analysis.backend_config import is_triton
from hloopt.analysis.emitters.pairs import Kernels, KernelShape
from hloopt.analysis.structures import keep
from hloopt.cost_models.attention import attention_run_time
from hloopt.cost_models.coalescing import MOVING, Coalescing
from hloopt.cost_models.contention import scatter_root
from hloopt.cost_models.counting import OpCounting, narrow
from hloopt.cost_models.device_times import DeviceTimes
from hloopt.cost_models.fused_along import fused_along_run_time
from hloopt.cost_models.fused_loops import fused_loop_run_time
from hloopt.cost_models.fused_rows import fused_rows_run_time
from hloopt.cost_models.kept_times import KeptTimes
from hloopt.cost_models.model import RunTime
from hloopt.cost_models.split_reductions import parts_of_reduction, split_run_time
from hloopt.cost_models.usage import Usage
from hloopt.ir import Instruction
from hloopt.ir.walk import slots_of
from hloopt.ops.traits import op_table
from hloopt.targets import Target
from hloopt.types import TupleShape

if TYPE_CHECKING:
    from hloopt.cost_models.block_level import BlockLevelModel

__all__ = ["FALLBACK", "Xla2026", "cycles_of", "profile_name"]

FALLBACK: Final = "sm_86"
"""The profile of every device that has none, AMD's among them."""

_FILE = Path(__file__).parent / "cycles.toml"
_BF16: Final[Mapping[str, str]] = op_table(
    {"add": "bf16", "subtract": "bf16", "multiply": "bf16", "exponential": "bf16", "log": "bf16"},
    otherwise="is computed in f32",
)
"""The type in which XLA computes ops of bf16 when it prices them, f32 for others of the tables (seen in what
jaxlib 0.10.2 makes of each op for an H200)."""


class Xla2026(KeptTimes):
    """XLA's model of 2026: launches, occupancy, two caches, uncoalesced reads, measured clock cycles.

    Raises ``ValueError`` for a device that has no blocks and threads.
    """

    name: ClassVar[str] = "xla-2026"

    def __init__(self, target: Target) -> None:
        super().__init__(target, OpCounting(cycles_of(target)))
        self._block_level: BlockLevelModel | None = None
        self.kernels = Kernels(
            target, self.usage.opcodes, self.usage.structures, self._structures.kernels
        )
        self._times = DeviceTimes(target)
        self._coalescing = Coalescing(self.usage)
        self._reads: dict[Instruction, _Reads] = {}

    @property
    def block_level(self) -> BlockLevelModel:
        """The model of Triton kernels, made on first use."""
        if self._block_level is None:
            from hloopt.cost_models.block_level import BlockLevelModel

            self._block_level = BlockLevelModel(self.target, self.usage, self._structures.tilings)
        return self._block_level

    def _has_tiles(self, *instructions: Instruction) -> bool:
        """Whether the block-level model may apply to these: XLA's own is used for Triton fusions alone."""
        return self._block_level is not None or any(map(is_triton, instructions))

    def _forget_times(self, instruction: Instruction) -> None:
        super()._forget_times(instruction)
        self._reads.pop(instruction, None)
        self.kernels.forget(instruction)
        self._coalescing.forget(instruction)
        if self._block_level is not None:
            self._block_level.forget(instruction)

    def _around(self, instruction: Instruction) -> Hashable:
        """Of what moves elements whether what it reads is a broadcast: then reads stay coalesced."""
        if instruction.opcode not in MOVING:
            return None
        return self._coalescing.alone("loop", instruction)

    def _alone(self, instruction: Instruction) -> RunTime:
        whole = fused_loop_run_time(instruction, self.target)
        if whole is not None:
            return whole
        found = attention_run_time(instruction, self._times)
        if found is not None:
            return found
        rows = fused_rows_run_time(instruction, self.usage, self._times)
        if rows is not None:
            return rows
        along = fused_along_run_time(instruction, self.usage, self._times)
        if along is not None:
            return along
        if self._has_tiles(instruction):
            answer = self.block_level.run_time(instruction)
            if answer is not None:
                return answer
        usage = self.usage.of(instruction)
        kernel = self.kernels.of(instruction)
        coalesced = self._coalescing.alone(kernel.kind, instruction)
        manner = kernel.blocks, coalesced
        total, read = self._reads_of(instruction).alone(self._times, manner)
        write = self._times.write(usage.bytes_written)
        whole = self._together(
            usage.flops, total, usage.bytes_written, read, write, kernel, coalesced
        )
        if kernel.kind != "reduction":
            return whole
        heroes = self.kernels.reductions(instruction)
        return self._split(whole, heroes, self._reading(instruction, whole))

    def launched_run_time(self, instruction: Instruction) -> RunTime:
        """A reduction whose results blocks share has two launches; XLA cuts those in two before it fuses.

        For XLA's decisions a fused scatter writes all of its array; what runs writes what its updates reach.
        """
        whole = self.run_time(instruction)
        if scatter_root(instruction) is not None:
            return self._in_place(instruction, whole)
        if whole.launches > 1 or self.kernels.of(instruction).kind != "reduction":
            return whole
        number = self.usage.structures.of(instruction)
        known = None if number is None else self._structures.launched.get(number)
        if known is None:
            heroes = self.kernels.reductions(instruction)
            reading = self._reading(instruction, whole)
            known = self._split(whole, heroes, reading, by_cores=True)
            if number is not None:
                keep(self._structures.launched, number, known)
        return known

    def _in_place(self, scatter: Instruction, whole: RunTime) -> RunTime:
        usage = self.usage.in_place(scatter)
        if usage is self.usage.of(scatter):
            return whole
        manner = whole.blocks, whole.coalesced
        total, read = _Reads(scatter, usage).alone(self._times, manner)
        # Updates of the same places meet in the second-level cache.
        written = min(usage.bytes_written, whole.bytes_written)
        write = self._times.write(written)
        kernel = self.kernels.of(scatter)
        return self._together(usage.flops, total, written, read, write, kernel, whole.coalesced)

    def _reading(self, instruction: Instruction, whole: RunTime) -> Callable[[int], float]:
        reads = self._reads_of(instruction)
        return lambda blocks: reads.alone(self._times, (blocks, whole.coalesced))[1]

    def _split(
        self,
        whole: RunTime,
        heroes: Sequence[Instruction],
        reading: Callable[[int], float],
        *,
        by_cores: bool = False,
    ) -> RunTime:
        """A reduction too long for a block, which XLA cuts before it fuses; or one that leaves cores idle."""
        parts = parts_of_reduction(heroes, whole, self.target, by_cores=by_cores)
        return split_run_time(whole, heroes, parts, reading, self._times) if parts > 1 else whole

    def _fused(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> RunTime:
        first, second = self.run_time(producer), self.run_time(consumer)
        if consumer.opcode == "bitcast" and self.kernels.of(producer).kind == "triton":
            kernel = self._tiled_as(producer, consumer)
        else:
            if self._has_tiles(producer, consumer):
                answer = self.block_level.fused_run_time(
                    producer, consumer, multi_output=multi_output
                )
                if answer is not None:
                    return answer
            kernel = self.kernels.pair(producer, consumer, multi_output=multi_output)
        coalesced = self._coalescing.pair(kernel.kind, producer, consumer)
        used = self.usage.of(consumer)
        slots = slots_of(producer, consumer)
        times = sum(used.operands[slot].utilization for slot in slots)
        # An operand that occurs twice is computed twice, but XLA counts its reads once.
        share = (
            times if isinstance(producer.shape, TupleShape) else used.operands[slots[0]].utilization
        )
        total, read = self._joined_reads(
            producer, consumer, slots, share, (kernel.blocks, coalesced)
        )
        # Partial results of blocks that share the consumer's are not among these.
        written = used.bytes_written
        write = second.write_ns if second.launches == 1 else self._times.write(written)
        if multi_output:
            written += first.bytes_written
            write += first.write_ns
        flops = int(narrow(narrow(first.flops * times) + used.flops))
        whole = self._together(flops, total, written, read, write, kernel, coalesced)
        if kernel.kind != "reduction":
            return whole

        def reading(blocks: int) -> float:
            manner = blocks, coalesced
            return self._joined_reads(producer, consumer, slots, share, manner)[1]

        heroes = [one for side in (producer, consumer) for one in self.kernels.reductions(side)]
        return self._split(whole, heroes, reading)

    def _tiled_as(self, producer: Instruction, bitcast: Instruction) -> KernelShape:
        """The kernel XLA sees for a Triton fusion and a bitcast of its result.

        Nothing is fused into bitcasts in the end, so XLA looks for no tiles: it cuts the bitcast's shape into
        the producer's tiles, dimension by dimension, however many both have.
        """
        known = self.run_time(producer)
        parameters = self.block_level.parameters(producer)
        if parameters is None:
            return KernelShape("triton", known.blocks, known.threads)
        sides = zip(bitcast.array.dims, parameters.output_tiles[0], strict=False)
        return KernelShape("triton", prod(-(-size // tile) for size, tile in sides), known.threads)

    def _reads_of(self, instruction: Instruction) -> _Reads:
        known = self._reads.get(instruction)
        if known is None:
            known = self._reads[instruction] = _Reads(instruction, self.usage.of(instruction))
        return known

    def _joined_reads(
        self,
        producer: Instruction,
        consumer: Instruction,
        slots: Sequence[int],
        share: float,
        manner: tuple[int, bool],
    ) -> tuple[int, float]:
        """Bytes and nanoseconds of what the kernel of both reads, at the cost of the producer's operands.

        What the consumer alone would read, less what it reads of the producer, and more what that reads.
        ``slots`` are the consumer's operands that the producer makes, ``manner`` is as in ``_Reads.alone``.
        """
        blocks, coalesced = manner
        mine, other = self._reads_of(producer), self._reads_of(consumer)
        total, read = other.alone(self._times, manner)

        def add(operand: Instruction, count: int, times: int) -> None:
            nonlocal total, read
            total += times * count
            read += times * self._times.read(operand.shape, count, blocks, coalesced=coalesced)

        for slot in slots:
            if slot in other.first:
                count, times = other.first[slot]
                add(consumer.operands[slot], count, -times)
        for slot, (count, _) in mine.first.items():
            operand = producer.operands[slot]
            more = _nearest(narrow(count * share))
            if operand not in consumer.operands:
                add(operand, more, 1)
                continue
            common = self.usage.common_utilization(producer, consumer, operand)
            more -= _nearest(narrow(operand.shape.byte_size * common))
            if more:
                before, times = other.first[consumer.operands.index(operand)]
                add(operand, before, -times)
                add(operand, before + more, times)
        return total, read

    def _together(
        self,
        flops: int,
        bytes_read: int,
        bytes_written: int,
        read: float,
        write: float,
        kernel: KernelShape,
        coalesced: bool,
    ) -> RunTime:
        compute = self._times.compute(flops, kernel.blocks, kernel.threads)
        return RunTime(
            flops,
            bytes_read,
            bytes_written,
            read,
            write,
            compute,
            self._times.together(compute, read + write),
            kernel.blocks,
            kernel.threads,
            coalesced,
        )


class _Reads:
    """What an op or fusion reads of each operand, by the number under which it first occurs, and how often.

    One that occurs several times is counted each time, with what XLA finds for its first use.  Numbers stay
    when an operand becomes a fusion.  Times are whole quarters of a nanosecond: their sums are
    exact in any order.
    """

    def __init__(self, instruction: Instruction, usage: Usage) -> None:
        operands = instruction.operands
        self.first: dict[int, tuple[int, int]] = {}
        if len(set(operands)) == len(operands):
            self.first = {number: (use.bytes, 1) for number, use in enumerate(usage.operands)}
        else:
            numbers: dict[Instruction, int] = {}
            for number, operand in enumerate(operands):
                number = numbers.setdefault(operand, number)
                count, times = self.first.get(number, (usage.operands[number].bytes, 0))
                self.first[number] = count, times + 1
        numbers_of_shapes = [id(operands[at].shape) for at in self.first]
        shapes = {
            number: operands[at].shape
            for number, at in zip(numbers_of_shapes, self.first, strict=True)
        }
        read = Counter(zip(numbers_of_shapes, self.first.values(), strict=True))
        self._alike = [
            (shapes[shape], count, often * times) for (shape, (count, times)), often in read.items()
        ]
        self._alone: dict[tuple[int, bool], tuple[int, float]] = {}

    def alone(self, device: DeviceTimes, manner: tuple[int, bool]) -> tuple[int, float]:
        """Bytes and nanoseconds of all operands; ``manner`` are blocks and whether reads are coalesced."""
        known = self._alone.get(manner)
        if known is None:
            blocks, coalesced = manner
            total, read = 0, 0.0
            for shape, count, times in self._alike:
                total += times * count
                read += times * device.read(shape, count, blocks, coalesced=coalesced)
            known = self._alone[manner] = total, read
        return known


def _nearest(value: float) -> int:
    """The nearest whole number, halves away from zero."""
    return floor(value + 0.5)


def profile_name(target: Target) -> str:
    """The profile XLA takes for a device: ``sm_`` and its capability, where there is one of that name."""
    major, minor = target.capability
    name = f"sm_{major}{minor}"
    return name if target.kind == "cuda" and name in _texts() else FALLBACK


def cycles_of(target: Target) -> Mapping[tuple[str, str], int]:
    """Cycles of one element by opcode and element type; what is not in it takes the default."""
    return _profile(profile_name(target))


@cache
def _texts() -> Mapping[str, str]:
    """The text of each table: a run needs one of them."""
    _, *parts = _FILE.read_text().split("\n[")
    return {part[: part.index("]")]: f"[{part}\n" for part in parts}


@cache
def _profile(name: str) -> Mapping[tuple[str, str], int]:
    rows: dict[str, dict[str, int]] = tomllib.loads(_texts()[name])[name]
    found = {
        (opcode, dtype): cycles for opcode, row in rows.items() for dtype, cycles in row.items()
    }
    for opcode, row in rows.items():
        if opcode not in _BF16 and "f32" in row:
            found.setdefault((opcode, "bf16"), row["f32"])
    return MappingProxyType(found)

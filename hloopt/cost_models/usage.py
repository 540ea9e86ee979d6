"""What an instruction computes and reads: XLA's GPU cost analysis with its utilisations.

A fusion is walked from its root to its parameters.  Every instruction of the body has a set of *element-wise
use roots*: the indices under which it is computed.  Users that keep indices pass their sets on, every other use
makes a new root.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hloopt.analysis.cost import instruction_cost, loop_bytes_read
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.analysis.structures import Structures, keep
from hloopt.cost_models.body_usage import SPLITTING, BodyUsage
from hloopt.cost_models.contention import scatter_root
from hloopt.cost_models.counting import OpCounting, OpUsage, OpUsages
from hloopt.dataclass import dataclass
from hloopt.graphs import reached
from hloopt.ir import Computation, Instruction, walk
from hloopt.ir.walk import slots_of
from hloopt.types import Shape, TupleShape

__all__ = ["OpCounting", "OperandUse", "Usage", "UsageAnalysis"]


@dataclass(frozen=True, slots=True)
class OperandUse:
    """How one operand is read.

    bytes         read of it in all, repeated reads counted each time
    utilization   how often each of its elements is used on average; 0.5 where only half of it is
    emitted       how often the code of a producer fused in its place would be written
    """

    bytes: int
    utilization: float
    emitted: int = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one op or fusion.

    flops          as the model counts them (clock cycles an element, for XLA's profiles)
    bytes_written  of the results; of an update in place only what changes
    ir_size        instructions that code is written for, repetitions included
    splits         the same for ops that break the cache of index computations (concatenate, pad, reduce ...)
    operands       one for each operand, in order
    """

    flops: int
    bytes_written: int
    ir_size: int
    splits: int
    operands: tuple[OperandUse, ...]


class UsageAnalysis(OpUsages):
    """Usages by instruction, fusions too, cached until they are invalidated.

    structures  the numbers of what is equal
    known       usages by these numbers; may be shared by analyses that count alike
    """

    def __init__(
        self, counting: OpCounting | None = None, known: dict[int, Usage] | None = None
    ) -> None:
        super().__init__(counting)
        self.structures = Structures()
        self._of_structure = {} if known is None else known
        self._usages: dict[Instruction, Usage] = {}
        self._bodies: dict[Computation, BodyUsage] = {}

    def of(self, instruction: Instruction) -> Usage:
        """The usage of an op or fusion."""
        known = self._usages.get(instruction)
        if known is None:
            number = self.structures.of(instruction)
            known = None if number is None else self._of_structure.get(number)
            if known is None:
                is_fusion = instruction.opcode == "fusion"
                known = self._fusion(instruction) if is_fusion else self._op(instruction)
                if number is not None:
                    keep(self._of_structure, number, known)
            self._usages[instruction] = known
        return known

    def in_place(self, instruction: Instruction) -> Usage:
        """As ``of``, but of a fused scatter into an operand only what its updates reach of that.

        An array that the fusion reads otherwise, too, counts whole.
        """
        usage = self.of(instruction)
        scatter = scatter_root(instruction) if instruction.opcode == "fusion" else None
        if scatter is None:
            return usage
        (array,) = scatter.fold_inputs
        if array.opcode != "parameter" or len(array.users) > 1:
            return usage
        changed, number = self.op(scatter).written, array.parameter_number
        uses = list(usage.operands)
        uses[number] = replace(uses[number], bytes=min(changed, uses[number].bytes))
        return replace(usage, bytes_written=changed, operands=tuple(uses))

    def _count(self, instruction: Instruction) -> OpUsage:
        """An op of a body by itself; of a fusion, what it does as a whole."""
        if instruction.opcode != "fusion":
            return super()._count(instruction)
        usage = self.of(instruction)
        read = tuple(use.bytes for use in usage.operands)
        used = tuple(use.utilization for use in usage.operands)
        return OpUsage(usage.flops, usage.bytes_written, read, used)

    def body(self, fusion: Instruction) -> BodyUsage:
        """The utilisations within a fusion."""
        body = fusion.calls
        known = self._bodies.get(body)
        if known is None:
            known = self._bodies[body] = BodyUsage(body, self.op)
        return known

    def opcodes(self, instruction: Instruction) -> AbstractSet[str]:
        """Of all that an op or fusion computes, possibly with that of results that are no longer read."""
        if instruction.opcode != "fusion":
            return {instruction.opcode}
        return self.body(instruction).opcodes

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone; its body is invalidated with it."""
        self.structures.forget(instruction)
        self._usages.pop(instruction, None)
        self._ops.pop(instruction, None)
        if instruction.opcode == "fusion":
            self._drop(instruction.calls)

    def used(self, producer: Instruction, consumer: Instruction) -> float:
        """How often a consumer uses each of a producer's elements on average.

        Raises ``ValueError`` for a consumer that does not use the producer.
        """
        slots = slots_of(producer, consumer)
        if not slots:
            raise ValueError(f"{consumer.name} does not use {producer.name}")
        uses = self.of(consumer).operands
        if not isinstance(producer.shape, TupleShape):
            return uses[slots[0]].utilization
        sizes = [consumer.operands[slot].shape.byte_size for slot in slots]
        parts = [size * uses[slot].utilization for size, slot in zip(sizes, slots, strict=True)]
        return sum(parts) / max(sum(sizes), 1)

    def grown(self, fusion: Instruction) -> None:
        """Producers have been moved into a fusion, in place of parameters, or it into the body of one.

        Nothing else has changed there, but that what joined may be results beside those there were.

        As ``forget``, but what is known of the body's other instructions stays.
        """
        self.structures.grown(fusion)
        self._usages.pop(fusion, None)
        self._ops.pop(fusion, None)
        body = fusion.calls
        known = self._bodies.get(body)
        if known is not None and not (known.grown() or known.continued()):
            self._drop(body)

    def common_utilization(
        self, producer: Instruction, consumer: Instruction, operand: Instruction
    ) -> float:
        """The share of ``operand``, read by both, that a kernel of both would read only once.

        Not 0 only where the producer reads the operand at the indices it is computed at (all of it once), and
        so does the consumer for both.
        """
        if operand not in consumer.operands or operand not in producer.operands:
            return 0.0
        if producer.opcode == "fusion":
            body = self.body(producer)
            parameter = body.body.parameters[producer.operands.index(operand)]
            if body.common(parameter, body.body.root) != 1.0:
                return 0.0
        elif not self.op(producer).keeps_indices or producer.opcode == "bitcast":
            return 0.0
        if consumer.opcode != "fusion":
            return 1.0 if self.op(consumer).keeps_indices and consumer.opcode != "bitcast" else 0.0
        inner = self.body(consumer)
        parameters = inner.body.parameters
        read = parameters[consumer.operands.index(operand)]
        return sum(inner.common(read, parameters[slot]) for slot in slots_of(producer, consumer))

    def _op(self, instruction: Instruction) -> Usage:
        counted = self.op(instruction)
        uses = tuple(
            OperandUse(read, used) for read, used in zip(counted.read, counted.used, strict=True)
        )
        splits = int(instruction.opcode in SPLITTING)
        return Usage(counted.flops, counted.written, 1, splits, uses)

    def _fusion(self, fusion: Instruction) -> Usage:
        if fused_loop(fusion) is not None:
            return self._loop(fusion)
        inner = self.body(fusion)
        known = inner.uses
        for parameter in inner.body.parameters:
            if parameter not in known:
                known[parameter] = _use(inner, parameter)
        uses = tuple(map(known.__getitem__, inner.body.parameters))
        return Usage(inner.flops, inner.written, inner.ir_size, inner.splits, uses)

    def _loop(self, fusion: Instruction) -> Usage:
        """Of a whole loop: all its iterations; operands are read once, results written once."""
        cost = instruction_cost(fusion)
        body = fusion.calls
        read = loop_bytes_read(fusion)
        uses = tuple(OperandUse(count, 1.0) for count in read)
        size = sum(map(len, reached((body,), walk.callees)))
        return Usage(cost.flops + cost.transcendentals, cost.bytes_written, size, 0, uses)

    def _drop(self, body: Computation) -> None:
        if self._bodies.pop(body, None) is not None:
            for instruction in body:
                self._ops.pop(instruction, None)


def _use(inner: BodyUsage, parameter: Instruction) -> OperandUse:
    group = inner.group(parameter)
    if not isinstance(parameter.shape, TupleShape):
        read = _bytes(parameter.shape, inner.read(parameter))
        return OperandUse(read, group.utilization, group.emitted)
    # Only the elements that are taken out of a tuple are read.
    read = sum(
        _bytes(element.shape, inner.group(element).utilization) for element in parameter.users
    )
    return OperandUse(read, group.utilization, group.emitted)


def _bytes(shape: Shape, utilization: float) -> int:
    return int(shape.byte_size * utilization + 0.5)

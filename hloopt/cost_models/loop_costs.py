"""What each instruction of a loop's body costs one thread of a kernel that loops, in an iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2
from typing import Final, TypeAlias

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.parallel_loop import LoopMapping, LoopNode
from hloopt.analysis.parallel_loop.edges import leaf_count, shape_of
from hloopt.analysis.parallel_loop.thread_lanes import MOST_HANDED, LaneSplit, LaneValues
from hloopt.cost_models.instructions import NOTHING, UNITS, Latencies, Work, work_of
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import (
    ALIASES,
    FOLDING,
    HEROES,
    INDEXING,
    MOVING,
    PERMUTING,
    PLUMBING,
    RANDOM,
    SOURCES,
    op_table,
)
from hloopt.targets import Target

__all__ = ["AHEAD_ELEMENTS", "REGISTER_ELEMENTS", "IterationCosts"]

REGISTER_ELEMENTS: Final = 32
"""Numbers of an array that does not change, so many a thread at most, are read once and stay in registers."""

AHEAD_ELEMENTS: Final = 8
"""The most elements indexed by the iteration's number that a thread reads some iterations ahead."""


def _units(**counts: float) -> tuple[float, ...]:
    return tuple([counts.get(unit, 0.0) for unit in UNITS])


# Operands are read where they lie, under another index; the assembler sees constants.
_SAME_ELEMENTS: Final = PERMUTING - {"reverse"}
_FREE: Final = MOVING | ALIASES | SOURCES | {"after-all"}

_IN_MEMORY: Final = (
    FOLDING
    | HEROES - MOVING - INDEXING
    | RANDOM
    | PLUMBING - {"constant", "tuple"}
    | {"custom-call", "fusion"}
)

_ADDRESS: Final = Work(10.0, _units(alu=1, imad=1))
"""An index of the state's becomes an address: clamped, and multiplied with the size of an element."""


@dataclass
class IterationCosts:
    """Of one loop, by one mapping.

    mapping  how it is run
    needs    elements a work item computes of each value
    threads  that share a work item's work: 1, or those of a block
    lanes    threads that run a work item together, each with all of the state
    """

    mapping: LoopMapping
    needs: Mapping[LoopNode, float]
    latencies: Latencies
    target: Target
    threads: int = 1
    lanes: int = 1

    def __post_init__(self) -> None:
        self._works: dict[Instruction, Work] = {}
        body = self.mapping.parallel.loop.body
        self.states = {body.parameters[0], self.mapping.parallel.loop.condition.parameters[0]}
        self.stored = frozenset(self.mapping.stored)
        self.streamed = {
            one.update for one in self.mapping.parallel.carried if one.update is not None
        }
        self.split = LaneSplit()
        self.width = 1
        if self.mapping.kind == "thread":
            self._share()
        self.ahead = (
            frozenset(self._read_ahead(body)) if self.mapping.kind == "thread" else frozenset()
        )

    def _share(self) -> None:
        """Values that lanes exchange, as long as there are registers."""
        values = LaneValues(self.mapping.parallel)
        room, kept = float(MOST_HANDED), set()
        split = values.split(values.exchangeable(self.lanes), self.lanes)
        for entry in self.mapping.parallel.loop.body:
            count = self.needs.get((entry, 0), 0.0)
            if entry in split.exchanged and count <= room:
                room -= count
                kept.add(entry)
        self.split = split if kept == split.exchanged else values.split(frozenset(kept), self.lanes)
        self.width = values.width(self.lanes)

    def _read_ahead(self, body: Computation) -> Iterator[Instruction]:
        """Slices of invariants at positions that do not depend on the work item, as registers allow."""
        room, owned = float(AHEAD_ELEMENTS), self.mapping.parallel.owned
        for entry in body:
            number = self.reads_state(entry, 0) if entry.opcode == "dynamic-slice" else None
            if number is None or entry in self.split.grouped or not self.lies_in_memory(number):
                continue
            count = self.needs.get((entry, 0), 0.0)
            if count <= room and not any((at, 0) in owned for at in entry.operands[1:]):
                room -= count
                yield entry

    @property
    def is_block(self) -> bool:
        """Whether threads share a work item."""
        return self.mapping.kind == "block"

    def elements(self, node: LoopNode) -> float:
        """Elements that one thread computes of a value."""
        return float(ceil(self.needs.get(node, 0.0) / self.threads))

    def work(self, instruction: Instruction) -> Work:
        """One thread's work for an instruction that computes arrays."""
        known = self._works.get(instruction)
        if known is None:
            known = self._works[instruction] = self._whole(instruction)
        return known

    def shuffled(self, instruction: Instruction) -> Work:
        """An iteration's work for what another lane computed."""
        return Work(self.latencies.shuffle, _units(memory=self.elements((instruction, 0))))

    def _whole(self, instruction: Instruction) -> Work:
        count = max(self.elements((instruction, leaf)) for leaf in range(leaf_count(instruction)))
        if not count:
            return NOTHING
        found = self._work(instruction, count)
        if (instruction, 0) in self.stored and self.is_block:
            # Written by some threads, read by others: after a barrier, out of shared memory.
            wait = self.latencies.synchronize(self.threads) + self.latencies.shared
            units = _units(memory=2 * count, alu=count, control=1)
            found = Work(wait, units).after(found)
        return found

    def _work(self, instruction: Instruction, count: float) -> Work:
        opcode = instruction.opcode
        if opcode in _FREE:
            return NOTHING
        if instruction.op.is_elementwise:
            return work_of(instruction, self.latencies) * count
        rule = _RULES.get(opcode)
        return rule(self, instruction, count) if rule is not None else self._by_flops(instruction)

    def _by_flops(self, instruction: Instruction) -> Work:
        """An op without a rule: its multiply-adds, one after the other for each element of the result."""
        cost = instruction_cost(instruction)
        flops = cost.flops + 16 * cost.transcendentals
        results = max(
            1, sum(shape_of((instruction, n)).elements for n in range(leaf_count(instruction)))
        )
        each = max(1.0, flops / results)
        multiply = self.latencies.works["multiply", "f32"]
        count = max(self.elements((instruction, leaf)) for leaf in range(leaf_count(instruction)))
        return Work(each * multiply.chain, _units(fma=each * count))

    def reads_state(self, instruction: Instruction, number: int) -> int | None:
        """The element of the state that an operand is, where it is one that does not change and is read."""
        index = self._unchanged(instruction, number)
        return None if index is None or self.is_counted(index) else index

    def reads_counted(self, instruction: Instruction) -> bool:
        """Whether the first operand is an element of the state of ``is_counted``."""
        index = self._unchanged(instruction, 0)
        return index is not None and self.is_counted(index)

    def _unchanged(self, instruction: Instruction, number: int) -> int | None:
        """The element of the state that an operand is, where it is one that does not change."""
        operand = instruction.operands[number]
        while operand.opcode in _SAME_ELEMENTS | {"convert"}:
            operand = operand.operands[0]
        if operand.opcode != "get-tuple-element" or operand.operands[0] not in self.states:
            return None
        index: int = operand.attributes["index"]
        return index if self.mapping.parallel.carried[index].role == "invariant" else None

    def first(self, index: int) -> Instruction | None:
        """What makes an element of the first state, but for its shape; None where that is unknown."""
        state = self.mapping.parallel.loop.operands[0]
        if state.opcode != "tuple":
            return None
        found = state.operands[index]
        while found.opcode in _SAME_ELEMENTS:
            found = found.operands[0]
        return found

    def is_counted(self, index: int) -> bool:
        """Whether elements of the first state are numbers of their index, or all the same: nothing is read."""
        first = self.first(index)
        if first is None:
            return False
        return first.opcode == "iota" or (
            first.opcode == "broadcast" and first.operands[0].array.elements == 1
        )

    def lies_in_memory(self, index: int) -> bool:
        """Whether an element of the first state is there before the kernel, and not computed as it is read.

        What computes it element by element joins the kernel (``loop-fusion``).
        """
        first = self.first(index)
        return first is None or first.opcode in _IN_MEMORY

    def load(self, size: int) -> float:
        """Cycles of a load from an array of so many bytes."""
        if size <= self.target.l2_size // 2:
            return self.latencies.l2
        return self.latencies.memory


_Rule: TypeAlias = Callable[[IterationCosts, Instruction, float], Work]


def _dynamic_slice(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    """From memory where the array does not change; else out of registers, or of shared memory."""
    number = costs.reads_state(instruction, 0)
    if number is not None:
        if instruction in costs.ahead:
            return Work(0.0, _units(memory=count, alu=2, imad=1))
        shape = costs.mapping.parallel.carried[number].shape
        return Work(costs.load(shape.byte_size), _units(memory=count, alu=2)).after(_ADDRESS)
    if costs.reads_counted(instruction):
        return NOTHING
    return _picked(costs, instruction, count)


def _picked(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    if costs.is_block:
        return Work(costs.latencies.shared, _units(memory=count)).after(_ADDRESS)
    local = costs.needs.get((instruction.operands[0], 0), 1.0)
    choose = costs.latencies.works["select", "s32"].after(costs.latencies.works["compare", "s32"])
    # Registers have no addresses: each is compared, and taken or not, as a tree.
    return Work(choose.chain * max(1.0, ceil(log2(local + 1))), choose.units) * (local * count)


def _dynamic_update_slice(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    update = costs.elements((instruction.operands[1], 0))
    if instruction in costs.streamed:
        # Nothing waits for what is written.
        return Work(0.0, _units(memory=update, alu=2))
    if costs.is_block:
        wait = costs.latencies.shared + costs.latencies.synchronize(costs.threads)
        return Work(wait, _units(memory=count, control=1)).after(_ADDRESS)
    choose = costs.latencies.works["select", "s32"].after(costs.latencies.works["compare", "s32"])
    return choose * count


def _region(costs: IterationCosts, region: Computation) -> Work:
    """Of a computation of single numbers: its longest way, and all its instructions."""
    ends: dict[Instruction, float] = {}
    total = NOTHING
    for entry in region:
        work = work_of(entry, costs.latencies) if entry.op.is_elementwise else NOTHING
        before = max((ends[operand] for operand in entry.operands), default=0.0)
        ends[entry] = before + work.chain
        total = total.after(work)
    return Work(ends[region.root], total.units)


def _reduce(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    """One thread goes along; of a block each along its part, and then threads exchange partial results."""
    source = costs.needs.get((instruction.operands[0], 0), 1.0)
    results = max(1.0, costs.needs.get((instruction, 0), 1.0))
    combine = _region(costs, instruction.to_apply)
    if not costs.is_block:
        length = source / results
        return Work(combine.chain * length, combine.units) * (length * results)
    each = ceil(source / costs.threads)
    lanes = min(costs.threads, max(1.0, source / results))
    steps = ceil(log2(lanes)) if lanes > 1 else 0
    wait = combine.chain * (each + steps) + costs.latencies.shuffle * min(steps, 5)
    if steps:
        wait += costs.latencies.shared + costs.latencies.synchronize(costs.threads)
    units = tuple([unit * (each + steps) for unit in combine.units])
    return Work(wait, units).after(Work(0.0, _units(memory=min(steps, 5) + each, control=1)))


def _dot(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    """A multiply-add at a time for each element of the result.

    Of floats it is one instruction; operands come out of registers, or of shared memory.
    """
    lhs, rhs = instruction.operands[:2]
    flops = instruction_cost(instruction).flops
    depth = flops / 2 / max(1, instruction.array.elements)
    name = instruction.array.dtype.name
    wide = "f64" if name == "f64" else "s32" if instruction.array.dtype.is_integer else "f32"
    multiply, add = costs.latencies.works["multiply", wide], costs.latencies.works["add", wide]
    if wide == "s32":
        add = NOTHING  # one multiply-add
    step = Work(add.chain or multiply.chain, add.units).after(Work(0.0, multiply.units))
    found = Work(multiply.chain + depth * step.chain, step.units) * (depth * count)
    found = Work(multiply.chain + depth * step.chain, found.units)
    loads = 0.0
    if costs.is_block:
        loads = 2 * depth * count
        wait = costs.latencies.shared
    else:
        for number, operand in enumerate((lhs, rhs)):
            elements = costs.needs.get((operand, 0), 0.0)
            if costs.reads_state(instruction, number) is not None and elements > REGISTER_ELEMENTS:
                loads += elements
        wait = costs.latencies.l1 if loads else 0.0
    return found.after(Work(wait, _units(memory=loads)))


def _gather(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    if costs.reads_state(instruction, 0) is not None or costs.is_block:
        return _dynamic_slice(costs, instruction, count)
    return _picked(costs, instruction, count)


def _scatter(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    updates = instruction.operands[len(instruction.operands) // 2 + 1]
    number = max(1.0, costs.needs.get((updates, 0), 1.0))
    combine = _region(costs, instruction.to_apply)
    step = combine.after(_picked(costs, instruction, 1.0))
    return Work(step.chain * number, step.units) * number


def _map(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    return _region(costs, instruction.to_apply) * count


def _sort(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    """A network: log2(n) (log2(n) + 1) / 2 rounds of comparisons."""
    size = max(2, instruction.operands[0].array.dims[instruction.attributes["dimensions"][0]])
    levels = ceil(log2(size))
    rounds = levels * (levels + 1) // 2
    compare = _region(costs, instruction.to_apply)
    wait = compare.chain + costs.latencies.works["select", "f32"].chain
    if costs.is_block:
        wait += 2 * costs.latencies.shared + costs.latencies.synchronize(costs.threads)
    each = compare.after(Work(0.0, _units(alu=2, memory=2 if costs.is_block else 0)))
    return Work(wait * rounds, (each * (rounds * count)).units)


def _random(costs: IterationCosts, instruction: Instruction, count: float) -> Work:
    """Twenty rounds of Threefry for two words: an addition, a rotation and an exclusive or each."""
    add, xor = costs.latencies.works["add", "u32"], costs.latencies.works["xor", "u32"]
    return Work(20 * (add.chain + xor.chain), _units(alu=3 * 20 + 15)) * max(1.0, count / 2)


_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        "dot": _dot,
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "map": _map,
        "reduce": _reduce,
        "rng-bit-generator": _random,
        "scatter": _scatter,
        "sort": _sort,
    },
    otherwise="its flops",
)

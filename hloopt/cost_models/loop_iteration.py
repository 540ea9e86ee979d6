"""One iteration of a loop kernel: its longest chain of waits, and its instructions.

A warp starts its instructions in the order in which the assembler wrote them, and nothing is moved across the
branch that goes back.  An iteration of a warp alone therefore takes no less than its longest chain from the
state as it was to anything it computes; with ``unrolled`` iterations written one after the other, the longest
chain through all of them, and at the very least (``recurrence``) the longest path from the state to itself.

What is beside the chain fills its waits where the iteration is straight code.  Where instructions branch
(checked divisions, sines of huge angles), the assembler fills no waits from behind a branch: the chain is
taken to be followed by all the rest (R. L. Graham's bound for schedules in order, 1969), and loads are waited
for between the branches where they are first used, those of one such piece together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import ceil

from hloopt.analysis.parallel_loop import LoopNode
from hloopt.analysis.parallel_loop.edges import entered, leaf_count, regrouped
from hloopt.analysis.trip_count import counted_iterations
from hloopt.cost_models.instructions import NOTHING, UNITS, Work
from hloopt.cost_models.loop_costs import REGISTER_ELEMENTS, IterationCosts
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction

__all__ = ["IterationTime", "iteration_of"]

_CONTROL = UNITS.index("control")
_SHOWN = 3
_LONG = 8  # iterations after which the longest path from the state to itself decides how times grow


@dataclass(frozen=True, slots=True)
class IterationTime:
    """Cycles and instructions of an iteration.

    chain       cycles of one warp alone
    apart       cycles of the instructions beside the chain, where branches keep them from filling its waits
    recurrence  cycles that no order of instructions saves: what the next iteration's state waits for
    work        one thread's instructions
    slowest     the instructions on the longest chain that take longest, with their cycles, longest first
    """

    chain: float
    apart: float
    recurrence: float
    work: Work
    slowest: tuple[tuple[str, float], ...] = ()


def iteration_of(costs: IterationCosts, unrolled: int = 1) -> IterationTime:
    """The iteration of a loop; ``unrolled`` iterations are written one after the other."""
    loop = costs.mapping.parallel.loop
    body = loop.body
    branch = costs.latencies.branch
    if costs.is_block and costs.threads > 1:
        # All have written the next state before it is read.
        branch += costs.latencies.synchronize(costs.threads)
    state = [0.0] * leaf_count(body.parameters[0])
    first = _Timeline(costs)
    ends: list[float] = []
    work, last = NOTHING, 0.0
    slowest: tuple[tuple[str, float], ...] = ()
    path = _Path(frozenset(), (), NOTHING)
    for iteration in range(max(_LONG, unrolled)):
        timeline = first if iteration == 0 else _Timeline(costs)
        before = max(state, default=0.0) if iteration else 0.0
        timeline.run(loop.condition, [state])
        following = timeline.run(body, [state])
        if iteration == 0:
            work = timeline.work
            path = timeline.path()
            slowest = tuple(sorted(path.steps, key=lambda one: -one[1])[:_SHOWN])
        if iteration == unrolled - 1:
            last = max(timeline.latest, before)
        ends.append(max(following, default=0.0))
        state = following
    half = len(ends) // 2
    recurrence = (ends[-1] - ends[half - 1]) / (len(ends) - half)
    chain = (last + branch) / unrolled
    apart = 0.0
    if work.units[_CONTROL]:
        latencies = costs.latencies
        apart = latencies.issue(work, 1) - latencies.issue(path.work, 1) / unrolled
        apart = max(0.0, apart) + _waited_for(costs, body, path)
    shared, before = _group(costs, body)
    return IterationTime(
        max(chain, recurrence) + before,
        max(0.0, apart),
        recurrence + before,
        work.after(shared),
        slowest,
    )


def _group(costs: IterationCosts, body: Computation) -> tuple[Work, float]:
    """What lanes compute for as many iterations at once, before the first: an iteration's part, its cycles."""
    if not costs.split.grouped:
        return NOTHING, 0.0
    work, cycles = _part(costs, body, costs.split.grouped)
    advancing, step = _part(costs, body, costs.split.advancing)
    count = costs.mapping.parallel.iterations.count or costs.width
    groups = ceil(count / costs.width)
    shared = Work(0.0, (work * (groups / count)).units)
    return shared.after(advancing), cycles * groups / count + step


def _part(
    costs: IterationCosts, body: Computation, part: frozenset[Instruction]
) -> tuple[Work, float]:
    """Some values of an iteration alone, and how long they take."""
    if not part:
        return NOTHING, 0.0
    timeline = _Timeline(costs, grouping=True)
    state = body.parameters[0]
    for leaf in range(leaf_count(state)):
        timeline.put((state, leaf), timeline.arrival(state, leaf, 0.0), None, 0.0)
    for instruction in body:
        if instruction in part:
            timeline.step(instruction)
    issue = costs.latencies.issue(timeline.work, 1)
    work = Work(0.0, timeline.work.units)
    return work, max(timeline.latest, issue) + costs.latencies.branch


def _waited_for(costs: IterationCosts, body: Computation, path: _Path) -> float:
    """Cycles of loads beside the chain: of each piece between branches the longest.

    Parts of what is loaded are loaded where they are used.
    """
    pieces: dict[Instruction, int] = {}
    piece = 0
    for entry in body:
        pieces[entry] = piece
        if entry.op.is_elementwise and costs.work(entry).units[_CONTROL]:
            piece += 1
    waits: dict[int, float] = {}
    here: set[int] = set()
    for entry in body:
        if entry.opcode not in ("dynamic-slice", "gather") or costs.reads_state(entry, 0) is None:
            continue
        if entry in costs.split.grouped:
            continue
        wait = costs.work(entry).chain
        parts = [user for user in entry.users if user.opcode == "slice"]
        for part in parts or [entry]:
            used = _first_use(part, pieces)
            if part in path.instructions:
                here.add(used)
            waits[used] = max(waits.get(used, 0.0), wait)
    return sum(wait for used, wait in waits.items() if used not in here)


def _first_use(load: Instruction, pieces: Mapping[Instruction, int]) -> int:
    """The piece in which something computes with what is loaded."""
    first, pending = max(pieces.values()), [load]
    while pending:
        for user in pending.pop().users:
            if user.op.is_elementwise and user.opcode != "copy":
                first = min(first, pieces[user])
            elif user.opcode != "tuple":
                pending.append(user)
    return first


@dataclass(frozen=True, slots=True)
class _Path:
    """Instructions of the longest chain with their cycles, and the work of one element of each."""

    instructions: frozenset[Instruction]
    steps: tuple[tuple[str, float], ...]
    work: Work


@dataclass
class _Timeline:
    """When each value is there, in cycles; ``work`` adds up all instructions.

    ``grouping`` where it is that of a lane for its own iteration, before the first one of a group.
    """

    costs: IterationCosts
    grouping: bool = False
    times: dict[LoopNode, float] = field(default_factory=dict)
    via: dict[LoopNode, tuple[LoopNode | None, float]] = field(default_factory=dict)
    works: dict[Instruction, Work] = field(default_factory=dict)
    work: Work = NOTHING
    latest: float = 0.0
    last: LoopNode | None = None

    def run(self, computation: Computation, arguments: Sequence[Sequence[float]]) -> list[float]:
        """The times of the leaves of the root, given those of the parameters' leaves."""
        for parameter, leaves in zip(computation.parameters, arguments, strict=True):
            for leaf, time in enumerate(leaves):
                self.put((parameter, leaf), self.arrival(parameter, leaf, time), None, 0.0)
        for instruction in computation:
            if instruction.opcode != "parameter":
                self.step(instruction)
        return self.of(computation.root)

    def arrival(self, parameter: Instruction, leaf: int, time: float) -> float:
        """When an element of the state can be read; what does not change and has no register is loaded."""
        costs = self.costs
        if parameter not in costs.states:
            return time
        carried = costs.mapping.parallel.carried[leaf]
        if carried.role != "invariant":
            shared = costs.is_block and carried.role != "streamed" and carried.local_elements > 1
            return time + costs.latencies.shared if shared else time
        count = costs.needs.get((parameter, leaf), 0.0)
        return costs.latencies.l1 if count > REGISTER_ELEMENTS else 0.0

    def of(self, instruction: Instruction) -> list[float]:
        return [self.times[instruction, leaf] for leaf in range(leaf_count(instruction))]

    def put(self, node: LoopNode, time: float, source: LoopNode | None, cycles: float) -> None:
        self.times[node] = time
        self.via[node] = source, cycles
        if time > self.latest:
            self.latest, self.last = time, node

    def step(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode in ("tuple", "get-tuple-element"):
            for leaf, node in enumerate(regrouped(instruction)):
                self.same(node, (instruction, leaf))
        elif opcode in ("call", "fusion"):
            (called,) = entered(instruction)
            self.run(called, [self.of(operand) for operand in operands])
            for leaf in range(leaf_count(instruction)):
                self.same((called.root, leaf), (instruction, leaf))
        elif opcode == "conditional":
            self.choose(instruction)
        elif opcode == "while":
            self.loop(instruction)
        else:
            self.compute(instruction)

    def same(self, source: LoopNode, target: LoopNode) -> None:
        self.put(target, self.times[source], source, 0.0)

    def compute(self, instruction: Instruction) -> None:
        split = self.costs.split
        if instruction in split.apart and not self.grouping:
            self.put((instruction, 0), 0.0, None, 0.0)
            return
        if instruction in split.exchanged and not self.grouping:
            work = self.costs.shuffled(instruction)
            self.work = self.work.after(Work(0.0, work.units))
            self.put((instruction, 0), work.chain, None, work.chain)
            return
        work = self.costs.work(instruction)
        self.works[instruction] = Work(0.0, work.units)
        self.work = self.work.after(self.works[instruction])
        start, source = 0.0, None
        if instruction in self.costs.streamed:
            start, source = self.latest_of(instruction.operands[1:])
        else:
            start, source = self.latest_of(instruction.operands)
        for leaf in range(leaf_count(instruction)):
            self.put((instruction, leaf), start + work.chain, source, work.chain)

    def latest_of(self, operands: Sequence[Instruction]) -> tuple[float, LoopNode | None]:
        found: tuple[float, LoopNode | None] = (0.0, None)
        for operand in operands:
            for leaf in range(leaf_count(operand)):
                time = self.times[operand, leaf]
                if time > found[0]:
                    found = time, (operand, leaf)
        return found

    def choose(self, conditional: Instruction) -> None:
        """Threads of a warp that take different branches wait for each other: all branches are counted."""
        start, source = self.latest_of(conditional.operands[:1])
        ends = [start] * leaf_count(conditional)
        for branch, operand in zip(branches(conditional), conditional.operands[1:], strict=True):
            leaves = [max(start, time) for time in self.of(operand)]
            ends = [
                max(end, time) for end, time in zip(ends, self.run(branch, [leaves]), strict=True)
            ]
        for leaf, end in enumerate(ends):
            self.put((conditional, leaf), end, source, end - start)

    def loop(self, inner: Instruction) -> None:
        """A loop in a loop: its iterations, one after the other."""
        count = counted_iterations(inner).count
        start, source = self.latest_of(inner.operands)
        timeline = _Timeline(self.costs)
        leaves = [0.0] * leaf_count(inner)
        timeline.run(inner.condition, [leaves])
        timeline.run(inner.body, [leaves])
        cycles = count * (timeline.latest + self.costs.latencies.branch)
        self.works[inner] = Work(0.0, timeline.work.units) * count
        self.work = self.work.after(self.works[inner])
        for leaf in range(leaf_count(inner)):
            self.put((inner, leaf), start + cycles, source, cycles)

    def path(self) -> _Path:
        """The longest chain."""
        found: list[tuple[str, float]] = []
        passed: set[Instruction] = set()
        work, node = NOTHING, self.last
        while node is not None:
            source, cycles = self.via[node]
            passed.add(node[0])
            if cycles:
                found.append((node[0].name, cycles))
                count = max(1.0, self.costs.elements(node))
                work = work.after(self.works.get(node[0], NOTHING) * (1 / count))
            node = source
        return _Path(frozenset(passed), tuple(found), work)

"""The values of all instructions in one run, and which of them each was made of.

A module is run by the interpreter, and what instructions give is kept: in the entry, in what it calls, in
bodies of fusions, and in the first iterations of loops (``TraceScope`` says which).  A ``Trace`` answers what
an instruction gave and where the operands come from: through tuples, calls, fusions, branches and iterations,
so that how a module is divided into computations plays no part.

Arrays are kept whole up to a limit in all; of those after it a part of the elements is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret import Context, Evaluator, Value, evaluate_participants
from hloopt.interpret.control import branch_number, branches
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, has_side_effect
from hloopt.ops.traits import BODIES, CONTROL_FLOW, PLUMBING
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.inputs import positions
from hloopt.types import Array

__all__ = ["Leaf", "Path", "Place", "Seen", "Trace", "TraceScope", "observe", "same_part"]

Path: TypeAlias = "tuple[tuple[Instruction, int], ...]"
"""Which instructions have called, the outermost first, each with an iteration's number; empty in the entry."""


class Place(NamedTuple):
    """One execution of an instruction."""

    path: Path
    instruction: Instruction


class Leaf(NamedTuple):
    """An array of what an execution of an instruction gave: itself, or an element of a tuple."""

    place: Place
    at: tuple[int, ...] = ()


HEAD: Final = 4
"""Iterations of each loop that are kept where nothing else is asked for."""

MOST_BYTES: Final = 1 << 30
_MOST_VALUES: Final = 400_000
SAMPLE: Final = 4096
"""Elements that are kept of an array that is not kept whole."""


@dataclass(frozen=True)
class TraceScope:
    """What is kept: of loops their first iterations, and those that are named; of arrays as many as fit.

    bodies  iterations of which all values are kept, by the execution of the loop
    states  iterations of which the state is kept that they leave
    whole   arrays that are kept whole before all others
    most    bytes that are kept of all arrays together, before only parts of them are
    """

    bodies: Mapping[Place, frozenset[int]] = field(default_factory=dict)
    states: Mapping[Place, frozenset[int]] = field(default_factory=dict)
    whole: frozenset[Place] = frozenset()
    most: int = MOST_BYTES


@dataclass(frozen=True, slots=True)
class Seen:
    """An array: its elements in row-major order, all of them or the part that ``sampled`` takes."""

    flat: Array
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Of the array."""
        return int(np.prod(self.dims, dtype=np.int64))

    @property
    def is_whole(self) -> bool:
        """Whether all elements are there."""
        return self.flat.size == self.size

    def part(self) -> Array:
        """The elements that are kept of an array of this size in any case."""
        return sampled(self.flat) if self.is_whole else self.flat


def sampled(flat: Array) -> Array:
    """The part that is kept of a large array: the same places in all of its size."""
    if flat.size <= SAMPLE:
        return flat
    return flat[np.random.default_rng(flat.size).integers(0, flat.size, SAMPLE)]


def same_part(one: Seen, other: Seen) -> tuple[Array, Array]:
    """The same elements of both."""
    if one.is_whole and other.is_whole:
        return one.flat, other.flat
    return one.part(), other.part()


class Trace:
    """What one participant computed.

    seen    the arrays, by what gave them; none of tuples and parameters, but for the entry's parameters
    trips   how many iterations each execution of a loop ran
    taken   the number of the branch that a conditional took
    kept    the roots whose computations' values were kept
    """

    def __init__(self, module: Module, inputs: Sequence[Array]) -> None:
        self.module = module
        self.seen: dict[Leaf, Seen] = {}
        self.trips: dict[Place, int] = {}
        self.taken: dict[Place, int] = {}
        self.kept: set[Place] = set()
        self._fixed: dict[Place, bool] = {}
        arrays = iter(inputs)
        for parameter in module.entry.parameters:
            for index, _ in positions(parameter.shape):
                self.seen[Leaf(Place((), parameter), index)] = _whole(next(arrays))

    def origin(self, leaf: Leaf) -> Leaf:
        """What computed a value: not what only passed it on, nor what called its computation."""
        while (passed := self._passed(leaf)) is not None:
            leaf = passed
        return leaf

    def route(self, leaf: Leaf) -> list[Leaf]:
        """A value, all that passed it on, and in the end its origin."""
        found = [leaf]
        while (passed := self._passed(found[-1])) is not None:
            found.append(passed)
        return found

    def _passed(self, leaf: Leaf) -> Leaf | None:
        (path, one), index = leaf
        match one.opcode:
            case "tuple":
                return Leaf(Place(path, one.operands[index[0]]), index[1:]) if index else None
            case "get-tuple-element":
                return Leaf(Place(path, one.operands[0]), (one.tuple_index, *index))
            case "opt-barrier" | "add-dependency" | "domain":
                return Leaf(Place(path, one.operands[0]), index)
            case "parameter":
                return self._argument(leaf)
            case "call":
                return Leaf(Place((*path, (one, 0)), one.to_apply.root), index)
            case "fusion":
                return Leaf(Place((*path, (one, 0)), one.calls.root), index)
            case "conditional" if leaf.place in self.taken:
                root = branches(one)[self.taken[leaf.place]].root
                return Leaf(Place((*path, (one, 0)), root), index)
            case "async-done" if one.operands[0].opcode == "async-start":
                start = one.operands[0]
                return Leaf(Place((*path, (start, 0)), start.calls.root), index)
            case "while":
                return self._left(leaf)
        return None

    def _argument(self, leaf: Leaf) -> Leaf | None:
        """What the caller of a computation gave for a parameter."""
        (path, one), index = leaf
        if not path:
            return None
        caller, iteration = path[-1]
        outer = path[:-1]
        if caller.opcode == "while":
            if iteration:
                before = Place((*outer, (caller, iteration - 1)), caller.body.root)
                return Leaf(before, index) if self._has(before) else None
            return Leaf(Place(outer, caller.operands[0]), index)
        if caller.opcode == "conditional":
            number = self.taken[Place(outer, caller)]
            return Leaf(Place(outer, caller.operands[number + 1]), index)
        return Leaf(Place(outer, caller.operands[one.parameter_number]), index)

    def _left(self, leaf: Leaf) -> Leaf | None:
        """What the last iteration of a loop left, where it was kept."""
        (path, one), index = leaf
        trips = self.trips.get(leaf.place)
        if trips is None:
            return None
        if not trips:
            return Leaf(Place(path, one.operands[0]), index)
        last = Place((*path, (one, trips - 1)), one.body.root)
        return Leaf(last, index) if self._has(last) else None

    def _has(self, root: Place) -> bool:
        """Whether an iteration was kept."""
        return root in self.kept or root.instruction.opcode == "parameter"

    def operands(self, place: Place) -> list[tuple[int, Leaf]]:
        """Every array that an execution reads: the number of the operand, and what computed it."""
        path, one = place
        return [
            (number, self.origin(Leaf(Place(path, operand), index)))
            for number, operand in enumerate(one.operands)
            for index, _ in positions(operand.shape)
        ]

    def is_fixed(self, leaf: Leaf) -> bool:
        """Whether a value was made of constants alone."""
        pending = [leaf.place]
        while pending:
            place = pending.pop()
            known = self._fixed.get(place)
            if known is not None:
                continue
            reads = [one.place for _, one in self.operands(place)]
            unknown = [one for one in reads if one not in self._fixed]
            if unknown:
                pending += [place, *unknown]
            else:
                opens = place.instruction.opcode == "parameter" or has_side_effect(
                    place.instruction
                )
                self._fixed[place] = not opens and all(self._fixed[one] for one in reads)
        return self._fixed[leaf.place]

    def results(self) -> list[Leaf]:
        """What computed each result of the entry, in the order of the flat list."""
        root = self.module.entry.root
        return [self.origin(Leaf(Place((), root), index)) for index, _ in positions(root.shape)]


def _whole(array: Array) -> Seen:
    return Seen(np.ascontiguousarray(array).reshape(-1), array.shape)


def _flat(value: Value, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Array]]:
    if isinstance(value, tuple):
        for number, element in enumerate(value):
            yield from _flat(element, (*index, number))
    else:
        yield index, value


@dataclass(slots=True)
class _Running:
    """A call that is running: where, and how often each instruction inside has run."""

    place: Place
    is_kept: bool
    counts: dict[Instruction, int] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)

    def inside(self, iteration: int) -> Path:
        """The path of what is called, in an iteration."""
        found = self.paths.get(iteration)
        if found is None:
            path, caller = self.place
            found = self.paths[iteration] = (*path, (caller, iteration))
        return found


class _Tracing:
    """Fills a trace while the interpreter runs; ``left`` is how many bytes and values may still be kept."""

    def __init__(self, trace: Trace, window: TraceScope) -> None:
        self._trace, self._window = trace, window
        self._bytes, self._values = window.most, _MOST_VALUES
        self._bodies = _observed(trace.module)
        self._running: list[_Running] = []

    def observing(self, instruction: Instruction, run: Evaluator) -> Evaluator:
        """As ``run``, and the value is kept where the window has it."""
        plumbing = instruction.opcode in PLUMBING and instruction.opcode != "constant"
        if instruction.home not in self._bodies or (plumbing and not instruction.is_root):
            return run
        calls = instruction.opcode in CONTROL_FLOW | BODIES

        def evaluate(one: Instruction, values: tuple[Value, ...], context: Context) -> Value:
            place, is_kept = self._place(one)
            if calls:
                value = self._inside(_Running(place, is_kept), run, values, context)
            else:
                value = run(one, values, context)
            if is_kept and one.is_root:
                self._trace.kept.add(place)
            if (is_kept and not plumbing) or (self._window.states and self._is_state(place)):
                self._keep(place, value)
            return value

        return evaluate

    def _inside(
        self, running: _Running, run: Evaluator, values: tuple[Value, ...], context: Context
    ) -> Value:
        place, trace = running.place, self._trace
        one = place.instruction
        if running.is_kept and one.opcode == "conditional":
            trace.taken[place] = branch_number(values[0], len(branches(one)))
        self._running.append(running)
        try:
            value = run(one, values, context)
        finally:
            self._running.pop()
        if running.is_kept and one.opcode == "while":
            trace.trips[place] = _trips(one, running.counts)
        return value

    def _place(self, one: Instruction) -> tuple[Place, bool]:
        """Which execution this is, and whether its value is kept."""
        if not self._running:
            return Place((), one), True
        running = self._running[-1]
        iteration = running.counts.get(one, 0)
        running.counts[one] = iteration + 1
        if running.place.instruction.opcode != "while":
            return Place(running.inside(0), one), running.is_kept
        is_kept = running.is_kept and (
            iteration < HEAD or iteration in self._window.bodies.get(running.place, ())
        )
        return Place(running.inside(iteration), one), is_kept

    def _keep(self, place: Place, value: Value) -> None:
        for index, array in _flat(value):
            self._values -= 1
            if self._values < 0 and place not in self._window.whole:
                return
            seen = _whole(array)
            if place not in self._window.whole:
                if array.nbytes > self._bytes:
                    seen = Seen(sampled(seen.flat), array.shape)
                self._bytes -= seen.flat.nbytes
            self._trace.seen[Leaf(place, index)] = seen

    def _is_state(self, place: Place) -> bool:
        """Whether this is what an iteration leaves that was asked for."""
        path, one = place
        if not path or not one.is_root:
            return False
        caller, iteration = path[-1]
        wanted = self._window.states.get(Place(path[:-1], caller), ())
        return iteration in wanted and one is caller.body.root


def _trips(loop: Instruction, counts: Mapping[Instruction, int]) -> int:
    """How many iterations a loop ran, from how often what is inside was executed."""
    if loop.condition.root in counts:
        return counts[loop.condition.root] - 1
    return max((count for one, count in counts.items() if one.home is loop.body), default=0)


def _observed(module: Module) -> set[Computation]:
    """The computations that run one instruction after the other, and bodies of fusions."""
    found, pending = {module.entry}, [module.entry]
    while pending:
        for one in pending.pop():
            if one.opcode in CONTROL_FLOW | BODIES:
                new = set(called_computations(one)) - found
                found |= new
                pending += new
    return found


def observe(
    module: Module,
    inputs: TrialInputs,
    window: TraceScope | None = None,
    *,
    excess_precision: bool = False,
    rounding: int | None = None,
) -> list[Trace]:
    """Run a module by the interpreter, and keep what its instructions give: a trace for each participant.

    ``rounding`` is another way to round than the definition's (``interpret.rounding``).  Raises as
    ``evaluate_participants``.
    """
    traces = [Trace(module, arrays) for arrays in inputs.arrays]
    evaluate_participants(
        module,
        inputs.arrays,
        *inputs.counts,
        excess_precision=excess_precision,
        host=inputs.host.restarted(),
        rounding=rounding,
        observers=[_Tracing(trace, window or TraceScope()) for trace in traces],
    )
    return traces

"""Induction variables of loops whose trip count is known."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import StateSlot, WhileLoop
from hloopt.analysis.parallel_loop import ParallelLoop
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import EmissionFrame
from hloopt.codegen.loops.places import Counted, Turning, place_state
from hloopt.codegen.scalars import literal
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Select, Var, as_expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT, LONG, Type
from hloopt.types import DType

__all__ = ["IterationCounting", "IterationGroups"]

_STARTS = {"dynamic-slice": 1, "dynamic-update-slice": 2}


class IterationCounting:
    """The affine values ``first + t * step`` of iteration t: elements of the state, and starts of slices.

    variables  by the number of the element
    turning    the same for elements whose numbers wrap around as their types do
    starts     scalar instructions of the body
    """

    def __init__(self, loop: ParallelLoop, index_type: Type) -> None:
        self.loop = loop
        self.bits = 31 if index_type == INT else 63
        self.variables: dict[int, Affine] = {}
        self.turning: dict[int, Affine] = {}
        self.starts: dict[Instruction, Affine] = {}
        count = loop.iterations.count
        if loop.iterations.kind != "known" or count is None:
            return
        inductions = Inductions(WhileLoop(loop.loop))
        for carried in loop.carried:
            if carried.role in ("uniform", "owned"):
                found = inductions.variable(StateSlot(carried.number))
                if found is not None:
                    straight = self._goes_straight(found, count)
                    (self.variables if straight else self.turning)[carried.number] = found
        for start in _starts(loop.loop):
            found = inductions.affine(start)
            if found is not None and self._goes_straight(found, count - 1):
                self.starts[start] = found

    def _goes_straight(self, number: Affine, last: int) -> bool:
        """Whether it never wraps around up to iteration ``last``, nor leaves the range of indices."""
        ends = number.first, number.first + max(last, 0) * number.step
        return all(
            _holds(number.inner, end) and _holds(number.dtype, end) and abs(end) < 1 << self.bits
            for end in ends
        )

    def last(self, number: int, affine: Affine) -> Expr:
        """An induction variable's value after the last iteration."""
        after = affine.at(self.loop.iterations.count or 0)
        return literal(after, self.loop.carried[number].shape.dtype)

    def iterations(self, e: Elements, count: int) -> tuple[Scope, Index]:
        """Begin a loop that counts by the first number that goes up by one: its block, and the iteration."""
        block, counter, first = self._loop(e, count, "iter")
        return block, Symbol(counter.name, first, first + count - 1).index - first

    def groups(self, e: Elements, count: int, width: int) -> IterationGroups:
        """Begin a loop over groups of ``width`` iterations."""
        block, group, first = self._loop(e, count, "group", width)
        return IterationGroups(block, group, first, count, width)

    def _loop(self, e: Elements, count: int, hint: str, width: int = 0) -> tuple[Scope, Var, int]:
        first = next((one.first for one in self.variables.values() if one.step == 1), 0)
        kind = e.loads.index_type if first + count + width < 1 << self.bits else LONG
        return *e.scope.loop(first, first + count, hint, kind, width or 1), first

    def place(self, e: Elements, frame: EmissionFrame, iteration: Index) -> None:
        """Register the values of the induction variables in an iteration."""
        for number, found in self.variables.items():
            place = Counted(iteration * found.step + found.first, found.dtype)
            place_state(e, frame, self.loop.loop, number, place)
        for start, found in self.starts.items():
            e.places[frame, start, 0] = Counted(iteration * found.step + found.first, found.dtype)

    def place_turning(self, e: Elements, frame: EmissionFrame, iteration: Index) -> None:
        """The same for numbers that wrap around, where the iteration is known and there is no state."""
        for number, found in self.turning.items():
            place_state(e, frame, self.loop.loop, number, Turning(iteration, found))


@dataclass(frozen=True, slots=True)
class IterationGroups:
    """Iterations in groups.

    block  of the loop over the groups
    group  the variable that has the number of a group's first iteration
    first  number of all
    count  of all iterations
    width  iterations of a group
    """

    block: Scope
    group: Var
    first: int
    count: int
    width: int

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + self.count

    def own(self, e: Elements, lane: Index) -> Index:
        """The iteration of a lane; past the last one, that one again, which is not read."""
        own = self.group + lane
        if self.count % self.width:
            own = Select.of(own < self.end, own, self.end - 1)
        name = e.scope.declare(self.group.type, own, "own").name
        return Symbol(name, self.first, self.end - 1).index - self.first

    def behind(self, e: Elements) -> Expr:
        """The number behind the last iteration of the group."""
        end = self.group + self.width
        if self.count % self.width:
            return e.scope.declare(self.group.type, Select.of(end < self.end, end, self.end), "end")
        return end

    def iterations(self, e: Elements, behind: Expr) -> tuple[Scope, Index]:
        """Begin a loop over the iterations of the group: its block, and the iteration."""
        block, counter = e.scope.loop(self.group, behind, "iter", self.group.type)
        return block, Symbol(counter.name, self.first, self.end - 1).index - self.first

    def turn(self, iteration: Index) -> Expr:
        """The number of an iteration in its group, from 0."""
        return as_expr(iteration + self.first) - self.group


def _holds(kind: DType, value: int) -> bool:
    signed = kind.kind == "signed"
    low, high = (-(1 << (kind.bits - 1)), 1 << (kind.bits - 1)) if signed else (0, 1 << kind.bits)
    return low <= value < high


def _starts(loop: Instruction) -> Iterator[Instruction]:
    """Scalars at which slices of the body start."""
    seen = set()
    for instruction in loop.body:
        first = _STARTS.get(instruction.opcode)
        for operand in instruction.operands[first:] if first is not None else ():
            if operand not in seen and not operand.array.rank and operand.opcode != "constant":
                seen.add(operand)
                yield operand

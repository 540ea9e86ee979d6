"""Lanes of a warp compute the values of one iteration each and exchange them in every iteration."""

from __future__ import annotations

from dataclasses import field

from hloopt.analysis.index import Index, Indices, Symbol, symbols_of
from hloopt.analysis.parallel_loop import Carried
from hloopt.analysis.parallel_loop.edges import shape_of
from hloopt.analysis.parallel_loop.thread_lanes import MOST_HANDED
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, EmissionFrame, ValuePlace
from hloopt.codegen.loops.places import place_state
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Cast, Expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.sweeps import WARP

__all__ = ["LaneGroup", "Lanes"]


@dataclass(frozen=True)
class Lanes:
    """Which lanes work together.

    values  that they exchange, in the body
    width   how many, and iterations that are computed at once
    thread  of the block
    fixed   the variables that are the same for all of them
    states  elements of the state that each of them advances through all iterations of a group
    """

    values: frozenset[Instruction]
    width: int
    thread: Index
    fixed: frozenset[Symbol]
    states: tuple[Carried, ...] = ()

    @property
    def lane(self) -> Index:
        """The number of a lane among them."""
        return self.thread % self.width


@dataclass
class LaneGroup:
    """The iterations that are computed at once.

    lanes  that share them
    frame  of the iteration that is the lane's own
    lines  before the first of the iterations
    head   at the beginning of each of them
    turn   its number among them
    loop   whose iterations they are
    """

    lanes: Lanes
    frame: EmissionFrame
    lines: Scope
    head: Scope
    turn: Expr
    loop: Instruction
    _known: dict[At, Expr] = field(default_factory=dict)
    _from: Expr | None = None

    def place(self, e: Elements, frame: EmissionFrame) -> None:
        """Register where the values are for reads within an iteration."""
        for value in self.lanes.values:
            e.places[frame, value, 0] = _Handed(value, self)
        for carried in self.lanes.states:
            place_state(e, frame, self.loop, carried.number, _HandedState(carried, self))

    def holds(self, at: At) -> bool:
        """Whether lanes have an element for each other: it is one for all of them, and registers are left."""
        if at in self._known:
            return True
        return len(self._known) < MOST_HANDED and self.lanes.fixed.issuperset(symbols_of(at.index))

    def element(self, e: Elements, at: At) -> Emission:
        """The element of this iteration: another lane computed it before the first of the group."""
        name = self._known.get(at)
        if name is not None:
            return name
        with e.within(self.lines):
            mine = yield at
        with e.within(self.head):
            lane = self._lane(e)
            kind = e.uses.type(shape_of((at.instruction, at.leaf)).dtype)
            own = mine if mine.type == kind else Cast(kind, mine)
            shuffled = e.uses.call("shuffle_index", own, lane, type=kind)
            name = self.head.declare(kind, shuffled, at.instruction.name)
        self._known[at] = name
        return name

    def _lane(self, e: Elements) -> Expr:
        """The lane that has this iteration."""
        if self._from is None:
            lanes = self.lanes
            first = lanes.thread % WARP - lanes.lane if lanes.width < WARP else Index(0)
            base = e.symbol(first, "first_lane", 0, WARP - lanes.width)
            turn = self.turn if base == Index(0) else base + self.turn
            self._from = self.head.declare(INT, Cast(INT, turn), "from_lane")
        return self._from


@dataclass(frozen=True)
class _Handed(ValuePlace):
    """Where another lane has the elements of a value."""

    instruction: Instruction
    group: LaneGroup

    def holds(self, e: Elements, index: Indices) -> bool:
        return self.group.holds(self._at(index))

    def element(self, e: Elements, index: Indices) -> Emission:
        return (yield from self.group.element(e, self._at(index)))

    def _at(self, index: Indices) -> At:
        return At(self.instruction, index, 0, self.group.frame)


@dataclass(frozen=True)
class _HandedState(ValuePlace):
    """Where the lane of this iteration has what a single number of the state was before it."""

    carried: Carried
    group: LaneGroup

    def element(self, e: Elements, index: Indices) -> Emission:
        first = tuple(Index(0) for _ in self.carried.shape.dims)
        state = self.group.loop.body.parameters[0]
        at = At(state, first, self.carried.number, self.group.frame)
        return (yield from self.group.element(e, at))

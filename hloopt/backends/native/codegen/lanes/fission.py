"""Loops over lanes by fission: a work item's statements, each run of them for all work items of a block.

Uniform code is executed once.  Straight-line varying code becomes a loop over the lanes,
with all of it in one body, so that what is computed and used there stays in vector registers; only what is
live after the loop is in an array with an element per lane.  A loop whose iterations all work items execute
together stays outside; one that work items leave at different iterations continues while any lane is
active, with the other lanes masked.  An ``if`` that depends on the lane stays within the loop over
lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from hloopt.analysis.index import Index, Symbol, symbols_of
from hloopt.backends.native.codegen.lanes.varying import LANES, Varying, is_leave, target_of
from hloopt.codegen.device import is_scalar
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    Array,
    Call,
    Element,
    Expr,
    IndexValue,
    Member,
    Number,
    Operand,
    Var,
    as_expr,
    both,
    eq,
    ne,
    subexpressions,
)
from hloopt.kernel_ir.rewriting import expanded, rewritten
from hloopt.kernel_ir.scope import Names
from hloopt.kernel_ir.statements import (
    Body,
    Break,
    Declare,
    Do,
    For,
    If,
    Let,
    Return,
    Set,
    Statement,
    Target,
    While,
    expressions_of,
    mapped,
    walk,
)
from hloopt.kernel_ir.types import BOOL, BYTE, INT, UINT

__all__ = ["for_lanes"]


_ITERATIONS: Final = 256
"""Iterations of the outermost loop after which it checks whether the run shall end."""


def for_lanes(
    work_item: Body, number: str, first: Var, width: Operand, most: int, fresh: Names
) -> Body:
    """The code ``work_item`` of one work item, transformed for a block of work items.

    number  the name of the work item's number there
    first   the number of the block's first work item
    width   how many work items the block has, ``most`` at most
    """
    varying = Varying(work_item, {number})
    mentions = Counter(varying.every_name(work_item))
    writer = _Writer(varying, mentions, fresh, number, first, as_expr(width), most)
    return writer.write(work_item, None, outermost=True)


@dataclass(frozen=True)
class _Mask:
    """The lanes that a loop still runs for, and the names declared in it, which need no mask."""

    alive: Var
    inside: frozenset[str]

    def keeps(self, statement: Statement) -> bool:
        """Whether lanes that have left must not execute a statement: what it changes outlives an iteration."""
        return isinstance(statement, Do) or (
            isinstance(statement, Set) and target_of(statement) not in self.inside
        )


@dataclass
class _Level:
    """A block that is being made, and the pending varying statements at its end.

    lanes  the pending statements, for all lanes
    later  uniform statements, to be executed after them
    names  that these change, or have of all lanes
    """

    mask: _Mask | None
    outermost: bool
    done: list[Statement] = field(default_factory=list)
    lanes: list[Statement] = field(default_factory=list)
    later: list[Statement] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


@dataclass
class _Writer:
    varying: Varying
    mentions: Counter[str]
    fresh: Names
    number: str
    first: Var
    width: Expr
    most: int
    wide: dict[str, Array] = field(default_factory=dict)

    def write(self, body: Body, mask: _Mask | None, *, outermost: bool = False) -> Body:
        level = _Level(mask, outermost)
        for one in body:
            if not self._may_wait(one) and level.names.intersection(
                self.varying.every_name((one,))
            ):
                self._flush(level)
            if is_leave(one):
                self._leave(one, level)
            elif isinstance(one, Let | Declare | Set | Do):
                self._line(one, level)
            else:
                self._block(one, level)
        self._flush(level)
        return tuple(level.done)

    def _may_wait(self, statement: Statement) -> bool:
        """Whether a statement can be delayed after the pending ones, in order with others that are."""
        if self.varying.differs(statement):
            return False
        return isinstance(statement, Set) or self.varying.gathers(statement)

    # ---- statements ---------------------------------------------------------------------------------

    def _line(self, line: Statement, level: _Level) -> None:
        if self.varying.is_varying(line):
            self._in_order(line, level)
        elif isinstance(line, Let | Declare) and not self.varying.gathers(line):
            level.done.append(self._once(line))
        else:
            # Lanes read it before it changes.
            self._wait(line, level, target_of(line))
            if isinstance(line, Do):
                self._flush(level)

    def _in_order(self, line: Statement, level: _Level) -> None:
        """Add to the pending statements; what would prevent vectorisation gets a separate loop over lanes."""
        if not self._is_scalar(line):
            level.lanes.append(line)
            return
        changed = set(map(target_of, walk(level.lanes)))
        if not isinstance(line, Let | Declare) or not changed.isdisjoint(self.varying.names(line)):
            self._flush(level)
        level.done += self._stretch([line], level.mask, is_simd=False)

    def _is_scalar(self, line: Statement) -> bool:
        """Whether a line cannot be part of a vectorised loop over work items.

        It calls a function without a vector form, or neighbouring work items read non-contiguous memory:
        compilers refuse whole loops for such reads where they might do them one by one.
        """
        value = line.value if isinstance(line, Let) else None
        if isinstance(value, Element) and any(
            isinstance(one, IndexValue) and _leaps(one.index, self.number)
            for at in value.at
            for one in subexpressions(at)
        ):
            return True
        return any(
            isinstance(one, Call) and is_scalar(one.function)
            for expr in expressions_of(line)
            for one in subexpressions(expr)
        )

    def _wait(self, statement: Statement, level: _Level, *changes: str) -> None:
        """Execute it after the pending statements: none of them uses what it reads of lanes or changes."""
        level.later.append(statement)
        level.names.update(changes, *map(self.varying.gathered, walk((statement,))))

    def _leave(self, leave: Statement, level: _Level) -> None:
        assert isinstance(leave, If)
        if not self.varying.is_varying(leave):
            self._flush(level)
            level.done.append(self._once(leave))
            return
        assert level.mask is not None, "the loop around is left by lanes"
        alive = level.mask.alive
        level.lanes.append(Set(alive, both([alive, leave.test.negated()])))
        self._flush(level)
        goes_on, lane = (Var(self.fresh.fresh(hint), INT) for hint in ("goes_on", "lane"))
        any_is = Set(goes_on, self.wide[alive.name][lane], "|")
        level.done += [
            Declare(goes_on, (as_expr(0),)),
            For(lane, as_expr(0), self.width, (any_is,)),
            If(goes_on.negated(), (Break(),)),
        ]

    def _block(self, block: Statement, level: _Level) -> None:
        if not self.varying.differs(block):
            if self.varying.gathers(block) and not isinstance(block, If):
                self._wait(block, level)
            else:
                self._flush(level)
                level.done += self._checking_stop(self._once(block), block, level)
            return
        if self.varying.is_varying(block):
            level.lanes.append(block)
            return
        self._flush(level)
        mask = level.mask
        if self.varying.leaves(block):
            mask = self._mask(block, level)

        def inside(body: Body) -> Body:
            return self.write(body, mask)

        level.done += self._checking_stop(mapped(block, self._expr_of, inside), block, level)

    def _mask(self, loop: Statement, level: _Level) -> _Mask:
        """The mask of a loop, at first all lanes that reach it."""
        alive = Var(self.fresh.fresh("alive"), INT)
        inside = {target_of(one) for one in walk((loop,)) if isinstance(one, Let | Declare)}
        start = as_expr(1) if level.mask is None else level.mask.alive
        level.done.append(self._widened(alive))
        level.done += self._stretch([Set(alive, start)], None)
        return _Mask(alive, frozenset((*inside, alive.name)))

    def _checking_stop(self, made: Statement, block: Statement, level: _Level) -> list[Statement]:
        """The outermost loop checks now and then whether the run shall end.

        One of few iterations does not, nor a quick one: straight-line code for a single work item.
        """
        asks = isinstance(block, While)
        if isinstance(block, For):
            has_loops = self.varying.differs(block) or any(
                isinstance(one, For | While) for one in walk(block.body)
            )
            asks = has_loops and _iterations(block) > _ITERATIONS
        if not (asks and level.outermost and isinstance(made, For | While)):
            return [made]
        turns = Var(self.fresh.fresh("turns"), UINT)
        should_stop = Call("hloopt::should_stop", (), BOOL)
        test = both([eq(turns % _ITERATIONS, 0), should_stop])
        body = (*made.body, Set(turns, as_expr(1), "+"), If(test, (Return(),)))
        return [Declare(turns, (as_expr(0),)), replace(made, body=body)]

    # ---- once ---------------------------------------------------------------------------------------

    def _once(self, statement: Statement) -> Statement:
        """A uniform statement."""
        if isinstance(statement, Declare) and isinstance(statement.target, Array):
            statement = replace(statement, target=_in_bytes(statement.target))
        return mapped(statement, self._expr_of, lambda body: tuple(map(self._once, body)))

    # ---- loops over lanes ---------------------------------------------------------------------------

    def _flush(self, level: _Level) -> None:
        if level.lanes:
            level.done += self._stretch(level.lanes, level.mask)
        level.done += map(self._once, level.later)
        level.lanes, level.later, level.names = [], [], set()

    def _stretch(
        self, statements: Sequence[Statement], mask: _Mask | None, *, is_simd: bool = True
    ) -> list[Statement]:
        """A loop over lanes; before it an array for each name that is live after it."""
        here = Counter(self.varying.every_name(statements))
        found: list[Statement] = [
            self._widened(target)
            for one in statements
            if isinstance(one, Let | Declare)
            for target in [one.var if isinstance(one, Let) else one.target]
            if isinstance(target, Array) or here[target.name] < self.mentions[target.name]
        ]
        lane = Var(self.fresh.fresh("lane"), INT)
        body: list[Statement] = []
        for one in statements:
            made = self._in_lane(one, lane)
            if mask is not None and any(map(mask.keeps, walk((one,)))):
                made = [If(self.wide[mask.alive.name][lane], tuple(made))]
            body += made
        if body:
            found.append(For(lane, as_expr(0), self.width, tuple(body), is_simd=is_simd))
        return found

    def _widened(self, target: Var | Array) -> Declare:
        """Declare what all lanes have of a variable or an array."""
        dims = target.dims if isinstance(target, Array) else ()
        kind = target.element if isinstance(target, Array) else target.type
        # Compilers make masks of numbers, not of bytes that are 0 or 1.
        array = Array(target.name, INT if kind == BOOL else kind, (*dims, self.most), "local")
        self.wide[target.name] = array
        return Declare(array, align=64)

    def _in_lane(self, statement: Statement, lane: Var) -> list[Statement]:
        def value(expr: Expr) -> Expr:
            return self._expr_of(expr, lane)

        def target(place: Expr) -> Target:
            if isinstance(place, Member):
                return replace(place, operand=target(place.operand))
            if isinstance(place, Var):
                return self.wide[place.name][lane] if place.name in self.wide else place
            assert isinstance(place, Element), "what is set is a variable or in memory"
            return self._element(place, lane)

        def inside(body: Body) -> Body:
            return tuple(made for one in body for made in self._in_lane(one, lane))

        if isinstance(statement, Set):
            return [
                replace(statement, target=target(statement.target), value=value(statement.value))
            ]
        wide = self.wide.get(target_of(statement))
        if wide is not None and isinstance(statement, Let):
            return [Set(wide[lane], value(statement.value))]
        if wide is not None and isinstance(statement, Declare):
            return [
                Set(wide[(number, lane) if len(wide.dims) > 1 else lane], value(one))
                for number, one in enumerate(statement.values)
            ]
        return [mapped(statement, value, inside)]

    def _expr_of(self, expr: Expr, lane: Var | None = None) -> Expr:
        """An expression for a lane; without one, outside of loops over lanes."""

        def symbol(one: Symbol) -> Expr:
            assert lane is not None, "only lanes have numbers"
            if one.name == self.number:
                return self.first + lane
            return self.wide[one.name][lane] if one.name in self.wide else as_expr(one.index)

        def replaced(one: Expr) -> Expr | None:
            match one:
                case Element():
                    return self._element(one, lane)
                case Var() if lane is not None and one.name in self.wide:
                    place = self.wide[one.name][lane]
                    return ne(place, 0) if one.type == BOOL else place
                case IndexValue() if lane is not None:
                    own = {self.number, *self.wide}
                    if not own.isdisjoint(at.name for at in symbols_of((one.index,))):
                        return expanded(one.index, symbol)
            return None

        return rewritten(expr, replaced)

    def _element(self, element: Element, lane: Var | None) -> Element:
        array = element.array
        at = tuple(self._expr_of(one, lane) for one in element.at)
        if array.name not in self.wide:
            return Element(_in_bytes(array), at)
        own = () if lane is None or array.space == LANES else (lane,)
        return Element(self.wide[array.name], (*at, *own))


def _in_bytes(array: Array) -> Array:
    """Compilers vectorise truth values only where they are bytes."""
    return replace(array, element=BYTE) if array.element == BOOL else array


def _leaps(index: Index, number: str) -> bool:
    """Whether an index multiplies or divides a number."""
    return any(
        (atom.name == number and abs(count) != 1)
        if isinstance(atom, Symbol)
        else number in (one.name for one in symbols_of((atom.dividend,)))
        for atom, count in index.terms
    )


def _iterations(loop: For) -> int:
    """The trip count of a loop whose bounds are numbers; else 0."""
    ends = [
        one.index.constant if isinstance(one, IndexValue) else one.value
        for one in (loop.first, loop.stop)
        if (isinstance(one, IndexValue) and one.index.is_constant) or isinstance(one, Number)
    ]
    match ends:
        case [int(first), int(stop)]:
            return stop - first
    return 0

"""Loops over lanes: a unit's statements, each stretch of them for all units of a block.

What is the same for all units is done once.  Straight code that differs becomes a loop over the lanes, with all
of it in one body, so that what is computed and used there stays in vector registers; only what is needed behind
the stretch lies in an array with an element a lane.  A loop whose trips all units make together stays around
its lanes; one that each unit leaves at a trip of its own goes on while any lane does, and lanes that have left
change nothing.  An ``if`` that depends on the lane stays within the loop over lanes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from hloopt.codegen.native.lanes.statements import (
    ACROSS,
    LOADED,
    Block,
    Choice,
    Line,
    Statement,
    is_scalar,
    read_statements,
    replaced_names,
    tokens,
    walk,
)
from hloopt.codegen.native.lanes.varying import Varying
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.scope import Names, Scope

__all__ = ["across", "write_lanes"]


_TRIPS: Final = 256
"""Trips of the loop around all others after which it asks whether the run shall end."""

_COUNTED: Final = re.compile(r"^for \(.* = (-?\d+); .* < (-?\d+); .*\)$")

_TRUTH: Final = "int"
"""What truth values are in an array: compilers make masks of numbers, not of bytes that are 0 or 1."""


def across(name: str) -> str:
    """What all lanes have of a value: an array, to be read and changed outside of the loops over lanes."""
    return f"{ACROSS}({name})"


def write_lanes(unit: Scope, target: Scope, number: str, first: str, width: str, most: int) -> None:
    """Write what ``unit`` says of one unit for a block of units.

    number  the name of the unit's number there
    first   the number of the block's first unit
    width   how many units the block has, ``most`` at most
    """
    statements = read_statements(unit.statements())
    varying = Varying(statements, {number})
    mentions = Counter(name for one in walk(statements) for name in _names(one))
    writer = _Writer(varying, mentions, target.names, number, first, width, most, target)
    writer.write(statements, target, ())


def _names(one: Line | Block) -> Iterator[str]:
    for name in tokens(one.text if isinstance(one, Line) else one.header):
        yield name[len(ACROSS) + 1 : -1] if name.startswith(ACROSS) else name


def _every_name(statements: Iterable[Statement]) -> Iterator[str]:
    for one in walk(list(statements)):
        yield from _names(one)


@dataclass(frozen=True)
class _Mask:
    """The lanes that a loop still runs for, and the names declared in it, which need no mask."""

    name: str
    inside: frozenset[str]


@dataclass
class _Pending:
    """A stretch that is not written yet: for all lanes, and what all have alike, to be set after it."""

    lanes: list[Statement] = field(default_factory=list)
    later: list[Statement] = field(default_factory=list)
    told: set[str] = field(default_factory=set)


@dataclass
class _Writer:
    varying: Varying
    mentions: Counter[str]
    names: Names
    number: str
    first: str
    width: str
    most: int
    outermost: Scope
    wide: dict[str, Line] = field(default_factory=dict)

    def write(
        self, statements: Sequence[Statement], target: Scope, masks: tuple[_Mask, ...]
    ) -> None:
        pending = _Pending()
        for statement in statements:
            if not self._may_wait(statement) and pending.told & set(_every_name([statement])):
                self._flush(pending, target, masks)
            if isinstance(statement, Line):
                self._line(statement, pending, target, masks)
            elif isinstance(statement, Choice):
                differs = any(self.varying.is_varying(one.header) for one in statement.branches)
                if differs or not self.varying.differs(statement):
                    self._lane_or_once(statement, pending, target, masks)
                else:
                    self._flush(pending, target, masks)
                    self._choice(statement, target, masks)
            else:
                self._block(statement, pending, target, masks)
        self._flush(pending, target, masks)

    def _may_wait(self, statement: Statement) -> bool:
        """Whether a statement can be written behind a stretch, in order with others that are."""
        if self.varying.differs(statement):
            return False
        return _is_across_any(statement) or (
            isinstance(statement, Line) and bool(statement.sets and not statement.declares)
        )

    # ---- statements ---------------------------------------------------------------------------------

    def _line(self, line: Line, pending: _Pending, target: Scope, masks: tuple[_Mask, ...]) -> None:
        if line.leaves:
            self._leave(line, pending, target, masks)
        elif self.varying.is_varying(line.text):
            self._in_order(line, pending, target, masks)
        elif line.declares and not _is_across(line.text):
            target.line(line.text)
        else:
            # What lanes read of it they read before it changes.
            self._wait(line, pending, {line.sets})
            if not line.sets:
                self._flush(pending, target, masks)

    def _in_order(
        self, line: Line, pending: _Pending, target: Scope, masks: tuple[_Mask, ...]
    ) -> None:
        """Add to the stretch; what would keep it from becoming vectors gets a loop over lanes of its own."""
        if not is_scalar(line, self.number):
            pending.lanes.append(line)
            return
        changed = {
            name
            for one in walk(pending.lanes)
            if isinstance(one, Line)
            for name in (one.declares, one.sets)
        }
        if not line.declares or not changed.isdisjoint(line.names):
            self._flush(pending, target, masks)
        self._flush(_Pending([line]), target, masks, alone=True)

    def _wait(self, statement: Statement, pending: _Pending, changes: set[str]) -> None:
        """Write a statement behind the stretch: nothing before mentions what it reads of lanes or changes."""
        pending.later.append(statement)
        pending.told |= changes | {
            name[len(ACROSS) + 1 : -1]
            for one in walk([statement])
            for name in tokens(one.text if isinstance(one, Line) else one.header)
            if name.startswith(ACROSS)
        }

    def _leave(
        self, line: Line, pending: _Pending, target: Scope, masks: tuple[_Mask, ...]
    ) -> None:
        if not self.varying.is_varying(line.leaves):
            self._flush(pending, target, masks)
            target.line(line.text)
            return
        alive = masks[-1].name
        value = f"{alive} && !({line.leaves})"
        pending.lanes.append(Line(f"{alive} = {value};", sets=alive, value=value))
        self._flush(pending, target, masks)
        goes_on, lane = self.names.fresh("goes_on"), self.names.fresh("lane")
        target.line(f"int {goes_on} = 0;")
        inner = target.block(f"for (int {lane} = 0; {lane} < {self.width}; ++{lane})")
        inner.line(f"{goes_on} |= {alive}[{lane}];")
        target.line(f"if (!{goes_on}) break;")

    def _lane_or_once(
        self, statement: Statement, pending: _Pending, target: Scope, masks: tuple[_Mask, ...]
    ) -> None:
        if self.varying.differs(statement):
            pending.lanes.append(statement)
        else:
            self._flush(pending, target, masks)
            self._copy(statement, target)

    def _block(
        self, block: Block, pending: _Pending, target: Scope, masks: tuple[_Mask, ...]
    ) -> None:
        is_shared = not self.varying.is_varying(block.header)
        if _is_across_any(block) and not self.varying.differs(block):
            self._wait(block, pending, set())
        elif not self.varying.differs(block) or not is_shared:
            self._lane_or_once(block, pending, target, masks)
        else:
            self._flush(pending, target, masks)
            if self.varying.leaves(block) is not None:
                alive = self.names.fresh("alive")
                target.line(f"alignas(64) int {alive}[{self.most}];")
                self.wide[alive] = Line(f"int {alive};", declares=alive, kind="int")
                start = f"{masks[-1].name}[{{}}]" if masks else "1"
                lane = self._lanes(target)
                lane.scope.line(f"{alive}[{lane.name}] = {start.format(lane.name)};")
                inside = frozenset(
                    one.declares for one in walk(block.inside) if isinstance(one, Line)
                )
                masks = (*masks, _Mask(alive, inside | {alive}))
            with self._asking(block, target) as scope:
                self.write(block.inside, scope, masks)

    @contextmanager
    def _asking(self, block: Block, target: Scope) -> Iterator[Scope]:
        """The body of a loop; the outermost one asks now and then whether the run shall end.

        One of few trips does not, nor one that is quick: straight code for a single unit, so often.
        """
        has_loops = self.varying.differs(block) or any(
            isinstance(one, Block) for one in walk(block.inside)
        )
        counted = _COUNTED.search(block.header)
        is_long = has_loops and counted and int(counted[2]) - int(counted[1]) > _TRIPS
        asks = target is self.outermost and (is_long or block.header.startswith("while"))
        turns = self.names.fresh("turns") if asks else ""
        if asks:
            target.line(f"unsigned {turns} = 0;")
        scope = target.block(self._text(block.header))
        yield scope
        if asks:
            scope.line(f"if (++{turns} % {_TRIPS} == 0 && hloopt::tired()) return;")

    def _choice(self, choice: Choice, target: Scope, masks: tuple[_Mask, ...]) -> None:
        for branch in choice.branches:
            is_first = branch is choice.branches[0]
            scope = target.block(branch.header) if is_first else target.otherwise(branch.header)
            self.write(branch.inside, scope, masks)

    def _copy(self, statement: Statement, target: Scope) -> None:
        """Write a statement as it stands."""
        if isinstance(statement, Line):
            target.line(self._text(statement.text))
        elif isinstance(statement, Block):
            with self._asking(statement, target) as scope:
                for one in statement.inside:
                    self._copy(one, scope)
        else:
            for branch in statement.branches:
                is_first = branch is statement.branches[0]
                header = self._text(branch.header)
                scope = target.block(header) if is_first else target.otherwise(header)
                for one in branch.inside:
                    self._copy(one, scope)

    # ---- loops over lanes ---------------------------------------------------------------------------

    def _flush(
        self,
        pending: _Pending,
        target: Scope,
        masks: tuple[_Mask, ...],
        *,
        alone: bool = False,
    ) -> None:
        if pending.lanes:
            self._declare(pending.lanes, target)
            lane = self._lanes(target, simd=not alone)
            for statement in pending.lanes:
                self._in_lane(statement, lane, masks)
        for statement in pending.later:
            self._copy(statement, target)
        pending.lanes, pending.later, pending.told = [], [], set()

    def _declare(self, statements: Sequence[Statement], target: Scope) -> None:
        """An array for each name that is needed behind a stretch."""
        here = Counter(_every_name(statements))
        for line in statements:
            if not (isinstance(line, Line) and line.declares):
                continue
            name = line.declares
            if line.count or here[name] < self.mentions[name]:
                self.wide[name] = line
                places = f"[{line.count}][{self.most}]" if line.count else f"[{self.most}]"
                kind = _TRUTH if line.kind == "bool" else line.kind
                target.line(f"alignas(64) {kind} {name}{places};")

    def _lanes(self, target: Scope, *, simd: bool = True) -> _Lane:
        name = self.names.fresh("lane")
        if simd:
            target.line("#pragma omp simd")
        scope = target.block(f"for (int {name} = 0; {name} < {self.width}; ++{name})")
        return _Lane(name, scope)

    def _in_lane(self, statement: Statement, lane: _Lane, masks: tuple[_Mask, ...]) -> None:
        if isinstance(statement, Line):
            for text in self._lane_lines(statement, lane.name):
                masked = masks and self._lasts(statement, masks[-1])
                test = f"if ({masks[-1].name}[{lane.name}]) " if masked else ""
                lane.scope.line(f"{test}{text}")
            return
        masked = masks and any(
            self._lasts(one, masks[-1]) for one in walk([statement]) if isinstance(one, Line)
        )
        scope = lane.scope
        if masked:
            scope = scope.when(f"{masks[-1].name}[{lane.name}]")
        self._nested(statement, _Lane(lane.name, scope))

    def _nested(self, statement: Statement, lane: _Lane) -> None:
        if isinstance(statement, Line):
            for text in self._lane_lines(statement, lane.name):
                lane.scope.line(text)
            return
        branches = [statement] if isinstance(statement, Block) else statement.branches
        for branch in branches:
            header = self._text(branch.header, lane.name)
            is_first = branch is branches[0]
            scope = lane.scope.block(header) if is_first else lane.scope.otherwise(header)
            for one in branch.inside:
                self._nested(one, _Lane(lane.name, scope))

    def _lane_lines(self, line: Line, lane: str) -> Iterator[str]:
        name = line.declares
        if name not in self.wide:
            if not name and line.sets in self.wide and not self.wide[line.sets].count:
                yield f"{line.sets}[{lane}] = {self._text(line.value, lane)};"
            elif line.kind == "bool" and (loaded := LOADED.match(line.value)):
                where = self._text(loaded["index"], lane)
                yield f"const bool {name} = ((const unsigned char*){loaded['pointer']})[{where}] != 0;"
            else:
                yield self._text(line.text, lane, plain=not line.is_plain)
        elif line.count and line.value:
            for number, value in enumerate(_elements(line.value)):
                yield f"{name}[{number}][{lane}] = {self._text(value, lane)};"
        elif line.value:
            yield f"{name}[{lane}] = {self._text(line.value, lane)};"

    @staticmethod
    def _lasts(line: Line, mask: _Mask) -> bool:
        """Whether a line changes what is there after a trip."""
        if line.declares:
            return False
        return not (line.sets and line.sets in mask.inside)

    def _text(self, text: str, lane: str = "", *, plain: bool = False) -> str:
        """A text for a lane, or as it is; ``plain``: it may change what it names."""
        if not lane:
            return replaced_names(text, {}, frozenset(), "")
        names = {name: f"{name}[{lane}]" for name, line in self.wide.items() if not line.count}
        if not plain:
            truths = [name for name in names if self.wide[name].kind == "bool"]
            names |= {name: f"({name}[{lane}] != 0)" for name in truths}
        names[self.number] = f"({self.first} + {lane})"
        arrays = frozenset(name for name, line in self.wide.items() if line.count)
        return replaced_names(text, names, arrays, lane)


@dataclass(frozen=True)
class _Lane:
    """The loop over lanes that is being written: the name of the lane, and the loop's body."""

    name: str
    scope: Scope


def _is_across(text: str) -> bool:
    return any(name.startswith(ACROSS + "(") for name in tokens(text))


def _is_across_any(statement: Statement) -> bool:
    return any(
        _is_across(one.text if isinstance(one, Line) else one.header) for one in walk([statement])
    )


def _elements(value: str) -> Iterator[str]:
    """The values between braces, split at the commas between them."""
    depth, begin = 0, 1
    for at, letter in enumerate(value):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if (letter == "," and depth == 1) or (letter == "}" and not depth):
            if value[begin:at].strip():
                yield value[begin:at].strip()
            begin = at + 1

"""Which rewrite gives the first value that differs, of all that differs between two stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hloopt.analysis.differences import Difference, differences
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, calls_by_attribute
from hloopt.prover.bisection import ChangedInstruction, ChangedSide, instruction_line
from hloopt.prover.localizing import Located
from hloopt.prover.observing import Leaf, Place, Trace
from hloopt.runtime.inputs import positions

__all__ = ["rewritten"]

_MOST: Final = 12
_STEPS: Final = 3
"""Steps from the first value that differs within which what was rewritten is taken to belong to it."""

_PASSING: Final = frozenset({"get-tuple-element", "tuple"})


def rewritten(
    before: Module, after: Module, located: Located | None
) -> tuple[ChangedInstruction, ...]:
    """The rewrite that gives the first value that differs; where that is not known, what differs first."""
    listed = differences(before, after)
    changed = [(one.before, one.after) for one in listed]
    found: dict[Instruction, ChangedInstruction] = {}

    def add(entry: Instruction | None, side: ChangedSide) -> None:
        if entry is not None and len(found) < _MOST:
            one = ChangedInstruction.of(entry, side, is_first=located is not None)
            found.setdefault(entry, one)

    if located is not None:
        near = _near(located)
        if located.before is not None:
            add(located.before.place.instruction, "before")
        add(located.after.place.instruction, "after")
        for leaf in located.alone:
            add(leaf.place.instruction, "after")
        for leaf in located.missing:
            if leaf.place.instruction.opcode != "parameter":
                add(leaf.place.instruction, "before")
        own = [(one.before, one.after) for one in listed if _is_own(one)]
        changed = sorted(
            (*_renamed(near, before), *changed),
            key=lambda one: (
                min(max(near.steps(*one), -1), 1),
                one not in own,
                near.steps(*one),
            ),
        )
        is_only = len(own) == 1
        changed = [one for one in changed if near.steps(*one) <= _STEPS or (is_only and one in own)]
    for one, other in changed:
        add(one, "before")
        add(other, "after")
    return tuple(found.values())


def _is_own(difference: Difference) -> bool:
    """Whether an instruction of both modules itself computes otherwise, and not only what it reads or runs."""
    before, after = difference.before, difference.after
    if before is None or after is None or difference.what.startswith(("operand", "result")):
        return False
    return difference.what not in calls_by_attribute(before)


def _renamed(near: _Near, before: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Instructions near by whose name is the same in the first module, and whose text is not."""
    names = {(entry.home.name, entry.name): entry for entry in before.instructions()}
    for entry in near.around:
        other = names.get((entry.home.name, entry.name))
        changed = other is not None and instruction_line(other) != instruction_line(entry)
        if other is not None and changed and entry.home.module is not before:
            yield other, entry


@dataclass(frozen=True)
class _Near:
    """How many steps instructions are from a value that differs.

    around  what it was made of and what reads it, with the calls, fusions and loops around it, by steps; what
            was lost before it; below 0 what passed on an operand that it should not have
    bodies  computations that it runs; of loops around it what decides how often these run
    """

    around: Mapping[Instruction, int]
    bodies: frozenset[Computation]

    def steps(self, *entries: Instruction | None) -> int:
        """How many steps the nearest is away; more than ``_STEPS`` where none is near."""
        return min(
            0
            if entry is not None and entry.computation in self.bodies
            else self.around.get(entry, _STEPS + 1)
            if entry is not None
            else _STEPS + 1
            for entry in entries
        )


def _near(located: Located) -> _Near:
    leaves = [located.after, *([] if located.before is None else [located.before])]
    callers = [caller for leaf in leaves for caller, _ in leaf.place.path]
    own = [leaf.place.instruction for leaf in leaves]
    is_right = located.sides.agrees(1, located.after)  # and in a place where it does not belong
    bodies = [
        computation
        for entry in own
        if entry.opcode != "fusion" and not is_right
        for computation in called_computations(entry)
    ]
    bodies += [caller.condition for caller in callers if caller.opcode == "while"]
    lost = [leaf.place.instruction for leaf in located.lost]
    around = dict.fromkeys([*own, *callers, *lost], 0)
    for side, leaf in enumerate((located.before, located.after)):
        if leaf is not None:
            trace = located.sides.trace(side)
            around |= dict.fromkeys(_passing(trace, leaf), 0)
            for entry, step in _read(trace, leaf):
                around.setdefault(entry, step)
    for wrong in _wrong_operands(located):
        read = _read(located.sides.after, wrong)
        around |= {entry: -1 for entry, _ in read if entry.opcode in _PASSING}
    back, ahead = callers, [*own, *callers]
    for step in range(1, _STEPS + 1):
        back = [operand for entry in back for operand in entry.operands if operand not in around]
        around.update(dict.fromkeys(back, step))
        ahead = [user for entry in ahead for user in entry.users if user not in around]
        around.update(dict.fromkeys(ahead, step))
    return _Near(around, frozenset(bodies))


def _wrong_operands(located: Located) -> Iterator[Leaf]:
    """What the second module's value reads in place of operands that it should read."""
    if located.before is None:
        return
    own = [leaf for _, leaf in located.sides.before.operands(located.before.place)]
    theirs = [leaf for _, leaf in located.sides.after.operands(located.after.place)]
    if len(own) == len(theirs):
        yield from (
            right for left, right in zip(own, theirs, strict=True) if left in located.missing
        )


def _passing(trace: Trace, leaf: Leaf) -> Iterator[Instruction]:
    """What passes a value on to be a result."""
    root = trace.module.entry.root
    for index, _ in positions(root.shape):
        passed = trace.route(Leaf(Place((), root), index))
        if passed[-1] == leaf:
            yield from (each.place.instruction for each in passed)


def _read(trace: Trace, leaf: Leaf) -> Iterator[tuple[Instruction, int]]:
    """What a value was made of, by steps back: also in other computations, and what passed values on."""
    level, known = [leaf.place], {leaf.place}
    for step in range(1, _STEPS + 1):
        level, last = [], level
        for path, one in last:
            for operand in one.operands:
                for index, _ in positions(operand.shape):
                    passed = trace.route(Leaf(Place(path, operand), index))
                    yield from ((each.place.instruction, step) for each in passed)
                    if passed[-1].place not in known:
                        known.add(passed[-1].place)
                        level.append(passed[-1].place)

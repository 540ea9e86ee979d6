"""Loops of Python that were traced: thousands of copies that every pass of the compiler visits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import ProgramPlan
from hloopt.findings.repeats import CopySource, Repeats, repeats
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.expand.computations import loop
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.pass_ import PassLog
from hloopt.rewrite.source_lines import lines_text
from hloopt.types import array

__all__ = ["copies", "instructions"]

_LEAST: Final = 400
"""Instructions of all copies from which on compilation is visibly longer."""
_MOST: Final = 20_000
"""Instructions up to which the copies are written as a loop and planned again."""
_SLOWER: Final = 3.0
"""How much longer a run may take: fusion across copies and their launches without a loop are lost."""


def copies(subject: Subject) -> Iterator[FindingCandidate]:
    """Runs of copies, the longest of each computation that runs by itself."""
    module = subject.module
    for computation in module:
        if len(computation) < _LEAST:
            continue
        found = repeats(computation)
        if found is None or not _LEAST <= len(found.members) <= _MOST or _plan(found) is None:
            continue
        count, total = len(found.copies), len(found.members)
        lines = tuple(
            dict.fromkeys(
                line for one in found.copies[0] for line in module.user_lines(one.metadata)
            )
        )
        place = f" of {lines_text(lines)}" if lines else ""
        yield FindingCandidate(
            found.members,
            f"{count:,} copies of the same {found.period} instructions{place} follow one another: a loop of "
            f"Python that was traced {count:,} times. All passes, fusion and code generation treat each copy "
            f"anew, {total:,} of the {module.instruction_count():,} instructions of the module.",
            (
                FindingRemedy(
                    "model",
                    "jax.lax.scan or jax.lax.fori_loop in place of the Python loop, with what differs between "
                    "iterations (weights, constants) stacked in one array with a first dimension; unroll=4 "
                    "keeps some fusion across iterations; tf.while_loop in TensorFlow",
                ),
            ),
            _rolled,
            counted=instructions,
            unit="instructions",
            holds=_is_no_slower,
        )


def instructions(module: Module) -> float:
    """What each pass of a compiler visits."""
    return float(module.instruction_count())


def _is_no_slower(before: ProgramPlan, after: ProgramPlan) -> bool:
    return after.seconds <= _SLOWER * before.seconds


@dataclass(frozen=True)
class _LoopPlan:
    """What a loop carries.

    found    the copies
    carried  slots that the next copy reads, with what the first one reads
    final    slots that are read from the last copy after the loop, besides those
    every    slots that are read from other copies: all their values are kept
    later    what needs a value of the copies, in order
    """

    found: Repeats
    carried: dict[int, Instruction]
    final: tuple[int, ...]
    every: tuple[int, ...]
    later: tuple[Instruction, ...]


def _plan(found: Repeats) -> _LoopPlan | None:
    """None where a value from outside needs one of the copies, or two readers begin with others."""
    members = set(found.members)
    home = found.copies[0][0].home
    later: dict[Instruction, None] = {}
    for one in home:
        if one not in members and any(
            operand in members or operand in later for operand in one.operands
        ):
            later[one] = None
    carried: dict[int, Instruction] = {}
    for row in found.sources:
        for source in row:
            if any(one in later for one in source.outside):
                return None
            if source.previous:
                assert source.slot is not None, "it is in the copy before"
                first = source.outside[0]
                like = found.copies[0][source.slot]
                if carried.setdefault(source.slot, first) is not first or not _alike(first, like):
                    return None
    final, every = [], []
    last = len(found.copies) - 1
    for slot in range(found.period):
        read = {
            number
            for number, copy in enumerate(found.copies)
            if copy[slot].is_root or any(user not in members for user in copy[slot].users)
        }
        if read - {last}:
            every.append(slot)
        elif read and slot not in carried:
            final.append(slot)
    return _LoopPlan(found, carried, tuple(final), tuple(every), tuple(later))


def _alike(one: Instruction, other: Instruction) -> bool:
    return one.is_array and (one.array.dtype, one.array.dims) == (
        other.array.dtype,
        other.array.dims,
    )


def _rolled(module: Module, places: Sequence[Instruction]) -> bool:
    """Write the copies as one loop."""
    found = repeats(places[0].home)
    plan = None if found is None else _plan(found)
    if plan is None:
        return False
    _Roller(module, plan).write()
    DeadCodeElimination().run(module, PassLog())  # slices that each copy had of its own
    return True


class _Roller:
    """Writes the loop of a plan behind all that it reads, and before all that reads it."""

    def __init__(self, module: Module, plan: _LoopPlan) -> None:
        self.plan = plan
        self.found = plan.found
        self.home = self.found.copies[0][0].home
        members, later = set(self.found.members), set(plan.later)
        first = [one for one in self.home if one not in members and one not in later]
        edit.put_in_order(self.home, [*first, *self.found.members, *plan.later])
        position = plan.later[0] if plan.later else self.home
        self.writer = Writer(position, module, self.found.copies[0][0].metadata)
        self.pieces: dict[tuple[Instruction, ...], _Pieces] = {}
        self.fixed: dict[tuple[Instruction, ...], Term] = {}
        for row in self.found.sources:
            for source in row:
                if source.slot is None and source.outside not in self.fixed:
                    self.fixed[source.outside] = self._stacked(source.outside)

    def _stacked(self, given: tuple[Instruction, ...]) -> Term:
        """One value for all copies, the array that they slice, or all values with a first dimension."""
        pieces = _pieces(given)
        if pieces is not None:
            self.pieces[given] = pieces
            return self.writer.term(pieces.whole)
        terms = [self.writer.term(one) for one in given]
        if len(set(given)) == 1:
            return terms[0]
        arrays = [one.constant_array for one in given]
        known = [one for one in arrays if one is not None]
        if len(known) == len(arrays):
            return self.writer.constant(np.stack(known))
        return self.writer.concatenate(0, *(one.reshape(1, *one.dims) for one in terms))

    def write(self) -> None:
        """The loop, and its results in the places of what the copies computed."""
        plan, copies = self.plan, self.found.copies
        carried = list(plan.carried)
        state = [self.writer.term(one) for one in plan.carried.values()]
        last = copies[-1]
        state += [self.writer.splat(last[slot].array, 0) for slot in plan.final]
        for slot in plan.every:
            row = last[slot].array
            state.append(self.writer.splat(array(row.dtype, (len(copies), *row.dims)), 0))
        fixed = list(self.fixed.values())

        def step(inner: Writer, index: Term, values: Sequence[Term]) -> list[Term]:
            given = dict(zip(self.fixed, values[len(state) :], strict=True))
            before = dict(zip(carried, values, strict=False))
            made = self._copy(inner, index, before, given)
            kept = values[len(carried) + len(plan.final) : len(state)]
            rows = [
                all_rows.updated(
                    made[slot].reshape(1, *made[slot].dims), _at(inner, index, all_rows)
                )
                for slot, all_rows in zip(plan.every, kept, strict=True)
            ]
            return [*(made[slot] for slot in (*carried, *plan.final)), *rows]

        results = loop(self.writer, len(copies), state, step, fixed)
        self._replace(dict(zip((*carried, *plan.final), results, strict=False)), results)

    def _copy(
        self,
        inner: Writer,
        index: Term,
        before: dict[int, Term],
        given: dict[tuple[Instruction, ...], Term],
    ) -> list[Term]:
        """The instructions of one copy, in the body of the loop."""
        made: list[Term] = []
        rows: dict[tuple[Instruction, ...], Term] = {}

        def value(source: CopySource) -> Term:
            if source.slot is not None:
                return before[source.slot] if source.previous else made[source.slot]
            whole = given[source.outside]
            if len(set(source.outside)) == 1:
                return whole
            if source.outside not in rows:
                dims = source.outside[0].array.dims
                pieces = self.pieces.get(source.outside)
                starts, sizes = (
                    (_at(inner, index, whole), (1, *dims))
                    if pieces is None
                    else (pieces.starts(inner, index), pieces.sizes)
                )
                rows[source.outside] = whole.dynamic_slice(starts, sizes).reshape(*dims)
            return rows[source.outside]

        position = inner.position
        for one, sources in zip(self.found.copies[1], self.found.sources, strict=True):
            operands = tuple(value(source).instruction for source in sources)
            made.append(inner.term(build.clone(one, position, operands)))
        return made

    def _replace(self, last: dict[int, Term], results: Sequence[Term]) -> None:
        members = set(self.found.members)
        every = dict(
            zip(self.plan.every, results[len(results) - len(self.plan.every) :], strict=True)
        )
        for number, copy in enumerate(self.found.copies):
            for slot, one in enumerate(copy):
                users = [user for user in one.users if user not in members]
                if not users and not one.is_root:
                    continue
                if slot in every:
                    ranges = ((number, number + 1), *([None] * len(one.array.dims)))
                    term = every[slot].slice(*ranges).reshape(*one.array.dims)
                else:
                    term = last[slot]
                new = self.writer.fitted(term, one.shape).instruction
                for user in users:
                    edit.replace_operand(user, one, new)
                if one.is_root:
                    edit.set_root(self.home, new)
        for one in reversed(self.found.members):
            edit.remove(one)


@dataclass(frozen=True)
class _Pieces:
    """Slices of ``whole`` that go on by ``step`` in dimension ``along`` from copy to copy."""

    whole: Instruction
    first: tuple[int, ...]
    sizes: tuple[int, ...]
    along: int
    step: int

    def starts(self, inner: Writer, index: Term) -> list[Term]:
        """Where the slice of an iteration begins."""
        found = [inner.scalar(index.dtype, start) for start in self.first]
        found[self.along] = index * self.step + self.first[self.along]
        return found


def _pieces(given: Sequence[Instruction]) -> _Pieces | None:
    """The slices that values are, but for reshapes, where they follow one another at one distance."""
    slices = []
    for one in given:
        while one.opcode == "reshape":
            one = one.operands[0]
        slices.append(one)
    whole = slices[0].operands[0] if slices[0].opcode == "slice" else None
    if whole is None or any(
        one.opcode != "slice" or one.operands[0] is not whole for one in slices
    ):
        return None
    ranges = [one.attributes["slice"] for one in slices]
    if any(entry.stride != 1 for row in ranges for entry in row):
        return None
    starts = np.array([[entry.start for entry in row] for row in ranges])
    steps = np.diff(starts, axis=0)
    moved = np.flatnonzero(steps[0])
    if len(moved) != 1 or (steps != steps[0]).any():
        return None
    along = int(moved[0])
    return _Pieces(
        whole,
        tuple(int(start) for start in starts[0]),
        slices[0].array.dims,
        along,
        int(steps[0][along]),
    )


def _at(inner: Writer, index: Term, whole: Term) -> list[Term]:
    zero = inner.scalar(index.dtype, 0)
    return [index, *([zero] * (len(whole.dims) - 1))]

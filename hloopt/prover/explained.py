"""Where two runs with other results begin to differ: one place for each change that the results show."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError
from hloopt.interpret.partitioning import is_partitioned
from hloopt.ir import Instruction
from hloopt.prover.bisection import ChangedInstruction
from hloopt.prover.comparing import RunsCompared
from hloopt.prover.executor import Run
from hloopt.prover.first_difference import FirstDifference, described
from hloopt.prover.localizing import Located, locate
from hloopt.prover.observing import observe
from hloopt.prover.parts_search import first_in_parts
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["Explained", "explained"]

_MOST_PLACES: Final = 3


@dataclass(frozen=True)
class Explained:
    """Where two runs begin to differ: ``located`` is the first of ``differences``; ``note`` is why none is.

    ``parts`` are the instructions where parts begin to differ from whole arrays, in either module.
    """

    located: Located | None = None
    differences: tuple[FirstDifference, ...] = ()
    note: str = ""
    parts: tuple[ChangedInstruction, ...] = ()


def explained(
    before: Run,
    after: Run,
    inputs: TrialInputs,
    compared: RunsCompared,
    *,
    tolerance: Tolerance = FREE,
    excess_precision: bool = False,
) -> Explained:
    """Search the first value that differs; then, of results which do not read it, again, three times in all.

    An error of the search is the note.
    """
    taken, others = (run.taken or inputs for run in (before, after))
    if taken.counts != others.counts or is_partitioned(before.module, after.module):
        count = len(before.results[0])
        wrong_results = [at for at, one in enumerate(compared.results[:count]) if not one.passed]
        try:
            return Explained(parts=first_in_parts(before, after, inputs, wrong_results))
        except HlooptError as error:
            return Explained(note=f"the first value was not found: {error.message}")
    if any(found.problem for found in compared.results):
        return Explained()
    wrong = _wrong(compared, len(before.results[0]), len(taken.arrays) // len(before.results))
    first: Located | None = None
    found: list[FirstDifference] = []
    while wrong and len(found) < _MOST_PLACES:
        try:
            search = partial(
                locate, before.module, after.module, taken, excess_precision=excess_precision
            )
            located = search(wrong, tolerance=tolerance)
            if located is None and not found and before.interpreted and after.interpreted:
                # The judge bounds results more closely than evaluations that round otherwise tell apart.
                located = search(wrong, tolerance=Tolerance(ulp=0))
            if located is None:
                break
            excess = partial(observe, before.module, taken, excess_precision=True)
            found.append(described(located, before.module, after.module, excess))
        except HlooptError as error:
            return Explained(first, tuple(found), f"the first value was not found: {error.message}")
        first = first or located
        left = _unread(after, located, wrong)
        if len(left) == len(wrong):
            break
        wrong = left
    return Explained(first, tuple(found))


def _wrong(compared: RunsCompared, count: int, each: int) -> list[tuple[int, int]]:
    """The results that differ, by participant, of which ``each`` give one of ``count`` whole results."""
    return [
        (at // count * each + number, at % count)
        for at, found in enumerate(compared.results)
        for number in range(each)
        if not found.passed
    ]


def _unread(
    after: Run, located: Located, wrong: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The results that are not made of a value, where the entry's root lists them."""
    root = after.module.entry.root
    if root.opcode != "tuple" or not all(one.is_array for one in root.operands):
        return []
    place = located.after.place
    start = place.path[0][0] if place.path else place.instruction
    reached: set[Instruction] = set()
    pending = [start]
    while pending:
        one = pending.pop()
        if one not in reached:
            reached.add(one)
            pending += one.users
    if start.opcode in {"parameter", "constant"}:  # everything may be made of it
        reached = {start}
    return [at for at in wrong if root.operands[at[1]] not in reached]

"""The first value of a partitioned program that is not part of what the whole program computes.

Values of the partitions are put together and held against values of the whole program: those of the same name
or place in the user's program, else any of fitting dimensions.  Parts agree with a whole array where they lie
in it in some way, where each is all of it, or where they add up to it.  From a result that differs the search
goes back while what a value was made of differs, too.  That serves to find a place, not to judge: values agree
that are close to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError
from hloopt.interpret.partitioning import ArrayParts, Partitioning
from hloopt.ir import Instruction
from hloopt.prover.bisection import ChangedInstruction
from hloopt.prover.executor import Run
from hloopt.prover.observing import Leaf, Trace, observe
from hloopt.prover.trials import TrialInputs
from hloopt.types import Array

__all__ = ["first_in_parts"]

_CLOSE: Final = 1e-3
"""Of the largest magnitude in an array, what its values may be apart and still agree."""
_MOST: Final = 64
"""Values of fitting dimensions that are tried where neither name nor place says which one it is."""


def first_in_parts(
    before: Run, after: Run, inputs: TrialInputs, wrong: Sequence[int]
) -> tuple[ChangedInstruction, ...]:
    """The instruction of the partitioned program, and what it is of the whole one where that is known.

    ``wrong`` are the numbers of results that differ, of the first replica.  Raises as ``observing.observe``.
    """
    taken, cut = before.taken or inputs, after.taken or inputs
    whole = observe(before.module, taken)[0]
    parts = observe(after.module, cut)[: cut.counts[1]]
    search = _PartsSearch(whole, parts)
    for output in wrong:
        result = parts[0].results()[output]
        leaf = search.first(result) or result
        named = search.named(leaf.place.instruction)
        found = (
            [ChangedInstruction.of(named[0].place.instruction, "before", is_first=True)]
            if named
            else []
        )
        return (*found, ChangedInstruction.of(leaf.place.instruction, "after", is_first=True))
    return ()


@dataclass
class _PartsSearch:
    """The traces of the whole program and of each partition."""

    whole: Trace
    parts: Sequence[Trace]

    def __post_init__(self) -> None:
        self._names: dict[str, list[Leaf]] = {}
        self._sites: dict[tuple[str, str], list[Leaf]] = {}
        for leaf in self.whole.seen:
            one = leaf.place.instruction
            self._names.setdefault(one.name, []).append(leaf)
            self._sites.setdefault((one.opcode, _site(one)), []).append(leaf)
        self._known: dict[Leaf, bool | None] = {}

    def named(self, one: Instruction) -> list[Leaf]:
        """Values of the whole program with the name of an instruction, or its place in the user's program."""
        sites = self._sites.get((one.opcode, _site(one)), []) if _site(one) else []
        return [*self._names.get(one.name, []), *sites]

    def first(self, leaf: Leaf) -> Leaf | None:
        """The first value on the way to one that differs; None where none is known to differ."""
        found: Leaf | None = None
        pending, passed = [leaf], {leaf}
        while pending:
            one = pending.pop()
            read = [operand for _, operand in self.parts[0].operands(one.place)]
            new = [other for other in read if other not in passed and not self._agrees(other)]
            passed.update(new)
            if self._agrees(one) is False:
                found, pending = one, new
            else:
                pending += new
        return found

    def _agrees(self, leaf: Leaf) -> bool | None:
        """Whether the parts agree with a value of the whole program; None where none may be of the kind."""
        if leaf not in self._known:
            self._known[leaf] = self._found(leaf)
        return self._known[leaf]

    def _found(self, leaf: Leaf) -> bool | None:
        one = leaf.place.instruction
        if not one.operands:  # given, or made of nothing
            return True
        values = [_array(trace, leaf) for trace in self.parts]
        if any(value is None for value in values):
            return None
        arrays = [value for value in values if value is not None]
        named = [whole for whole in self._wholes(self.named(one)) if _fits(arrays[0], whole)]
        if any(_agree(arrays, whole) for whole in named):
            return True
        others = [whole for whole in self._wholes(self.whole.seen) if _fits(arrays[0], whole)]
        if any(_agree(arrays, whole) for whole in others[:_MOST]):
            return True
        return False if named else None

    def _wholes(self, leaves: Iterable[Leaf]) -> Iterator[Array]:
        for leaf in leaves:
            found = _array(self.whole, leaf)
            if found is not None:
                yield found


def _site(one: Instruction) -> str:
    return "" if one.metadata is None else str(one.metadata.fields.get("op_name", ""))


def _array(trace: Trace, leaf: Leaf) -> Array | None:
    seen = trace.seen.get(leaf)
    return seen.flat.reshape(seen.dims) if seen is not None and seen.is_whole else None


def _fits(part: Array, whole: Array) -> bool:
    return (
        part.dtype == whole.dtype
        and part.ndim == whole.ndim
        and all(own <= size for own, size in zip(part.shape, whole.shape, strict=True))
    )


def _agree(parts: Sequence[Array], whole: Array) -> bool:
    if parts[0].shape == whole.shape:
        if all(_close(part, whole) for part in parts):
            return True
        with np.errstate(all="ignore"):
            added = np.sum([part.astype(np.complex128) for part in parts], axis=0)
            times = [number for number in range(1, len(parts)) if len(parts) % number == 0]
            return any(_close(added, whole * np.asarray(number, whole.dtype)) for number in times)
    unknown = ArrayParts("", whole.shape, parts[0].shape, None)
    try:
        placed = Partitioning(len(parts), (), (unknown,)).placed(
            [[one] for one in parts], [[whole]]
        )
    except UnsupportedError:
        return False
    return _close(placed.joined([[one] for one in parts])[0][0], whole)


def _close(one: Array, other: Array) -> bool:
    with np.errstate(all="ignore"):
        left, right = one.astype(np.complex128), other.astype(np.complex128)
        size = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
        same = (
            (np.abs(left - right) <= _CLOSE * size)
            | (left == right)
            | (np.isnan(left) & np.isnan(right))
        )
    return bool(np.all(same))

"""LU factors of a matrix and of its transpose: one of both is enough for solutions and determinants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, edit
from hloopt.linear_algebra.systems.cancelling import inverse_of
from hloopt.linear_algebra.systems.factor_uses import hides_factors
from hloopt.linear_algebra.systems.inverses import (
    FAMILIES,
    Inverse,
    is_factor,
    read_factor,
    viewed_matrix,
)
from hloopt.linear_algebra.systems.steps import RowOrder, triangle_of
from hloopt.linear_algebra.systems.writing import ChainWriter
from hloopt.rewrite.site import is_replaceable

__all__ = ["TransposedFactors", "transposed_factors"]


@dataclass(frozen=True)
class TransposedFactors:
    """A call of ``getrf`` whose matrix is that of ``first``, transposed.

    inverses  all that its factors solve
    known     what those of the first solve: the steps that are taken instead, transposed
    """

    call: Instruction
    first: Instruction
    inverses: tuple[Inverse, ...]
    known: Inverse | None

    def write(self) -> None:
        """Let the factors of the first take the place of those of the call."""
        for one in self.inverses:
            self._solve(one)
        # What is left of its readers is the same for both: determinants.
        edit.replace_instruction(self.call, self.first)

    def _solve(self, inverse: Inverse) -> None:
        assert self.known is not None, "what is solved has an example"
        chain, known = inverse.chain, self.known
        writer = ChainWriter(chain.value, chain.sizes, {})
        steps = replace(
            known.chain,
            steps=known.chain.steps[: known.steps],
            acted=chain.acted,
            batch=chain.batch,
        )
        # Each is the inverse of a matrix that is the other's, transposed.
        transposed = inverse.is_turned == known.is_turned
        found = writer.applied(steps, writer.named(*inverse.right), transposed=transposed)
        dims = chain.value.array.dims
        writer.put(found, [k if size > 1 else None for k, size in enumerate(dims)])


def transposed_factors(computation: Computation) -> Iterator[TransposedFactors]:
    """The calls of a computation whose factors are known; each is read when it is asked for."""
    calls = [
        one
        for one in computation
        if one.opcode == "custom-call" and "getrf" in one.custom_call_target and is_factor(one)
    ]
    if len(calls) < 2:
        return
    matrices = Matrices()
    firsts: dict[Instruction, list[tuple[Instruction, tuple[int | None, ...]]]] = {}
    for call in calls:
        shape = call.operands[0].array
        names = tuple(range(shape.rank))
        turned = (*names[:-2], names[-1], names[-2])
        root, labels = viewed_matrix(call.operands[0], turned, matrices)
        first = next((one for one, of in firsts.get(root, ()) if of == labels), None)
        found = first and is_replaceable(call) and _shared(computation, call, first, matrices)
        if found:
            yield found
            continue
        labels = viewed_matrix(call.operands[0], names, matrices)[1]
        firsts.setdefault(root, []).append((call, labels))


def _shared(
    computation: Computation, call: Instruction, first: Instruction, matrices: Matrices
) -> TransposedFactors | None:
    if call.shape != first.shape or not hides_factors(call):
        return None
    places = {one: at for at, one in enumerate(computation)}
    solved: dict[Instruction, list[Inverse]] = {call: [], first: []}
    unread: set[Instruction] = set()
    for value in places:
        triangle = triangle_of(value)
        factor = triangle and read_factor(triangle)
        if factor and factor.source is call:
            unread.add(value)
        inverse = inverse_of(value, matrices) if value.op.family in FAMILIES else None
        if inverse and inverse.factor in solved and is_replaceable(value):
            solved[inverse.factor].append(inverse)
    wanted = solved[call]
    unread -= {at for one in wanted for _, at in one.chain.steps[: one.steps]}
    known = min(solved[first], key=lambda one: _ready(one, places), default=None)
    if unread or (wanted and (known is None or not _precedes(known, wanted, places))):
        return None
    return TransposedFactors(call, first, tuple(wanted), known)


def _ready(inverse: Inverse, places: dict[Instruction, int]) -> int:
    """Where in the computation all that its steps read is there."""
    read = [
        step.indices if isinstance(step, RowOrder) else at.operands[0]
        for step, at in inverse.chain.steps[: inverse.steps]
    ]
    return max(places[one] for one in read)


def _precedes(known: Inverse, wanted: Sequence[Inverse], places: dict[Instruction, int]) -> bool:
    return all(_ready(known, places) < places[one.chain.value] for one in wanted)

"""Sums of solutions of the same systems, as the solution for the sum of their right sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.systems.chains import SolveChain, read_chain
from hloopt.linear_algebra.systems.factor_uses import read_part
from hloopt.linear_algebra.systems.steps import SolveStep, Triangle
from hloopt.linear_algebra.systems.writing import ChainWriter
from hloopt.rewrite.site import is_replaceable

__all__ = ["SummedSolutions", "summed_solutions"]


@dataclass(frozen=True)
class SummedSolutions:
    """An ``add`` or ``subtract`` of two solutions, whose outermost ``steps`` are the same."""

    value: Instruction
    chains: tuple[SolveChain, SolveChain]
    steps: int

    @property
    def columns(self) -> int:
        """Right sides of each system that are left."""
        first = self.chains[0]
        kept = {first.acted, *first.batch}
        return prod(size for label, size in first.sizes.items() if label not in kept)

    def write(self) -> Instruction:
        """Put the solution for the sum in the place of the sum; what stands there now."""
        first = self.chains[0]
        writer = ChainWriter(self.value, first.sizes, {})
        one, other = (writer.named(*chain.inputs[self.steps - 1]) for chain in self.chains)
        total = writer.elementwise(self.value.opcode, one, other)
        common = replace(first, steps=first.steps[: self.steps])
        dims = self.value.array.dims
        return writer.put(
            writer.applied(common, total, transposed=False),
            [k if size > 1 else None for k, size in enumerate(dims)],
        )


def summed_solutions(computation: Computation) -> Iterator[SummedSolutions]:
    """The sums of solutions that nothing else reads; those before them may have been written anew."""
    for value in list(computation):
        if value.opcode not in ("add", "subtract") or not is_replaceable(value):
            continue
        if value.operands[0] is value.operands[1] or not (value.users or value.is_root):
            continue
        chains = [read_chain(operand) for operand in value.operands]
        if chains[0] is None or chains[1] is None:
            continue
        one, other = chains[0], chains[1]
        count = _common(one, other)
        if any(isinstance(step, Triangle) for step, _ in one.steps[:count]) and all(
            _is_read_once(chain, count) for chain in (one, other)
        ):
            yield SummedSolutions(value, (one, other), count)


def _common(one: SolveChain, other: SolveChain) -> int:
    """How many of the outermost steps are the same, of inputs with the same indices."""
    if (one.acted, one.batch) != (other.acted, other.batch):
        return 0
    count = 0
    for at, ((first, _), (second, _)) in enumerate(zip(one.steps, other.steps, strict=False)):
        labels = (set(chain.inputs[at][1]) - {None} for chain in (one, other))
        if not _are_alike(first, second) or next(labels) != next(labels):
            break
        count = at + 1
    return count


def _are_alike(first: SolveStep, second: SolveStep) -> bool:
    if not isinstance(first, Triangle) or not isinstance(second, Triangle):
        return first == second
    one, other = first.solve, second.solve
    return (
        one.operands[0] is other.operands[0]
        and one.opcode == other.opcode
        and read_part(one) == read_part(other)
        and (first.left_side, first.transpose) == (second.left_side, second.transpose)
    )


def _is_read_once(chain: SolveChain, steps: int) -> bool:
    last = chain.steps[steps - 1][1]
    path = chain.path[: chain.path.index(last) + 1]
    return all(len(one.users) == 1 and sum(one.users.values()) == 1 for one in path)

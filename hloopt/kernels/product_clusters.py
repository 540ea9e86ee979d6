"""What one kernel can compute with a matrix product: what its operands are computed from, and what follows it.

A *cluster* has one dot, or two of one left side.  Behind them stands what is computed element by element of
them, and what only moves their elements, up to what else reads it.  In front of them, and beside what is behind
them, stands what nothing else reads and any thread computes quickly, and what is cheap wherever it is read.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.elementwise import is_elementwise, tells_apart
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, walk
from hloopt.kernels.families.dot_region import twin_dots
from hloopt.ops.traits import CONTRACTING, PLUMBING, REARRANGING
from hloopt.types import ArrayShape

__all__ = ["ProductCluster", "product_clusters"]

_CHEAP: Final = frozenset({"broadcast", "constant", "iota"})
"""Computed wherever they are read: no kernel writes them for another."""

_MOST_LOOKED_AT: Final = 256
"""Instructions behind a dot, and in front of what its kernel reads."""


@dataclass(frozen=True, eq=False)
class ProductCluster:
    """What one kernel computes; see ``KernelCluster``.  ``dot`` is the first member."""

    dot: Instruction
    absorbed: tuple[Instruction, ...]
    members: tuple[Instruction, ...]
    results: tuple[Instruction, ...]

    @property
    def last(self) -> Instruction:
        """The member that comes last."""
        return self.members[-1]


def product_clusters(
    dot: Instruction, places: Mapping[Instruction, int], beside: Sequence[Instruction] = ()
) -> Iterator[ProductCluster]:
    """The clusters of a dot that may gain: with all that fits, with what follows it only, without that.

    What follows is left out where others read something in the middle, or where what reads its end could
    compute it: fusion makes that one kernel anyway.  Where one of the dots ``beside``, which come later,
    multiplies the same left side, and what follows reads both, they may be one cluster.  ``places`` are those
    of a topological order.
    """
    behind = _behind([dot], places)
    forms = [(behind, True), (behind, False), ([dot], True)]
    for twin in beside:
        if twin.users and twin_dots(dot, twin) and not _reaches(dot, twin):
            both = _behind([dot, twin], places)
            if places[both[-1]] > places[twin]:  # so that all it reads comes before its end
                forms += [(both, True), (both, False)]
    seen: set[tuple[Instruction, ...]] = set()
    for members, before in forms:
        cluster = _cluster(members, places, before=before)
        every = (*cluster.absorbed, *cluster.members)
        is_new = len(every) > 1 and every not in seen
        seen.add(every)
        if is_new and (len(members) == 1 or _ends_alone(cluster)) and not _leaves_work(cluster):
            yield cluster


def _reaches(dot: Instruction, other: Instruction) -> bool:
    """Whether a dot is computed from another, waits for something, or that would take long to tell."""
    if other.has_control_edges:
        return True
    seen: set[Instruction] = set()
    pending = list(other.operands)
    while pending:
        one = pending.pop()
        if one is dot or len(seen) > _MOST_LOOKED_AT:
            return True
        if one not in seen:
            seen.add(one)
            pending += one.operands
    return False


def _ends_alone(cluster: ProductCluster) -> bool:
    """Whether the only result is read by what computes nothing, or not by elements."""
    if cluster.results != (cluster.last,):
        return False
    users = cluster.last.users
    return all(user.opcode in PLUMBING or user.opcode in CONTRACTING for user in users)


def _leaves_work(cluster: ProductCluster) -> bool:
    """Whether something outside is computed for the cluster alone, so that it would be a kernel of its own."""
    inside = {*cluster.absorbed, *cluster.members}
    return any(
        is_elementwise(part) and not part.is_root and all(user in inside for user in part.users)
        for one in cluster.absorbed
        for part in one.operands
        if part not in inside
    )


def _behind(dots: list[Instruction], places: Mapping[Instruction, int]) -> list[Instruction]:
    """The dots and what follows them in topological order, up to the first reader that cannot.

    So nothing that they read is computed from the dots elsewhere, and all other readers come behind them.
    """
    dot, members, inside = dots[0], list(dots), set(dots)
    number = count()
    pending: list[tuple[int, int, Instruction]] = []

    def follow(one: Instruction) -> None:
        for user in one.users:
            heappush(pending, (places[user], next(number), user))

    for one in dots:
        follow(one)
    while pending and len(members) < _MOST_LOOKED_AT:
        one = heappop(pending)[2]
        if one in inside or not (one.users or one.is_root):
            continue
        if not _follows(one, dot):
            break
        inside.add(one)
        members.append(one)
        follow(one)
    return members


def _follows(one: Instruction, dot: Instruction) -> bool:
    """Whether a kernel that has the dot's elements can compute those of an instruction."""
    if not _may_join(one) or one.array.elements != dot.array.elements:
        return False
    return is_elementwise(one) or (one.opcode in REARRANGING and one.opcode != "broadcast")


def _may_join(one: Instruction) -> bool:
    if not isinstance(one.shape, ArrayShape) or one.shape.is_dynamic or one.shape.dtype.bits < 8:
        return False
    return not (one.has_control_edges or tells_apart(one) or walk.called_computations(one))


def _cluster(
    members: list[Instruction],
    places: Mapping[Instruction, int],
    *,
    before: bool,
) -> ProductCluster:
    inside = set(members)
    absorbed: set[Instruction] = set()

    def absorb(pending: list[Instruction], *, often: bool) -> None:
        while pending and len(absorbed) < _MOST_LOOKED_AT:
            one = pending.pop()
            if one in inside or not _may_join(one):
                continue
            if _is_cheap(one) or _serves(one, inside, often=often):
                inside.add(one)
                absorbed.add(one)
                pending += one.operands

    dots = [one for one in members if one.opcode == "dot"]
    absorb([part for one in members if one not in dots for part in one.operands], often=False)
    if before:
        absorb([part for one in dots for part in one.operands], often=True)
    results = tuple(
        one for one in members if one.is_root or any(user not in inside for user in one.users)
    )
    order = sorted(absorbed, key=places.__getitem__)
    return ProductCluster(dots[0], tuple(order), tuple(members), results)


def _is_cheap(one: Instruction) -> bool:
    return one.opcode in _CHEAP and (one.opcode != "constant" or one.array.elements == 1)


def _serves(one: Instruction, inside: Container[Instruction], *, often: bool) -> bool:
    """Whether only the cluster reads an instruction, which is cheap where it is computed for each tile."""
    if one.is_root or not one.users or not all(user in inside for user in one.users):
        return False
    if one.opcode in REARRANGING:
        return True
    return is_elementwise(one) and not (often and instruction_cost(one).transcendentals)

"""Instructions that one kernel can compute row by row: reductions of rows, and what is elementwise around them.

A *cluster* is connected, and no path leaves it and comes back.  All its members have an element for each
place of ``rows`` rows of ``minor`` elements, or a value a row; what else they read lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from hloopt.analysis.elementwise import is_elementwise, tells_apart
from hloopt.analysis.layout import is_row_major
from hloopt.cost_models.fused_rows import RUNNING, WHOLE_ROW
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, walk
from hloopt.kernels.families.row_kinds import pick_form
from hloopt.kernels.families.running_reduction import running_of
from hloopt.kernels.row_growth import RowGrowth, elements_of, row_form
from hloopt.ops.traits import INDEXING, MOVING, PLUMBING
from hloopt.types import ArrayShape

__all__ = ["RowCluster", "row_clusters", "row_forms", "running_clusters"]

_CHEAP = frozenset({"broadcast", "constant", "iota"})
"""Computed wherever they are read: no kernel writes them for another."""


@dataclass(frozen=True, eq=False)
class RowCluster:
    """What one kernel computes.

    rows, minor  the form
    absorbed  what only the members read and any place can compute, and constants; in topological order
    members   in topological order
    results   members that others read, and that the kernel writes
    columns   those that are sums over the rows, with a value a place, and their casts
    """

    rows: int
    minor: int
    absorbed: tuple[Instruction, ...]
    members: tuple[Instruction, ...]
    results: tuple[Instruction, ...]
    columns: frozenset[Instruction] = frozenset()

    def without_columns(self) -> RowCluster:
        """The cluster without sums over the rows."""
        members = [one for one in self.members if one not in self.columns]
        return _cluster(self.rows, self.minor, members, frozenset())

    def as_it_is(self) -> RowCluster:
        """The cluster of the members that are still there: a kernel made since may compute, and read, some."""
        members = [one for one in self.members if one.computation is not None]
        return _cluster(self.rows, self.minor, members, self.columns)

    @property
    def heroes(self) -> list[Instruction]:
        """The reductions of rows."""
        kinds = ("reduce", "reduce-window", "topk")
        return [one for one in self.members if one.opcode in kinds and one not in self.columns]

    @property
    def is_one_stage(self) -> bool:
        """Whether no element of a row is computed from a reduction of rows."""
        heroes, following = set(self.heroes), set[Instruction]()
        for one in self.members:
            follows = not following.isdisjoint(one.operands)
            if follows and elements_of(one) > self.rows:
                return False
            if follows or one in heroes:
                following.add(one)
        return True

    @property
    def kernel(self) -> str:
        """The name of the kernel that takes it."""
        is_running = any(one.opcode == "reduce-window" for one in self.members)
        return RUNNING if is_running else WHOLE_ROW

    @property
    def last(self) -> Instruction:
        """The member that comes last."""
        return self.members[-1]


def row_forms(computation: Computation) -> list[tuple[int, int]]:
    """The forms of a computation's reductions of rows, as rows and elements of each, the largest first."""
    found: dict[tuple[int, int], None] = {}
    for one in computation:
        if one.opcode == "reduce" and (form := row_form(one)) is not None:
            found[form] = None
        elif one.opcode == "topk" and (picks := pick_form(one)) is not None:
            found[picks[:2]] = None
    return sorted(found, key=lambda form: form[0] * form[1], reverse=True)


def row_clusters(computation: Computation, form: tuple[int, int]) -> list[RowCluster]:
    """The clusters of one form; a member belongs to one, and together they are no circle of kernels."""
    growth = RowGrowth(*form, walk.post_order(computation))
    growth.grow()
    found = (
        _cluster(*form, members, growth.columns) for members in list(growth.trimmed_clusters())
    )
    return [cluster for cluster in found if cluster.heroes]


def running_clusters(computation: Computation) -> list[RowCluster]:
    """Running reductions along rows, each with the elementwise ops that alone follow it."""
    found = []
    for one in computation:
        if one.opcode != "reduce-window" or one.shape.is_dynamic or one.has_control_edges:
            continue
        rows = running_of(one)
        if isinstance(rows, str):
            continue
        members = [one]
        while len(users := list(members[-1].users)) == 1 and _follows(members[-1], users[0]):
            members.append(users[0])
        found.append(_cluster(rows.rows, rows.minor, members, frozenset()))
    return [cluster for cluster in found if cluster.heroes]


def _follows(one: Instruction, user: Instruction) -> bool:
    """Whether a user is computed place by place, from nothing else that is large."""
    if not is_elementwise(user) or user.has_control_edges or one.is_root:
        return False
    others = [part for part in user.operands if part is not one]
    return elements_of(user) == elements_of(one) and not any(
        elements_of(part) > 1 and part.opcode not in _CHEAP for part in others
    )


def _cluster(
    rows: int, minor: int, members: list[Instruction], columns: AbstractSet[Instruction]
) -> RowCluster:
    """The cluster of members: what is as cheap to compute again where it is read is no result."""
    inside = set(members)
    following: set[Instruction] = set()
    for one in members:
        if one.opcode in ("reduce", "reduce-window", "topk") or any(
            part in following for part in one.operands
        ):
            following.add(one)
    results: dict[Instruction, None] = {}
    needed = {
        one for one in members if one.is_root or any(user not in inside for user in one.users)
    }
    for one in reversed(members):
        if one not in needed:
            continue
        if one.opcode in _CHEAP and one not in following:
            continue  # nothing of the cluster's: it stays where it is, too
        readers = [user for user in one.users if user not in inside]
        if one in columns or (
            one.opcode not in _CHEAP and not _is_cheap(one, readers, inside, rows * minor)
        ):
            results[one] = None
            continue
        # The original stays, and reads what the kernel writes a row.
        needed.update(part for part in one.operands if part in inside)
    # What is only computed where it is read has no place in the kernel.
    used = set(walk.post_order(members[0].home, results)) if members else set()
    members = [one for one in members if one in used]
    found = tuple(one for one in members if one in results)
    absorbed = tuple(_absorbed(members))
    inner = frozenset(one for one in members if one in columns)
    return RowCluster(rows, minor, absorbed, tuple(members), found, inner)


def _absorbed(members: list[Instruction]) -> Iterator[Instruction]:
    """Producers outside that are computed where they are read, operands first."""
    if not members:
        return
    inside = set(members)
    found: dict[Instruction, None] = {}
    pending = [operand for one in members for operand in one.operands]
    while pending and len(found) < _MOST_ABSORBED:
        one = pending.pop()
        if one in inside or one in found or not _may_join(one):
            continue
        again = one.opcode in _CHEAP
        if not again and any(user not in inside and user not in found for user in one.users):
            continue
        found[one] = None
        pending += one.operands
    yield from (one for one in walk.post_order(members[0].home, found) if one in found)


def _may_join(one: Instruction) -> bool:
    if not isinstance(one.shape, ArrayShape) or one.shape.is_dynamic or one.is_root:
        return False
    if one.has_control_edges or tells_apart(one):
        return False
    if not all(is_row_major(part.shape) for part in (one, *one.operands)):
        return False
    if one.opcode == "constant":
        return one.shape.elements == 1
    if one.opcode in _CHEAP or one.opcode in _PLACED:
        return True
    return is_elementwise(one) and one.opcode not in PLUMBING


_PLACED = (MOVING | {"dynamic-slice", "gather"}) - {"reverse", "transpose"}
"""Each element of the result is one of an operand's, and neighbours stay neighbours."""

_MOST_ABSORBED = 64


def _is_cheap(
    one: Instruction, readers: list[Instruction], inside: set[Instruction], full: int
) -> bool:
    """Whether fewer bytes move where those who read a value compute it, than where it is written and read."""
    if elements_of(one) != full or one.is_root or one.opcode in ("reduce", "get-tuple-element"):
        return False
    if not all(_reads_once(user) for user in readers):
        return False
    read: dict[Instruction, None] = {}
    pending, seen = [one], {one}
    while pending:
        for operand in pending.pop().operands:
            if operand in seen:
                continue
            seen.add(operand)
            if operand not in inside or elements_of(operand) != full:
                read[operand] = None
            elif operand.opcode == "reduce" or len(seen) > _MOST_AGAIN:
                return False
            else:
                pending.append(operand)
    again = len(readers) * sum(operand.shape.byte_size for operand in read)
    return again < (1 + len(readers)) * one.shape.byte_size


def _reads_once(user: Instruction) -> bool:
    """Whether a kernel computes an operand's element where it needs it, once or not at all."""
    return is_elementwise(user) or user.opcode in _ONCE


_ONCE = MOVING | INDEXING | {"reduce"}

_MOST_AGAIN = 16
"""Instructions that are computed again at most."""

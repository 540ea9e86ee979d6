"""Instructions that one kernel can compute row by row: reductions of rows, and what is elementwise around them.

A *cluster* is connected, and no path leaves it and comes back.  All its members have an element for each
place of ``rows`` rows of ``minor`` elements, or a value a row; what else they read lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from hloopt.analysis.elementwise import is_elementwise, tells_apart
from hloopt.analysis.reduction import reduction_dims
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, walk
from hloopt.kernels.families.reductions import accumulator_types, passes_on, plain_reducer
from hloopt.kernels.families.row_phases import spread_kind
from hloopt.ops.traits import MOVING, PLUMBING
from hloopt.types import ArrayShape

__all__ = ["RowCluster", "row_clusters"]

_CHEAP = frozenset({"broadcast", "constant", "iota"})
"""Computed wherever they are read: no kernel writes them for another."""

_COSTLY = 2
"""Reading what a value is computed from may take so many times its bytes: they are written, and read, else."""


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

    @property
    def heroes(self) -> list[Instruction]:
        """The reductions of rows."""
        return [one for one in self.members if one.opcode == "reduce" and one not in self.columns]

    @property
    def last(self) -> Instruction:
        """The member that comes last."""
        return self.members[-1]


def row_clusters(computation: Computation) -> Iterator[RowCluster]:
    """The clusters of a computation, those of the largest rows first; a member belongs to one."""
    order = walk.post_order(computation)
    forms: dict[tuple[int, int], None] = {}
    for one in order:
        if one.opcode == "reduce" and (form := _form(one)):
            forms[form] = None
    places = {one: at for at, one in enumerate(order)}
    taken: set[Instruction] = set()
    for rows, minor in sorted(forms, key=lambda form: form[0] * form[1], reverse=True):
        growth = _Growth(rows, minor, taken)
        for members in growth.clusters(order):
            members = growth.with_inputs_summed(members, places)
            cluster = _cluster(rows, minor, members, growth.columns)
            if cluster.heroes:
                taken.update(cluster.members)
                yield cluster


def _form(reduce: Instruction) -> tuple[int, int] | None:
    form = reduction_dims(reduce)
    if form is None or not form.is_row or form.dims[0] != 1 or min(form.dims) < 1:
        return None
    _, rows, minor = form.dims
    return (rows, minor) if minor > 1 else None


@dataclass
class _Growth:
    """Clusters of one form that grow operand by operand.

    ``taken`` belong to clusters of other forms; ``columns`` are sums over the rows, and their casts.
    """

    rows: int
    minor: int
    taken: set[Instruction]
    columns: set[Instruction] = field(default_factory=set)

    def clusters(self, order: list[Instruction]) -> Iterator[list[Instruction]]:
        """Each with a reduction whose row is read again, members in topological order."""
        # A cluster is a number; joined ones point to the one they became part of.
        joined: list[int] = []
        own: dict[Instruction, int] = {}
        # What an instruction is computed from beyond a cluster's members, and what all members of one are.
        tainted: dict[Instruction, set[int]] = {}
        above: list[set[int]] = []

        def find(number: int) -> int:
            while joined[number] != number:
                joined[number] = number = joined[joined[number]]
            return number

        def known(numbers: set[int]) -> set[int]:
            return {find(number) for number in numbers}

        for one in order:
            mine: set[int] = set()
            for operand in (*one.operands, *one.control_predecessors):
                mine |= tainted.get(operand, set())
            mine = known(mine)
            near = list(dict.fromkeys(find(own[part]) for part in one.operands if part in own))
            if not self._joins(one, own):
                tainted[one] = mine | set(near)
                continue
            home = next((number for number in near if number not in mine), None)
            if home is None:
                home = len(joined)
                joined.append(home)
                above.append(set())
            for other in near:
                # Neither may be computed from the other by way of instructions outside.
                if other == home or other in mine or home in known(above[other]):
                    continue
                if other in known(above[home]):
                    continue
                joined[other] = home
                above[home] |= above[other]
            outside = {other for other in map(find, near) if other != home}
            mine = known(mine | outside)
            own[one] = home
            tainted[one] = mine
            above[home] |= mine
        found: dict[int, list[Instruction]] = {}
        for one in order:
            if one in own:
                found.setdefault(find(own[one]), []).append(one)
        for members in found.values():
            yield from self._trimmed(members)

    def with_inputs_summed(
        self, members: list[Instruction], places: Mapping[Instruction, int]
    ) -> list[Instruction]:
        """The members, and sums over the rows of what they read, where no member needs these."""
        inside = set(members)
        inputs = {part: None for one in members for part in one.operands if part not in inside}
        sums = [
            user
            for read in inputs
            if _elements(read) == self.rows * self.minor
            for user in read.users
            if user.opcode == "reduce" and user not in self.taken and user.operands[0] is read
            if self._is_column(user) and not user.has_control_edges
        ]
        found = [one for one in dict.fromkeys(sums) if not _leads_to(one, inputs, places)]
        self.columns.update(found)
        return sorted([*members, *found], key=places.__getitem__) if found else members

    def _joins(self, one: Instruction, own: dict[Instruction, int]) -> bool:
        """Whether an instruction is of this form, given that what is in clusters is."""
        if one in self.taken or one.has_control_edges or one.shape.is_dynamic or tells_apart(one):
            return False
        if any(part in self.columns for part in one.operands):
            # What is computed from columns is elsewhere, but for the cast of a sum.
            return self._is_cast_column(one)
        if one.opcode == "reduce":
            if any(part in own for part in one.fold_inits):
                return False
            if _form(one) == (self.rows, self.minor):
                return True
            if self._is_column(one) and one.operands[0] in own:
                self.columns.add(one)
                return True
            return self._is_view(one)
        if one.opcode == "get-tuple-element":
            return one.operands[0] in own
        if not isinstance(one.shape, ArrayShape):
            return False
        if one.shape.elements not in (self.rows, self.rows * self.minor):
            return False
        if one.opcode == "broadcast":
            source = one.operands[0]
            if source not in own:
                return True
            kind = "row" if _elements(source) == self.rows else "full"
            return bool(spread_kind(one, kind, self.minor))
        if one.opcode in ("constant", "parameter"):
            return False
        if one.opcode == "iota" or is_elementwise(one):
            return True
        return self._is_view(one)

    def _is_column(self, one: Instruction) -> bool:
        """Whether a reduction adds up the rows, each place by itself."""
        form = reduction_dims(one)
        if form is None or form.is_row or form.dims != (1, self.rows, self.minor):
            return False
        return bool(plain_reducer(one)) and not accumulator_types(one)[0].is_complex

    def _is_cast_column(self, one: Instruction) -> bool:
        found = one.opcode == "convert" and one.operands[0].opcode == "reduce"
        if found:
            self.columns.add(one)
        return found

    def _is_view(self, one: Instruction) -> bool:
        if not isinstance(one.shape, ArrayShape) or one.opcode in PLUMBING:
            return False
        if one.shape.elements not in (self.rows, self.rows * self.minor):
            return False
        return bool(tuple(passes_on(one)))

    def _trimmed(self, members: list[Instruction]) -> Iterator[list[Instruction]]:
        """Without what nothing in the cluster reduces or reads of a reduction."""
        inside = set(members)
        wanted: set[Instruction] = set()
        # What follows a reduction of a row, and what such a member is computed from.
        for one in members:
            reduces = one.opcode == "reduce" and _form(one) == (self.rows, self.minor)
            if reduces or any(operand in wanted for operand in one.operands):
                wanted.add(one)
        follows = {one for one in wanted if _elements(one) == self.rows * self.minor}
        if not follows:
            return
        wanted |= self.columns & inside
        for one in reversed(members):
            if one in wanted:
                wanted.update(part for part in one.operands if part in inside)
        yield [one for one in members if one in wanted]


def _leads_to(
    one: Instruction, inputs: Iterable[Instruction], places: Mapping[Instruction, int]
) -> bool:
    """Whether any of ``inputs`` is computed from an instruction; ``places`` are those of an order."""
    first = places[one]
    pending = [part for part in inputs if places[part] >= first]
    seen = set(pending)
    while pending:
        part = pending.pop()
        if part is one:
            return True
        for operand in (*part.operands, *part.control_predecessors):
            if operand not in seen and places[operand] >= first:
                seen.add(operand)
                pending.append(operand)
    return False


def _cluster(
    rows: int, minor: int, members: list[Instruction], columns: AbstractSet[Instruction]
) -> RowCluster:
    """The cluster of members: what is as cheap to compute again where it is read is no result."""
    inside = set(members)
    following: set[Instruction] = set()
    for one in members:
        if one.opcode == "reduce" or any(part in following for part in one.operands):
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
    absorbed = tuple(_absorbed(members, rows * minor))
    inner = frozenset(one for one in members if one in columns)
    return RowCluster(rows, minor, absorbed, tuple(members), found, inner)


def _absorbed(members: list[Instruction], full: int) -> Iterator[Instruction]:
    """Producers outside that are computed where they are read, operands first."""
    if not members:
        return
    inside = set(members)
    found: dict[Instruction, None] = {}
    pending = [operand for one in members for operand in one.operands]
    while pending and len(found) < _MOST_ABSORBED:
        one = pending.pop()
        if one in inside or one in found or not _may_join(one, full):
            continue
        again = one.opcode in _CHEAP
        if not again and any(user not in inside and user not in found for user in one.users):
            continue
        found[one] = None
        pending += one.operands
    yield from (one for one in walk.post_order(members[0].home, found) if one in found)


def _may_join(one: Instruction, full: int) -> bool:
    if not isinstance(one.shape, ArrayShape) or one.shape.is_dynamic or one.is_root:
        return False
    if one.has_control_edges or tells_apart(one) or one.shape.elements > full:
        return False
    if one.opcode == "constant":
        return one.shape.elements == 1
    if one.opcode in _CHEAP or one.opcode in _PLACED:
        return True
    return is_elementwise(one) and one.opcode not in PLUMBING


_PLACED = MOVING - {"reverse", "transpose"}
"""Each element of the result is one of an operand's, and neighbours stay neighbours."""

_MOST_ABSORBED = 64


def _is_cheap(
    one: Instruction, readers: list[Instruction], inside: set[Instruction], full: int
) -> bool:
    """Whether those who read a value may as well compute it, from what lies in memory anyway."""
    if _elements(one) != full or one.is_root or one.opcode in ("reduce", "get-tuple-element"):
        return False
    if not all(is_elementwise(user) or user.opcode == "reduce" for user in readers):
        return False
    most = _COSTLY * one.shape.byte_size
    read: dict[Instruction, None] = {}
    pending, seen = [one], {one}
    while pending:
        for operand in pending.pop().operands:
            if operand in seen:
                continue
            seen.add(operand)
            if operand not in inside or _elements(operand) != full:
                read[operand] = None
            elif operand.opcode == "reduce" or len(seen) > _MOST_AGAIN:
                return False
            else:
                pending.append(operand)
    return sum(operand.shape.byte_size for operand in read) <= most


_MOST_AGAIN = 16
"""Instructions that are computed again at most."""


def _elements(instruction: Instruction) -> int:
    shape = instruction.shape
    return shape.elements if isinstance(shape, ArrayShape) else 0

"""How clusters of rows grow: operand by operand, and never around what lies outside of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from hloopt.analysis.elementwise import is_elementwise, tells_apart
from hloopt.analysis.layout import is_row_major
from hloopt.analysis.reduction import reduction_dims
from hloopt.ir import Instruction
from hloopt.kernels.families.reductions import (
    accumulator_types,
    passes_on,
    plain_reducer,
)
from hloopt.kernels.families.row_kinds import pick_form, pick_kind, spread_kind
from hloopt.ops.traits import PLUMBING
from hloopt.types import ArrayShape

__all__ = ["RowGrowth", "elements_of", "row_form"]

_LEAST = 5
"""Elements of a row; fewer are folded by each thread that needs the result."""
_MOST_LOOKED_AT = 20_000
"""Instructions, to find out whether a value is computed from a cluster."""


def row_form(reduce: Instruction) -> tuple[int, int] | None:
    """Rows and elements of each that a reduce folds; None where it folds no rows, or few elements at a time.

    What a thread had best fold by itself is fused like any elementwise op.
    """
    form = reduction_dims(reduce)
    if form is None or not form.is_row or form.dims[0] != 1 or form.dims[2] < _LEAST:
        return None
    _, rows, minor = form.dims
    return (rows, minor) if rows else None


class RowGrowth:
    """Clusters of one form that grow operand by operand.

    ``columns`` are sums over the rows, and their casts.  ``picked`` are what ``topk`` leaves of the rows, and
    what is computed from that, each with its kind (``row_phases.pick_kind``).
    """

    def __init__(self, rows: int, minor: int, order: list[Instruction]) -> None:
        self.rows = rows
        self.minor = minor
        self.columns: set[Instruction] = set()
        self.picked: dict[Instruction, str] = {}
        self._count = 0
        self._after: set[Instruction] = set()
        self._order = order
        self._has_picks = any(one.opcode == "topk" and self._picks(one) for one in order)
        self._places = {one: place for place, one in enumerate(order)}
        # The cluster of an instruction by its number; joined ones point to the one they are part of.
        self._own: dict[Instruction, int] = {}
        self._joined: list[int] = []
        self._members: list[list[Instruction]] = []
        # Places from the first to the last one of a cluster are one stretch, and stretches that meet are one;
        # each place points to an earlier one of its stretch, the first one to itself.
        self._stretches = list(range(len(order)))

    def grow(self) -> None:
        """Each instruction of the form joins the clusters of its operands, or begins one."""
        own = self._own
        for one in self._order:
            if not self._joins(one, own):
                continue
            near = dict.fromkeys(self._find(own[part]) for part in one.operands if part in own)
            home = next((number for number in near if self._may_take(number, one)), None)
            if home is None:
                home = len(self._joined)
                self._joined.append(home)
                self._members.append([])
            own[one] = home
            self._add(home, [one])
            for other in near:
                if other != home and self._may_merge(home, other):
                    self._joined[other] = home
                    self._add(home, self._members[other])
                    self._members[other] = []

    def _find(self, number: int) -> int:
        joined = self._joined
        while joined[number] != number:
            joined[number] = number = joined[joined[number]]
        return number

    def _add(self, number: int, members: Sequence[Instruction]) -> None:
        """Let instructions be of a cluster, whose places become one stretch with theirs."""
        known = self._members[number]
        places = [self._places[one] for one in (*known[:1], *members)]
        known += members
        first = min(places)
        place = self._first_of(max(places))
        while place > first:
            self._stretches[place] = place - 1
            place = self._first_of(place)

    def _first_of(self, place: int) -> int:
        """The first place of a stretch."""
        stretches = self._stretches
        while stretches[place] != place:
            stretches[place] = place = stretches[stretches[place]]
        return place

    def _cluster_of(self, one: Instruction) -> int:
        number = self._own.get(one)
        return -1 if number is None else self._find(number)

    def _inputs(self, number: int) -> Iterator[Instruction]:
        """What a cluster's members read outside of it."""
        for member in self._members[number]:
            for part in _before(member):
                if self._cluster_of(part) != number:
                    yield part

    def _may_take(self, number: int, one: Instruction) -> bool:
        """Whether nothing else that an instruction reads is computed from the cluster."""
        others = [part for part in _before(one) if self._cluster_of(part) != number]
        return not self._leads(number, others)

    def _may_merge(self, left: int, right: int) -> bool:
        """Whether neither of two is computed from the other by way of anything else."""
        for number, other in ((left, right), (right, left)):
            inputs = [part for part in self._inputs(other) if self._cluster_of(part) != number]
            if self._leads(number, inputs):
                return False
        return True

    def _leads(self, number: int, starts: Iterable[Instruction]) -> bool:
        """Whether any of ``starts`` is computed from a cluster, where each cluster is one kernel.

        Also where that takes long to find out.
        """
        # What comes before it is computed from no cluster that ends behind it.
        floor = self._first_of(self._places[self._members[number][0]])
        pending = list(starts)
        seen: set[Instruction] = set()
        clusters: set[int] = set()
        while pending:
            one = pending.pop()
            cluster = self._cluster_of(one)
            if cluster == number or len(seen) > _MOST_LOOKED_AT:
                return True
            if cluster >= 0:
                if cluster not in clusters and self._places[one] >= floor:
                    clusters.add(cluster)
                    pending += self._inputs(cluster)
            elif one not in seen and self._places[one] > floor:
                seen.add(one)
                pending += _before(one)
        return False

    def trimmed_clusters(self) -> Iterator[list[Instruction]]:
        """The members of each cluster that reduces rows and goes on with them, in topological order."""
        for number, members in enumerate(self._members):
            wanted = self._trimmed(sorted(members, key=self._places.__getitem__))
            if wanted:
                yield self._with_inputs_summed(number, wanted)

    def _with_inputs_summed(self, number: int, members: list[Instruction]) -> list[Instruction]:
        """The members, and sums over the rows of what they read, where no member needs these."""
        inside = set(members)
        inputs = {part: None for one in members for part in one.operands if part not in inside}
        sums = [
            user
            for read in inputs
            if elements_of(read) == self.rows * self.minor
            for user in read.users
            if user.opcode == "reduce" and user not in self._own and user.operands[0] is read
            if self._is_column(user) and not user.has_control_edges
        ]
        found = []
        for one in dict.fromkeys(sums):
            # As a cluster of its own, it may become part of this one.
            alone = len(self._joined)
            self._joined.append(alone)
            self._members.append([one])
            self._own[one] = alone
            if self._may_merge(number, alone):
                self._joined[alone] = number
                self._add(number, [one])
                self._members[alone] = []
                self.columns.add(one)
                found.append(one)
            else:
                del self._own[one]
        return sorted([*members, *found], key=self._places.__getitem__)

    def _joins(self, one: Instruction, own: dict[Instruction, int]) -> bool:
        """Whether an instruction is of this form, given that what is in clusters is."""
        if one.has_control_edges or one.shape.is_dynamic or tells_apart(one):
            return False
        if not all(is_row_major(part.shape) for part in (one, *one.operands)):
            return False  # with layouts normalised it is between transposes
        if self.rows == 1 and elements_of(one) == 1 and not self._follows(one):
            return False  # any number of the program: what it has to do with the row comes later
        if any(part in self.columns for part in one.operands):
            # What is computed from columns is elsewhere, but for the cast of a sum.
            return self._is_cast_column(one)
        if one.opcode == "topk" or any(part in self.picked for part in one.operands):
            return self._is_picked(one, own)
        if one.opcode == "reduce":
            if any(part in own for part in one.fold_inits):
                return False
            if self._reduces(one):
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
            kind = "row" if elements_of(source) == self.rows else "full"
            return bool(spread_kind(one, kind, self.minor))
        if one.opcode in ("constant", "parameter"):
            return False
        if one.opcode == "iota" or is_elementwise(one):
            return True
        return self._is_view(one)

    def _picks(self, topk: Instruction) -> bool:
        form = pick_form(topk)
        return form is not None and form[:2] == (self.rows, self.minor)

    def _reduces(self, reduce: Instruction) -> bool:
        """Whether a reduction is of these rows.

        Short ones, which a thread folds where it needs the result, are where the kernel picks from the rows.
        """
        if not self._has_picks:
            return row_form(reduce) == (self.rows, self.minor)
        form = reduction_dims(reduce)
        return form is not None and form.is_row and form.dims == (1, self.rows, self.minor)

    def _is_picked(self, one: Instruction, own: Container[Instruction]) -> bool:
        """Whether an instruction takes the first elements of the rows, or goes on with what was taken."""
        kind = "pick"
        if one.opcode == "topk":
            count = one.attributes["k"]
            if not self._picks(one) or count != (self._count or count):
                return False  # a kernel leaves as many of a row everywhere
            if not one.is_root and any(user.opcode != "get-tuple-element" for user in one.users):
                return False
            self._count = count
        else:
            others = [part for part in one.operands if part in own and part not in self.picked]
            sizes = {"pick": self.rows * self._count, "after": self.rows}
            kind = pick_kind(one, self.picked, self.rows, self._count)
            if not kind or others or elements_of(one) != sizes[kind]:
                return False
            known = one.opcode in ("broadcast", "reduce", "get-tuple-element")
            if not (known or is_elementwise(one) or self._is_view(one)):
                return False
        self.picked[one] = kind
        return True

    def _follows(self, one: Instruction) -> bool:
        """Whether an instruction reduces the row, or is computed from what does and nothing else of it."""
        found = one.opcode == "reduce" or any(part in self._after for part in one.operands)
        if found:
            self._after.add(one)
        return found

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

    def _trimmed(self, members: list[Instruction]) -> list[Instruction]:
        """Without what nothing in the cluster reduces or reads of a reduction."""
        inside = set(members)
        wanted: set[Instruction] = set()
        # What follows a reduction of a row, and what such a member is computed from.
        for one in members:
            reduces = one.opcode == "topk" or (one.opcode == "reduce" and self._reduces(one))
            if reduces or any(operand in wanted for operand in one.operands):
                wanted.add(one)
        if not any(is_elementwise(one) or one.opcode == "topk" for one in wanted):
            return []
        wanted |= self.columns & inside
        for one in reversed(members):
            if one in wanted:
                wanted.update(part for part in one.operands if part in inside)
        return [one for one in members if one in wanted]


def _before(one: Instruction) -> tuple[Instruction, ...]:
    return (*one.operands, *one.control_predecessors)


def elements_of(instruction: Instruction) -> int:
    shape = instruction.shape
    return shape.elements if isinstance(shape, ArrayShape) else 0

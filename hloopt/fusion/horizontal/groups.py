"""Groups of independent kernels that are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.horizontal.member import HorizontalMember, is_laid_out_like

__all__ = ["Grouping", "horizontal_groups"]

_POINTER_BYTES = 8


@dataclass(frozen=True)
class Grouping:
    """What one fusion may hold.

    outputs          results of all members, as long as the first one is a fusion
    op_outputs       the same where the first one is an op
    parameter_bytes  of the pointers to operands and results, all together
    same_shape       whether all members compute arrays of the same shape and layout
    same_size        whether all members have as many instructions
    by_members       whether ``outputs`` counts members rather than results, and pointers of the first
                     member do not count, as XLA had it up to 2023
    """

    outputs: int
    op_outputs: int
    parameter_bytes: int
    same_shape: bool = False
    same_size: bool = False
    by_members: bool = False


def horizontal_groups(
    members: Sequence[HorizontalMember],
    grouping: Grouping,
    decide: Callable[[HorizontalMember, HorizontalMember], Decision],
) -> Iterator[tuple[list[HorizontalMember], Decision]]:
    """Runs of members, alike ones together, that are joined; with what ended each.

    ``decide`` is the user's advice on two of them: if refused, the second waits for the next run.
    """
    rest = sorted(members, key=lambda member: member.order)
    while rest:
        run = [rest[0]]
        waiting: list[HorizontalMember] = []
        end = forbid("horizontal-alone")
        room = _Room(grouping, rest[0])
        at = 1
        while at < len(rest):
            member = rest[at]
            stop = _differs(run[0], member, grouping)
            if stop is None:
                stop = room.take(member)
            if stop is not None:
                end = stop
                break
            advised = decide(run[0], member)
            if not advised:
                room.give_back(member)
                waiting.append(member)
                end = advised
            else:
                run.append(member)
            at += 1
        yield run, end
        rest = waiting + rest[at:]


class _Room:
    """What is left of the limits while a run grows."""

    def __init__(self, grouping: Grouping, first: HorizontalMember) -> None:
        self.grouping = grouping
        self.limit = grouping.outputs if first.is_fusion else grouping.op_outputs
        self.outputs = self._count(first)
        self.links = 0 if grouping.by_members else first.links

    def _count(self, member: HorizontalMember) -> int:
        return 1 if self.grouping.by_members else len(member.outputs)

    def take(self, member: HorizontalMember) -> Decision | None:
        """Count a member in, or say which limit it meets."""
        outputs = self.outputs + self._count(member)
        # Up to 2023 XLA filled the limit, later it stays below.
        if outputs > self.limit or (outputs == self.limit and not self.grouping.by_members):
            return forbid("horizontal-outputs", limit=self.limit, actual=outputs)
        size = (self.links + member.links) * _POINTER_BYTES
        if size >= self.grouping.parameter_bytes:
            limit = self.grouping.parameter_bytes
            return forbid("horizontal-parameters", limit=limit, actual=size)
        self.outputs = outputs
        self.links += member.links
        return None

    def give_back(self, member: HorizontalMember) -> None:
        """Undo the count of a member."""
        self.outputs -= self._count(member)
        self.links -= member.links


def _differs(
    first: HorizontalMember, other: HorizontalMember, grouping: Grouping
) -> Decision | None:
    """Why two cannot share a fusion, whatever its other members: types, numbers of results, shapes."""
    left, right = first.outputs[0], other.outputs[0]
    alike = (
        left.dtype == right.dtype
        and len(first.outputs) == len(other.outputs)
        and (not grouping.same_size or first.instructions == other.instructions)
        and (not grouping.same_shape or is_laid_out_like(left, right))
    )
    return None if alike else forbid("horizontal-alone")

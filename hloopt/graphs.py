"""Searches over whatever leads from one thing to others, and which things are the same."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["UnionFind", "post_order", "reached"]

_T = TypeVar("_T", bound=Hashable)


def reached(starts: Iterable[_T], following: Callable[[_T], Iterable[_T]]) -> Iterator[_T]:
    """``starts`` and all that they lead to, each once, nearest first.

    Successors of a node are read after it was yielded, so that a search may end early.
    """
    found = list(dict.fromkeys(starts))
    seen = set(found)
    for one in found:
        yield one
        for other in following(one):
            if other not in seen:
                seen.add(other)
                found.append(other)


def post_order(
    starts: Iterable[_T], before: Callable[[_T], Iterable[_T]], known: Container[_T] = ()
) -> Iterator[_T]:
    """``starts`` and all they need, each once and after everything that ``before`` says comes before it.

    What is ``known`` is left out, with what it alone needs; a caller may add to it meanwhile.
    """
    seen: set[_T] = set()
    stack: list[tuple[_T | None, Iterator[_T]]] = [(None, iter(starts))]
    while stack:
        top, rest = stack[-1]
        for one in rest:
            if one not in seen and one not in known:
                seen.add(one)
                stack.append((one, iter(before(one))))
                break
        else:
            stack.pop()
            if top is not None:
                yield top


class UnionFind(Generic[_T]):
    """Things that were found to be the same: one of them stands for all (path halving)."""

    def __init__(self) -> None:
        self._above: dict[_T, _T] = {}

    def find(self, one: _T) -> _T:
        """What stands for a thing; itself where it was joined to none."""
        above = self._above
        while (over := above.get(one, one)) != one:
            above[one] = one = above.get(over, over)
        return one

    def join(self, *members: _T) -> None:
        """Things are the same: what stands for the first one stands for all."""
        for other in members[1:]:
            self._above[self.find(other)] = self.find(members[0])

"""Orders: instructions after their operands, computations after those they call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hloopt.proto.problem import Problem

__all__ = ["sorted_by_needs"]


def sorted_by_needs(
    ids: Sequence[int], needs: Callable[[int], Iterable[int]], what: Callable[[int], str]
) -> list[int]:
    """``ids`` so that each comes after those it needs, otherwise as they are.

    Raises ``Problem`` naming a cycle by ``what``.
    """
    order: list[int] = []
    done: set[int] = set()
    for start in ids:
        if start in done:
            continue
        stack = [(start, iter(needs(start)))]
        path, on_path = [start], {start}
        while stack:
            current, rest = stack[-1]
            needed = next((entry for entry in rest if entry not in done), None)
            if needed is None:
                stack.pop()
                path.pop()
                on_path.discard(current)
                done.add(current)
                order.append(current)
            elif needed in on_path:
                cycle = [*path[path.index(needed) :], needed]
                shown = [what(entry) for entry in cycle[:8]]
                raise Problem(f"depends on itself: {' needs '.join(shown)}")
            else:
                stack.append((needed, iter(needs(needed))))
                path.append(needed)
                on_path.add(needed)
    return order

"""Which dimensions of a reshape are which."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["factors"]


def factors(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest groups of dimensions that a reshape turns into each other; sizes of 1 are in none.

    No size is 0.
    """
    left = [dimension for dimension, size in enumerate(before) if size != 1]
    right = [dimension for dimension, size in enumerate(after) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    at_left = at_right = 0
    while at_left < len(left):
        start_left, start_right = at_left, at_right
        product_left = product_right = 1
        while product_left != product_right or product_left == 1:
            if product_left <= product_right:
                product_left *= before[left[at_left]]
                at_left += 1
            else:
                product_right *= after[right[at_right]]
                at_right += 1
        groups.append((left[start_left:at_left], right[start_right:at_right]))
    return groups

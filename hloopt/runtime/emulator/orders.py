"""Does the order of blocks and threads matter?  Runs with different seeds, compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.runtime.device import Array

__all__ = ["OrderDifference", "compare_orders"]


@dataclass(frozen=True, slots=True)
class OrderDifference:
    """Result ``result`` has other bytes with seed ``seeds[1]`` than with ``seeds[0]``.

    ``byte`` is the first that differs, ``count`` how many do.
    """

    result: int
    seeds: tuple[int, int]
    byte: int
    count: int

    def __str__(self) -> str:
        first, second = self.seeds
        return (
            f"result {self.result} depends on the order of blocks or threads: {self.count} bytes differ "
            f"between seeds {first} and {second}, the first at byte {self.byte}"
        )


def compare_orders(
    run: Callable[[int], Sequence[Array]], seeds: Sequence[int] = (0, 1)
) -> list[OrderDifference]:
    """Run a program once for each seed; each result that differs from the first run's, with where it does.

    Atomics of floats round in the order in which they come: programs with such are not for this.
    """
    first = [_bytes(array) for array in run(seeds[0])]
    found = []
    for seed in seeds[1:]:
        for number, (want, array) in enumerate(zip(first, run(seed), strict=True)):
            got = _bytes(array)
            if want.size != got.size:
                raise ValueError(f"result {number} has {want.size} bytes, then {got.size}")
            differing = np.flatnonzero(want != got)
            if differing.size:
                pair = (seeds[0], seed)
                found.append(OrderDifference(number, pair, int(differing[0]), differing.size))
    return found


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

"""Which values of a module are computed together in which kernels, to compare two ways of fusing one module.

Instructions are told by what they compute (``analysis/value_digests.py``), not by name: XLA renames the copies
it makes.  What several kernels compute counts in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from hloopt.analysis.value_digests import ValueDigests
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module

__all__ = ["Kernel", "Partition", "PartitionDifference", "compare_partitions", "partition"]

Kernel: TypeAlias = frozenset[bytes]


@dataclass(frozen=True)
class Partition:
    """The kernels of a module: sets of the values they compute, and the instructions that are such kernels.

    Parameters, constants, tuples and what moves no byte (bitcasts) are in none.
    """

    kernels: dict[Kernel, tuple[Instruction, ...]]

    @property
    def counts(self) -> Counter[Kernel]:
        """How many kernels there are of each set."""
        return Counter({kernel: len(entries) for kernel, entries in self.kernels.items()})


@dataclass(frozen=True)
class PartitionDifference:
    """Kernels of one module that the other has not, and the number of those that both have.

    False where there are none of the former.
    """

    only_left: tuple[Instruction, ...]
    only_right: tuple[Instruction, ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.only_left or self.only_right)


def partition(module: Module) -> Partition:
    """The kernels of a module; the cost is that of the digests, linear in instructions."""
    found: dict[Kernel, tuple[Instruction, ...]] = {}
    for entry, digests in ValueDigests(module).kernels.items():
        kernel = frozenset(digest for digest, _ in digests.inner)
        if kernel:
            found[kernel] = (*found.get(kernel, ()), entry)
    return Partition(found)


def compare_partitions(left: Partition, right: Partition) -> PartitionDifference:
    """What differs between two ways of fusing the same module."""
    same = sum((left.counts & right.counts).values())
    return PartitionDifference(tuple(_surplus(left, right)), tuple(_surplus(right, left)), same)


def _surplus(these: Partition, those: Partition) -> Iterator[Instruction]:
    for kernel, entries in these.kernels.items():
        yield from entries[len(those.kernels.get(kernel, ())) :]

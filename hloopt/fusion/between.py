"""The arrays that one kernel writes and another reads, and why each goes through memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hloopt.dataclass import dataclass
from hloopt.fusion.explained import Edge, KernelFacts
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.provenance import FusionNode
from hloopt.ops.traits import PLUMBING

__all__ = ["ArrayBetween", "kept_arrays"]

_VIEWS = PLUMBING - {"parameter"} | {"bitcast", "reshape"}
"""As unfused instructions these write nothing."""


@dataclass(frozen=True, slots=True)
class ArrayBetween:
    """A result of ``kernel`` that ``readers`` read; each of their uses says why it is not in that kernel."""

    node: FusionNode
    kernel: KernelFacts
    readers: tuple[tuple[KernelFacts, Edge], ...]


def kept_arrays(explanation: Explanation, least: float = 0) -> list[ArrayBetween]:
    """The arrays between kernels after all strategies, of ``least`` bytes or more, the largest first."""
    found = []
    for (home, _), kernel in explanation.kernels.items():
        for name in kernel.outputs or kernel.members:
            node = explanation.nodes.get((home, name))
            if node is None or node.byte_size < least or _is_view(node, explanation):
                continue
            readers = {
                reader.name: (reader, edge)
                for edge in _uses(node, explanation)
                for reader in edge.consumer_kernels
                if reader not in edge.producer_kernels
            }
            if readers:
                found.append(ArrayBetween(node, kernel, tuple(readers.values())))
    return sorted(found, key=lambda row: -row.node.byte_size)


def _is_view(node: FusionNode, explanation: Explanation) -> bool:
    """Whether it is unfused and writes nothing."""
    homes = explanation.kernels_of((node.computation, node.name))
    return node.opcode in _VIEWS and all(len(home.members) == 1 for home in homes)


def _uses(node: FusionNode, explanation: Explanation) -> Iterator[Edge]:
    """The uses by other kernels, also through views; a result in a tuple that is returned has none."""
    pending, seen = [node], {node.name}
    while pending:
        source = pending.pop()
        for name in source.users:
            user = explanation.nodes.get((node.computation, name))
            if user is None or name in seen:
                continue
            if _is_view(user, explanation):
                seen.add(name)
                if user.opcode != "tuple":
                    pending.append(user)
                continue
            edge = explanation.edge(source, user)
            if not edge.common:
                yield replace(edge, producer=node)

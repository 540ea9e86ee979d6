"""Dimensions that go together, and who mixes them.

Dimensions of values that depend on the index of a unit are tied into classes, op by op (``ties``).  A class is
mixed where an op reads such a value at other indices than its own along it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hloopt.analysis.parallel_loop.edges import nodes_of, shape_of
from hloopt.analysis.parallel_loop.model import Mixing, Node
from hloopt.analysis.parallel_loop.ties import Relation, relations
from hloopt.ir import Instruction

__all__ = ["Classes", "Dim", "Mixed"]

Dim: TypeAlias = "tuple[Instruction, int, int]"
"""A dimension of a node; one stands for its class."""


@dataclass
class Classes:
    """Dimensions of ``owned`` nodes, tied together by the relations of ``ops``."""

    owned: Collection[Node]
    _related: list[tuple[Instruction, tuple[Relation, ...]]] = field(default_factory=list)
    _parents: dict[Dim, Dim] = field(default_factory=dict)

    def of(self, node: Node, dim: int) -> Dim:
        """The class of a dimension."""
        return self._find((*node, dim))

    def link(self, pairs: Iterable[tuple[Node, Node]]) -> None:
        """Tie all dimensions of nodes that are the same."""
        for source, target in pairs:
            if source in self.owned and target in self.owned:
                for dim in range(shape_of(source).rank):
                    self._tie((*source, dim), (*target, dim))

    def relate(self, ops: Iterable[Instruction]) -> None:
        """Tie what the relations of instructions tie."""
        for instruction in ops:
            found = tuple(
                one
                for one in relations(instruction)
                if (instruction.operands[one.operand], 0) in self.owned
            )
            if found:
                self._related.append((instruction, found))
            for one in found:
                if one.result is not None:
                    operand = instruction.operands[one.operand]
                    for node in nodes_of(instruction):
                        self._tie((operand, 0, one.dim), (*node, one.result))

    def mixed(self, spared: Mapping[Instruction, Collection[int]]) -> Mixed:
        """What mixes each class first, leaving out dimensions that ``spared`` instructions mix."""
        found: Mixed = {}
        for instruction, related in self._related:
            left_out = spared.get(instruction, ())
            for one in related:
                if one.result is None and one.dim not in left_out:
                    operand = instruction.operands[one.operand]
                    key = self._find((operand, 0, one.dim))
                    if key not in found:
                        found[key] = _mixes(instruction, operand, one.dim)
        for node in self.owned:
            for key, size in self._twice(node):
                found.setdefault(key, _pairs(node[0], size))
        return found

    def pair(self, nodes: Iterable[Node], mixed: Mixed) -> None:
        """Tie dimensions of ``nodes`` that have one size and nothing to do with each other.

        A unit may own an index of both: neither is mixed, and no value lies along the two.
        """
        together: dict[Dim, set[Dim]] = defaultdict(set)
        for node in self.owned:
            found = {self.of(node, dim) for dim in range(shape_of(node).rank)}
            for key in found:
                together[key] |= found
        first: dict[int, list[Dim]] = defaultdict(list)
        for node in nodes:
            for dim, size in enumerate(shape_of(node).dims):
                key = self.of(node, dim)
                if size == 1 or key in mixed or key in first[size]:
                    continue
                other = next((one for one in first[size] if one not in together[key]), None)
                if other is None:
                    first[size].append(key)
                    continue
                self._tie(other, key)
                for one in together.pop(key):
                    together[one].add(other)
                    together[other].add(one)

    def _twice(self, node: Node) -> Iterator[tuple[Dim, int]]:
        """Classes that are two dimensions of a value: no unit has what lies off the diagonal."""
        seen: set[Dim] = set()
        for dim, size in enumerate(shape_of(node).dims):
            if size != 1:
                key = self._find((*node, dim))
                if key in seen:
                    yield key, size
                seen.add(key)

    def _find(self, dim: Dim) -> Dim:
        parents = self._parents
        root = dim
        while (above := parents.get(root, root)) != root:
            root = above
        while dim != root:
            parents[dim], dim = root, parents.get(dim, dim)
        return root

    def _tie(self, one: Dim, other: Dim) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._parents[other] = one


Mixed: TypeAlias = "dict[Dim, Mixing]"
"""For each class that is mixed the first instruction that does it."""


def _mixes(instruction: Instruction, operand: Instruction, dim: int) -> Mixing:
    words = (
        f"{instruction.opcode} {instruction.name} mixes the {operand.array.dims[dim]} elements of"
        f" dimension {dim} of {operand.name}"
    )
    return Mixing(instruction, words)


def _pairs(instruction: Instruction, size: int) -> Mixing:
    words = f"{instruction.opcode} {instruction.name} pairs each of {size} elements with each other"
    return Mixing(instruction, words)

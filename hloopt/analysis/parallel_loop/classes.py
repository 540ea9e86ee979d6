"""Classes of dimensions, and what mixes them.

Dimensions of values that depend on the index of a work item are tied into classes, op by op (``ties``).  A
class is mixed where an op reads such a value at other indices than its own along it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, TypeAlias

from hloopt.analysis.parallel_loop.edges import nodes_of, shape_of
from hloopt.analysis.parallel_loop.model import Dependence, LoopNode
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.graphs import UnionFind
from hloopt.ir import Instruction
from hloopt.ops.traits import TUPLES

__all__ = ["Dim", "DimensionClasses", "Mixed"]

_NAMES: Final = TUPLES | {"parameter", "while"}

Dim: TypeAlias = "tuple[Instruction, int, int]"
"""A dimension of a node; one stands for its class."""


class DimensionClasses:
    """Dimensions of ``owned`` nodes, tied together by links and relations.

    Nodes of which each dimension is tied to the same one of the other (elementwise ops, other names) are one
    **head**: most of a body is, and needs no query of its own then.  Tie first, then query.
    """

    def __init__(self, owned: Collection[LoopNode]) -> None:
        self.owned = owned
        self._heads = UnionFind[LoopNode]()
        self._parents = UnionFind[Dim]()
        self._ties: list[tuple[LoopNode, int, LoopNode, int]] = []
        self._mixing: list[tuple[Instruction, Instruction, int]] = []

    def of(self, node: LoopNode, dim: int) -> Dim:
        """The class of a dimension."""
        return self._parents.find((*self.head(node), dim))

    def head(self, node: LoopNode) -> LoopNode:
        """One of all nodes whose dimensions are in the same classes."""
        return self._heads.find(node)

    @cached_property
    def groups(self) -> dict[LoopNode, LoopNode]:
        """The heads of owned nodes, each with the first of its nodes that is computed, if one is."""
        found: dict[LoopNode, LoopNode] = {}
        for node in self.owned:
            head = self.head(node)
            if head not in found or found[head][0].opcode in _NAMES:
                found[head] = node
        return found

    def link(self, pairs: Iterable[tuple[LoopNode, LoopNode]]) -> None:
        """Tie all dimensions of nodes that are the same."""
        for source, target in pairs:
            if source in self.owned and target in self.owned:
                self._heads.join(source, target)

    def relate(self, ops: Iterable[Instruction]) -> None:
        """Tie what the relations of instructions tie."""
        for instruction in ops:
            owned = [operand for operand in instruction.operands if (operand, 0) in self.owned]
            if not owned:
                continue
            if instruction.op.is_elementwise and _are_alike(instruction, owned):
                for operand in owned:
                    self._heads.join((operand, 0), (instruction, 0))
                continue
            for one in relations(instruction):
                operand = instruction.operands[one.operand]
                if (operand, 0) not in self.owned:
                    continue
                if one.result is None:
                    self._mixing.append((instruction, operand, one.dim))
                else:
                    for node in nodes_of(instruction):
                        self._ties.append(((operand, 0), one.dim, node, one.result))

    def tie(self) -> None:
        """After all links and relations."""
        for source, dim, target, result in self._ties:
            self._parents.join((*self.head(source), dim), (*self.head(target), result))

    def mixed(self, spared: Mapping[Instruction, Collection[int]]) -> Mixed:
        """What mixes each class first, leaving out dimensions that ``spared`` instructions mix."""
        found: Mixed = {}
        for instruction, operand, dim in self._mixing:
            if dim not in spared.get(instruction, ()):
                key = self.of((operand, 0), dim)
                if key not in found:
                    found[key] = _mixes(instruction, operand, dim)
        for node in self.groups.values():
            for key, size in self._twice(node):
                found.setdefault(key, _pairs(node[0], size))
        return found

    def pair(self, nodes: Iterable[LoopNode], mixed: Mixed) -> None:
        """Tie dimensions of ``nodes`` that have one size and no relation to each other.

        A work item may own an index of both: neither is mixed, and no value lies along the two.
        """
        together: dict[Dim, set[Dim]] = defaultdict(set)
        for node in self.groups.values():
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
                self._parents.join(other, key)
                for one in together.pop(key):
                    together[one].add(other)
                    together[other].add(one)

    def _twice(self, node: LoopNode) -> Iterator[tuple[Dim, int]]:
        """Classes that are two dimensions of a value: no work item has what lies off the diagonal."""
        seen: set[Dim] = set()
        for dim, size in enumerate(shape_of(node).dims):
            if size != 1:
                key = self.of(node, dim)
                if key in seen:
                    yield key, size
                seen.add(key)


def _are_alike(instruction: Instruction, operands: Iterable[Instruction]) -> bool:
    """Whether operands have the dimensions of the result: a ``select`` may be by one pred for all."""
    dims = instruction.array.dims
    return all(operand.array.dims == dims for operand in operands)


Mixed: TypeAlias = "dict[Dim, Dependence]"
"""For each class that is mixed the first instruction that does it."""


def _mixes(instruction: Instruction, operand: Instruction, dim: int) -> Dependence:
    words = (
        f"{instruction.opcode} {instruction.name} mixes the {operand.array.dims[dim]} elements of"
        f" dimension {dim} of {operand.name}"
    )
    return Dependence(instruction, words)


def _pairs(instruction: Instruction, size: int) -> Dependence:
    words = f"{instruction.opcode} {instruction.name} pairs each of {size} elements with each other"
    return Dependence(instruction, words)

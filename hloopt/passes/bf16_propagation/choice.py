"""Which nodes become bf16: those that may, where that moves fewer bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hloopt.analysis.layout import same_layout
from hloopt.ir import Instruction
from hloopt.passes.bf16_propagation.graph import ValueGraph, ValueNode
from hloopt.simplify.rules.convert import is_lossless
from hloopt.types import DTYPES

__all__ = ["NarrowChoice"]

_BF16 = DTYPES["bf16"]


class NarrowChoice:
    """``exact``: all elements are values of bf16.  ``rounded``: all readers round them to bf16 anyway."""

    def __init__(self, graph: ValueGraph, *, fast_math: bool) -> None:
        self.graph = graph
        self.fast_math = fast_math
        self.exact = self._largest(self._may_be_exact, self._is_exact, lambda node: node.readers)
        self.rounded = self._largest(self._is_read, self._is_rounded, self._made_of)
        self.narrow = {
            node
            for node in graph.nodes
            if node in self.exact or (node in self.rounded and self._may_round(node))
        }
        self._drop_loose()

    def components(self) -> list[list[ValueNode]]:
        """Narrow nodes that hang together, in the order of the graph; sources belong to no group."""
        found: list[list[ValueNode]] = []
        seen: set[ValueNode] = set()
        for start in self.graph.nodes:
            if start in seen or start not in self.narrow or start.kind == "source":
                continue
            seen.add(start)
            component, pending = [], [start]
            while pending:
                node = pending.pop()
                component.append(node)
                for other in (*node.readers, *self._made_of(node)):
                    if other in self.narrow and other not in seen and other.kind != "source":
                        seen.add(other)
                        pending.append(other)
            found.append(component)
        return found

    def saved_bytes(self, component: list[ValueNode]) -> int:
        """The bytes of arrays that need not be written, less those of new converts."""
        inside = set(component)
        saved = 0
        sources: set[ValueNode] = set()
        rounded: set[Instruction] = set()
        for node in component:
            back = bool(node.others) or any(reader not in inside for reader in node.readers)
            saved += 2 * node.elements * (1 + len(node.rounded)) - 4 * node.elements * back
            for instruction in node.inputs:
                made = self.graph.of.get(instruction)
                if made is not None and made.kind == "source" and made in self.exact:
                    sources.add(made)
                elif made not in inside:
                    rounded.add(instruction)
        for source in sources:
            if not _is_constant(source) and not (source.others or source.rounded):
                saved += 4 * source.elements * all(one in inside for one in source.readers)
        return saved - sum(2 * instruction.array.elements for instruction in rounded)

    # ---- the two properties: the largest sets that hold up ------------------------------------------

    def _largest(
        self,
        start: Callable[[ValueNode], bool],
        holds: Callable[[ValueNode, set[ValueNode]], bool],
        concerned: Callable[[ValueNode], Iterable[ValueNode]],
    ) -> set[ValueNode]:
        found = {node for node in self.graph.nodes if start(node)}
        pending = [node for node in self.graph.nodes if node in found]
        while pending:
            node = pending.pop()
            if node in found and not holds(node, found):
                found.discard(node)
                pending.extend(other for other in concerned(node) if other in found)
        return found

    def _made_of(self, node: ValueNode) -> list[ValueNode]:
        return [entry for entry in self.graph.inputs(node) if entry is not None]

    def _may_be_exact(self, node: ValueNode) -> bool:
        if node.kind == "computing":
            return False
        return node.kind != "source" or _fits(node.instruction)

    def _is_exact(self, node: ValueNode, found: set[ValueNode]) -> bool:
        return all(entry is not None and entry in found for entry in self.graph.inputs(node))

    def _is_read(self, node: ValueNode) -> bool:
        return not node.others and bool(node.readers or node.rounded)

    def _is_rounded(self, node: ValueNode, found: set[ValueNode]) -> bool:
        return all(reader in found and self._commutes(reader) for reader in node.readers)

    def _commutes(self, reader: ValueNode) -> bool:
        """Whether rounding the operands is rounding the result.

        Not so for maximum and minimum: what rounds to +0 was more than -0, and they may give either.
        """
        return self.fast_math or reader.kind in ("moving", "carry", "reading")

    def _may_round(self, node: ValueNode) -> bool:
        if node.kind == "source":
            return False
        return (
            self.fast_math
            or node.kind != "computing"
            or all(entry is not None and entry in self.exact for entry in self.graph.inputs(node))
        )

    def _drop_loose(self) -> None:
        """What all readers round is narrow only if its readers are: they may have turned out not to be."""
        pending = [node for node in self.graph.nodes if node in self.narrow]
        while pending:
            node = pending.pop()
            if node not in self.narrow or node in self.exact:
                continue
            inputs = self._made_of(node)
            loose = any(reader not in self.narrow for reader in node.readers)
            if node.kind == "reading":
                loose |= any(entry not in self.narrow for entry in inputs)
            if loose:
                self.narrow.discard(node)
                pending += [entry for entry in (*inputs, *node.readers) if entry in self.narrow]


def _is_constant(node: ValueNode) -> bool:
    return node.instruction is not None and node.instruction.opcode == "constant"


def _fits(instruction: Instruction | None) -> bool:
    """Whether a convert or constant has values of bf16 only."""
    assert instruction is not None
    if instruction.opcode == "convert":
        source = instruction.operands[0].array
        same = same_layout(source.with_dtype(_BF16), instruction.array.with_dtype(_BF16))
        return same and is_lossless(source.dtype, _BF16)
    array = instruction.constant_array
    if array is None:
        return False
    with np.errstate(all="ignore"):
        there = array.astype(_BF16.numpy).astype(np.float32)
    return bool(np.array_equal(there.view(np.uint32), array.view(np.uint32)))

"""Rewriting a region: pieces instead of the whole, also in the state of loops."""

from __future__ import annotations

from hloopt.ir import Instruction, build, edit
from hloopt.passes.concat_removal.loops import StateElement
from hloopt.passes.concat_removal.pieces import Pieces, cut_shape
from hloopt.passes.concat_removal.region import CutRegion
from hloopt.passes.concat_removal.splits import Split
from hloopt.passes.loops.carried import states
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["apply_region"]


def apply_region(region: CutRegion, *, fast_math: bool) -> None:
    """Make the pieces of all nodes of a region and let their readers take them."""
    _Rewriter(region, fast_math).run()


class _Rewriter:
    def __init__(self, region: CutRegion, fast_math: bool) -> None:
        self.region = region
        members = {n: s for n, s in region.nodes.items() if isinstance(n, Instruction)}
        self.pieces = Pieces(members, fast_math)
        self.loops: dict[Instruction, dict[int, Split]] = {}
        for node, split in region.nodes.items():
            if isinstance(node, StateElement):
                self.loops.setdefault(node.loop, {})[node.index] = split
        self.places: dict[Instruction, dict[int, list[int]]] = {}
        self.shapes: dict[Instruction, TupleShape] = {}
        self.roots = {loop.body.root: loop for loop in self.loops}
        self.sources = {source: loop for loop in self.loops for source in states(loop)}

    def run(self) -> None:
        for loop, slots in self.loops.items():
            self.lay_out(loop, slots)
        nodes = (*self.pieces.splits, *self.roots, *self.loops)
        touched = {node.computation: None for node in nodes if node.computation is not None}
        old: list[Instruction] = []
        for computation in touched:
            for instruction in list(computation):
                self.visit(instruction, old)
        joined = {node: self.pieces.join(node) for node in old if node in self.region.whole}
        for node, join in joined.items():
            edit.replace_uses(node, join)
        for node in reversed(old):
            edit.remove(node)
            if node in joined:
                edit.rename(joined[node], node.name)

    def visit(self, instruction: Instruction, old: list[Instruction]) -> None:
        if instruction in self.pieces.splits:
            loop = self.loop_of(instruction)
            if loop is None:
                self.pieces.make(instruction)
            else:
                self.take(instruction, loop)
            old.append(instruction)
        elif instruction in self.region.readers:
            edit.replace_instruction(instruction, self.pieces.reader(instruction))
        elif instruction in self.loops:
            self.enter(instruction)
        elif instruction in self.roots:
            loop = self.roots[instruction]
            state = self.state(instruction, instruction, loop)
            edit.set_root(loop.body, state)
            edit.replace_instruction(instruction, state)

    def loop_of(self, node: Instruction) -> Instruction | None:
        return self.sources.get(node.operands[0]) if node.opcode == "get-tuple-element" else None

    def lay_out(self, loop: Instruction, slots: dict[int, Split]) -> None:
        """The first piece keeps the place of the whole; the others go to the end."""
        elements: list[Shape] = list(loop.elements)
        places = self.places[loop] = {}
        for index, split in slots.items():
            whole = elements[index]
            assert isinstance(whole, ArrayShape)
            cut = [cut_shape(whole, split.dim, end - begin) for begin, end in split.ranges]
            places[index] = [index, *range(len(elements), len(elements) + len(cut) - 1)]
            elements[index] = cut[0]
            elements += cut[1:]
        self.shapes[loop] = TupleShape(tuple(elements))
        for source in states(loop):
            edit.set_shape(source, self.shapes[loop])

    def take(self, node: Instruction, loop: Instruction) -> None:
        """The pieces of an element of a loop's state."""
        shapes = self.shapes[loop].elements
        self.pieces.made[node] = [
            build.make(
                node, "get-tuple-element", node.operands, {**node.attributes, "index": place},
                shape=shapes[place], name=node.name, metadata=node.metadata,
            )
            for place in self.places[loop][node.tuple_index]
        ]  # fmt: skip

    def enter(self, loop: Instruction) -> None:
        (old,) = loop.operands
        state = self.state(loop, old, loop)
        edit.set_operands(loop, (state,))
        if old.opcode == "tuple" and not old.is_used:
            edit.replace_instruction(old, state)

    def state(self, position: Instruction, old: Instruction, loop: Instruction) -> Instruction:
        """A tuple like ``old``, with pieces."""
        elements = list(build.elements(position, old, old.metadata))
        for index, split in self.loops[loop].items():
            whole = elements[index]
            cut = [
                self.pieces.fetch(position, whole, split.dim, begin, end)
                for begin, end in split.ranges
            ]
            elements[index] = cut[0]
            elements += cut[1:]
        return build.make(
            position, "tuple", tuple(elements), old.attributes if old.opcode == "tuple" else {},
            shape=self.shapes[loop], name=old.name, metadata=old.metadata,
        )  # fmt: skip

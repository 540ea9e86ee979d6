"""What instructions say about themselves: where they come from, how they are replicated, how exact they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hloopt.ir import Instruction
from hloopt.ir.module import StackTables
from hloopt.types import Metadata, Shape, TupleShape, leaves
from hloopt.verify.places import Fault
from hloopt.verify.readings import Tree, flags, origin

__all__ = ["NoteChecks"]

_FRAME = re.compile(r"stack_frame_id=([0-9]+)")


class NoteChecks:
    """The checks of one module."""

    def __init__(self, tables: StackTables) -> None:
        self._frames = tables.frames
        self._origins: dict[str, tuple[Tree] | None] = {}

    def frame_faults(self, instruction: Instruction, metadata: Metadata) -> Iterator[Fault]:
        """A stack frame that the tables do not have; modules without tables name frames of others."""
        if not self._frames:
            return
        found = _FRAME.search(metadata.text)
        if found is None or int(found[1]) in self._frames:
            return
        # The text may stand in a name: only what was decoded is sure.
        number = metadata.fields.get("stack_frame_id", 0)
        if number and number not in self._frames:
            yield Fault(
                instruction, "stack-frame", f"stack_frame_id={number} is not a row of StackFrames"
            )

    def replication_faults(self, instruction: Instruction) -> Iterator[Fault]:
        """A flag for each array."""
        count = flags(instruction.attributes["parameter_replication"])
        arrays = sum(1 for _ in leaves(instruction.shape))
        if count is not None and count != arrays:
            yield Fault(
                instruction,
                "parameter-replication",
                f"parameter_replication= has {count} flags, {instruction.shape} has {arrays} leaves",
            )

    def accuracy_faults(self, instruction: Instruction) -> Iterator[Fault]:
        """Only ops that are approximated say how exact they are."""
        if instruction.op.attribute("result_accuracy") is None:
            yield Fault(
                instruction,
                "result-accuracy",
                f"{instruction.opcode} is not approximated and has no result_accuracy=",
            )

    def origin_faults(self, instruction: Instruction) -> Iterator[Fault]:
        """The tree of an origin is that of the shape."""
        value: Any = instruction.attributes["origin"]
        text = str(value)
        if text not in self._origins:
            self._origins[text] = origin(value)
        tree = self._origins[text]
        if tree is not None and not _same_tree(tree[0], instruction.shape):
            yield Fault(
                instruction,
                "origin",
                f"origin={value} does not have the tree of {instruction.shape}",
            )


def _same_tree(tree: Tree, shape: Shape) -> bool:
    if tree is None or not isinstance(shape, TupleShape):
        return tree is None and not isinstance(shape, TupleShape)
    return len(tree) == len(shape.elements) and all(map(_same_tree, tree, shape.elements))

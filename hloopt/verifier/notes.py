"""What instructions say about themselves: where they come from, how they are replicated, how exact they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hloopt.ir import Instruction
from hloopt.ir.module import StackTables
from hloopt.types import Metadata, Origin, OriginTree, Shape, TupleShape, leaves, record_of
from hloopt.verifier.constraints import Fault

__all__ = ["NoteChecks"]

_FRAME = re.compile(r"stack_frame_id=([0-9]+)")


class NoteChecks:
    """The checks of one module."""

    def __init__(self, tables: StackTables) -> None:
        self._frames = tables.frames

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
        flags = record_of(instruction.attributes, "parameter_replication", tuple)
        arrays = sum(1 for _ in leaves(instruction.shape))
        if flags is not None and len(flags) != arrays:
            yield Fault(
                instruction,
                "parameter-replication",
                f"parameter_replication= has {len(flags)} flags, {instruction.shape} has {arrays} leaves",
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
        origin = record_of(instruction.attributes, "origin", Origin)
        if origin is None or origin.tree is None:
            return
        if not _same_tree(origin.tree, instruction.shape):
            yield Fault(
                instruction,
                "origin",
                f"origin={instruction.attributes['origin']} does not have the tree of {instruction.shape}",
            )


def _same_tree(tree: OriginTree, shape: Shape) -> bool:
    if not isinstance(tree, tuple) or not isinstance(shape, TupleShape):
        return not isinstance(tree, tuple) and not isinstance(shape, TupleShape)
    return len(tree) == len(shape.elements) and all(map(_same_tree, tree, shape.elements))

"""Custom calls that are planned: markers are names of their operand; the others are evaluated.

What the user supplies for a target comes first, as in ``interpret.custom_calls``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Slots
from hloopt.interpret import plugins
from hloopt.interpret.shards import is_boundary
from hloopt.ir import Instruction
from hloopt.ops.custom import MARKERS
from hloopt.types import ArrayShape, compatible

__all__ = ["EMITTERS"]


def _custom_call(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots | None:
    target = instruction.custom_call_target
    is_marker = target in MARKERS and plugins.named(target) is None
    return _passed_on(instruction, operands) if is_marker else None


def _passed_on(instruction: Instruction, operands: Sequence[int]) -> int | None:
    """The operand itself; several participants may exchange parts at the boundary of a manual region."""
    if len(operands) != 1 or is_boundary(instruction):
        return None
    shapes = instruction.shape, instruction.operands[0].shape
    arrays = all(isinstance(shape, ArrayShape) for shape in shapes)
    return operands[0] if arrays and compatible(*shapes) else None


EMITTERS: Mapping[str, Emitter] = {"custom-call": _custom_call}

"""What the leaves of an instruction's shape are, where some are only passed on: trees of nested tuples."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from hloopt.ir import Instruction
from hloopt.ops.traits import DONES, STARTS, op_table
from hloopt.types import Shape, TupleShape

__all__ = ["STARTED", "Tree", "fits", "kept_operands", "leaves", "mapped", "part", "passed_on"]

_T = TypeVar("_T", int, bytes)

Tree: TypeAlias = "_T | tuple[Tree[_T], ...]"
"""Something for each leaf of a shape, nested as the shape is."""

STARTED: Final = op_table({
    "async-start": 0, "all-gather-start": 0, "collective-permute-start": 0, "copy-start": 1,
}, STARTS, "nothing they give is their operands")  # fmt: skip
"""The element of what they give that is their operands."""
_DONE: Final = op_table({
    "async-done": 1, "all-gather-done": 1, "collective-permute-done": 1, "copy-done": 0,
}, DONES, "what was started as it is")  # fmt: skip
"""The element of what was started that is the result."""


def leaves(tree: Tree[_T]) -> Iterator[_T]:
    """What is at the leaves, depth first."""
    if isinstance(tree, tuple):
        for element in tree:
            yield from leaves(element)
    else:
        yield tree


def mapped(tree: Tree[_T], change: Callable[[_T], _T]) -> Tree[_T]:
    """The tree with something else at each leaf."""
    if isinstance(tree, tuple):
        return tuple(mapped(element, change) for element in tree)
    return change(tree)


def part(tree: Tree[_T], index: tuple[int, ...]) -> Tree[_T] | None:
    """The tree below an index; None where there is none."""
    for number in index:
        if not isinstance(tree, tuple) or number >= len(tree):
            return None
        tree = tree[number]
    return tree


def fits(tree: Tree[_T], shape: Shape) -> bool:
    """Whether a tree is nested as a shape is."""
    if isinstance(shape, TupleShape):
        return (
            isinstance(tree, tuple)
            and len(tree) == len(shape.elements)
            and all(map(fits, tree, shape.elements))
        )
    return not isinstance(tree, tuple)


def passed_on(
    instruction: Instruction, trees: Mapping[Instruction, Tree[_T]], through: Container[str]
) -> Tree[_T] | None:
    """What an instruction passes on of its operands' trees; None where it makes a new value.

    ``through`` are the opcodes that pass on their first operand, or of what was started the result.
    """
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "tuple":
        return tuple(trees[operand] for operand in operands)
    if opcode == "get-tuple-element":
        return part(trees[operands[0]], (instruction.tuple_index,))
    if opcode not in through or not operands:
        return None
    found = part(trees[operands[0]], (_DONE[opcode],) if opcode in _DONE else ())
    return found if found is not None and fits(found, instruction.shape) else None


def kept_operands(start: Instruction, trees: Mapping[Instruction, Tree[_T]]) -> Tree[_T]:
    """What an op that starts something has of its operands in its result: one alone is not in a tuple."""
    given = tuple(trees[operand] for operand in start.operands)
    is_alone = len(given) == 1 and start.opcode != "async-start"
    return given[0] if is_alone or start.opcode == "send" else given

"""Which integer parameters are indices, and their upper bounds.

Follows each index operand (of gather, scatter, dynamic-slice, dynamic-update-slice, conditional) back through
ops that keep or select its elements to the entry's parameters.  What is compared with an ``iota`` is an index
too: a label, or a position.  A parameter used as an index in several places gets the smallest range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloopt.interpret.control import branches
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import REARRANGING, op_table
from hloopt.runtime.origins import ArrayPlace, by_table, entry_places
from hloopt.types import GatherDims, ScatterDims

__all__ = ["index_ranges"]

# Through which operands an element of the result comes unchanged, or moved by a wrap-around correction.
_TRANSPARENT: Mapping[str, tuple[int, ...]] = op_table(
    {
        "add": (0, 1),
        "bitcast": (0,),
        "broadcast": (0,),
        "clamp": (1,),
        "convert": (0,),
        "copy": (0,),
        "dynamic-slice": (0,),
        "maximum": (0, 1),
        "minimum": (0, 1),
        "opt-barrier": (0,),
        "reshape": (0,),
        "reverse": (0,),
        "select": (1, 2),
        "slice": (0,),
        "subtract": (0,),
        "transpose": (0,),
    },
    otherwise="it computes new numbers",
)

# An iota seen through these counts the same numbers.
_SAME_NUMBERS = REARRANGING - {"reverse", "slice"} | {"convert"}


def index_ranges(module: Module) -> dict[ArrayPlace, int]:
    """Exclusive upper bounds of the entry's parameters that are used as indices.

    The key is a parameter and the position of the array in its shape, empty for an array.
    """
    found: dict[ArrayPlace, int] = {}
    seen: set[ArrayPlace] = set()
    through = by_table(_TRANSPARENT)
    # The smallest limit goes first: parameters it reaches need no other.
    for operand, limit in sorted(_all_indices(module), key=lambda pair: pair[1]):
        for place in entry_places(module, [(operand, ())], through, seen):
            found[place] = limit
    return found


def _all_indices(module: Module) -> Iterator[tuple[Instruction, int]]:
    for computation in module:
        for instruction in computation:
            yield from _indices(instruction)


def _indices(instruction: Instruction) -> Iterator[tuple[Instruction, int]]:
    """The index operands of an instruction with the number of valid starts."""
    operands = instruction.operands
    if instruction.opcode == "dynamic-slice":
        sizes = instruction.attributes["dynamic_slice_sizes"]
        yield from _starts(operands[1:], operands[0].array.dims, sizes)
    elif instruction.opcode == "dynamic-update-slice":
        yield from _starts(operands[2:], operands[0].array.dims, operands[1].array.dims)
    elif instruction.opcode == "conditional":
        if operands[0].array.dtype.is_integer:
            yield operands[0], len(branches(instruction))
    elif instruction.opcode == "compare":
        yield from _compared_with_iota(instruction)
    elif instruction.opcode == "gather":
        dims, gather = operands[0].array.dims, GatherDims.of(instruction.attributes)
        limits = [dims[axis] - gather.slice_sizes[axis] + 1 for axis in gather.start_index_map]
        if limits:
            yield operands[1], max(1, min(limits))
    elif instruction.opcode == "scatter":
        count = (len(operands) - 1) // 2
        dims, scatter = operands[0].array.dims, ScatterDims.of(instruction.attributes)
        sizes = scatter.window_sizes(len(dims), operands[count + 1].array.dims)
        limits = [dims[axis] - sizes[axis] + 1 for axis in scatter.scatter_dims_to_operand_dims]
        if limits:
            yield operands[count], max(1, min(limits))


def _starts(
    indices: tuple[Instruction, ...], dims: tuple[int, ...], sizes: tuple[int, ...]
) -> Iterator[tuple[Instruction, int]]:
    if len(indices) == 1 and indices[0].array.rank == 1:
        yield indices[0], max(1, min(map(_valid_starts, dims, sizes)))
        return
    for index, size, taken in zip(indices, dims, sizes, strict=True):
        yield index, max(1, _valid_starts(size, taken))


def _valid_starts(size: int, taken: int) -> int:
    return size - taken + 1


def _compared_with_iota(compare: Instruction) -> Iterator[tuple[Instruction, int]]:
    for this, other in (compare.operands, compare.operands[::-1]):
        counted = this
        while counted.opcode in _SAME_NUMBERS:
            counted = counted.operands[0]
        if counted.opcode == "iota":
            count = counted.array.dims[counted.attributes["iota_dimension"]]
            if count > 1:
                yield other, count

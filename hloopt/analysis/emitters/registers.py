"""An estimate of the registers a thread needs: what is alive at once where each value is computed once."""

from __future__ import annotations

from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["register_estimate"]

# Thread and block numbers, the linear index and the two halves of an address in flight.
_OVERHEAD = 10
_POINTER = 2


def register_estimate(region: Region, copies: int = 1, index_bits: int = 32) -> int:
    """Registers of 32 bits a thread holds at most: an estimate of our own, the compiler's figure may differ.

    Each value is alive from where it is computed to its last use, and has ``copies`` elements in a thread (the
    unroll factor, or the vector of a tiling).  Constants and what has one element are held once; a pointer to
    each array and an index of ``index_bits`` come on top.  Linear in the region's size.
    """
    body = region.body
    last: dict[Instruction, int] = {}
    for position, instruction in enumerate(body):
        for operand in instruction.operands:
            last[operand] = position
    for result in region.results:
        last[result.instruction] = len(body)
    ends: dict[int, int] = {}
    alive = most = 0
    first_use: set[Instruction] = set()
    for position, instruction in enumerate(body):
        for operand in instruction.operands:
            if operand in region.inputs and operand not in first_use:
                first_use.add(operand)
                alive += _words(operand, copies)
                ends[last[operand]] = ends.get(last[operand], 0) + _words(operand, copies)
        words = _words(instruction, copies)
        alive += words
        end = last.get(instruction, position)
        ends[end] = ends.get(end, 0) + words
        most = max(most, alive)
        alive -= ends.pop(position, 0)
    pointers = _POINTER * (len(region.read) + len(region.results))
    return _OVERHEAD + pointers + index_bits // 32 + most


def _words(instruction: Instruction, copies: int) -> int:
    if not isinstance(instruction.shape, ArrayShape) or instruction.opcode == "constant":
        return 0
    words = -(-instruction.shape.dtype.bits // 32)
    return words if instruction.shape.elements == 1 else words * copies

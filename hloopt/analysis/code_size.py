"""How much code a kernel may have, by the instructions that it computes."""

from __future__ import annotations

from typing import Final

from hloopt.dataclass import dataclass
from hloopt.graphs import reached
from hloopt.ir import Instruction, walk

__all__ = ["MOST_CODE", "WRITTEN_ANEW", "Room", "executed_instructions"]


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of code: some in any case, and some for each instruction that is computed; so many at most."""

    least: int
    each: int
    most: int

    def of(self, instructions: int) -> int:
        """The bytes that so many instructions may come to."""
        return min(self.least + self.each * instructions, self.most)


_COMPILED: Final = 2_000_000
"""Bytes that a compiler ends in a minute or less.

CPU time measured on one core of 2.6 GHz: NVRTC takes 6 to 12 us a byte of functions of 40 to 130 kB for
sm_90, 19 us of a block's loop of 330 kB, 30 us where barriers are many; g++ takes 4 to 8 us for loops over
lanes of 180 to 800 kB.  Compile time is a bound and not a price: compiled kernels are cached, and how often
one will run is unknown, so its seconds of compiling cannot be weighed against seconds of running.
"""

WRITTEN_ANEW: Final = Room(4_000, 160, _COMPILED)
"""What a function may come to that writes a value wherever it needs it: about three lines an instruction.
Beyond it, what branches and loops of the function share is written once."""

MOST_CODE: Final = Room(20_000, 600, _COMPILED)
"""What no function shall exceed."""


def executed_instructions(instruction: Instruction) -> int:
    """The instructions that one runs: those of all that it calls, at least itself; each once."""
    called = walk.called_computations(instruction)
    return max(1, sum(map(len, reached(called, walk.callees))))

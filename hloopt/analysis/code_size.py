"""Limits of a kernel's code size, by the number of instructions that it computes."""

from __future__ import annotations

from typing import Final

from hloopt.dataclass import dataclass
from hloopt.graphs import reached
from hloopt.ir import Instruction, walk

__all__ = ["MOST_CODE", "WRITTEN_ANEW", "Room", "executed_instructions"]


@dataclass(frozen=True, slots=True)
class Room:
    """A limit in bytes of code: ``least``, and ``each`` for every instruction computed; ``most`` at most."""

    least: int
    each: int
    most: int

    def of(self, instructions: int) -> int:
        """The limit for so many instructions."""
        return min(self.least + self.each * instructions, self.most)


_COMPILED: Final = 2_000_000
"""Bytes that a compiler finishes in a minute or less.

CPU time measured on one core of 2.6 GHz: NVRTC takes 6 to 12 us a byte of functions of 40 to 130 kB for
sm_90, 19 us of a block's loop of 330 kB, 30 us where barriers are many; g++ takes 4 to 8 us for loops over
lanes of 180 to 800 kB.  Compile time is a bound and not a price: compiled kernels are cached, and how often
one will run is unknown, so its seconds of compiling cannot be weighed against seconds of running.
"""

WRITTEN_ANEW: Final = Room(4_000, 160, _COMPILED)
"""The limit of a function that writes a value wherever it is needed: about three lines an instruction.
Above it, what branches and loops of the function share is written once."""

MOST_CODE: Final = Room(20_000, 600, _COMPILED)
"""The limit of every function."""


def executed_instructions(instruction: Instruction) -> int:
    """The instructions that one runs: those of all that it calls, at least itself; each once."""
    called = walk.called_computations(instruction)
    return max(1, sum(map(len, reached(called, walk.callees))))

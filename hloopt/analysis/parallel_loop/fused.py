"""A ``while`` inside a fusion: the one form that ``loop-fusion`` makes and that kernels and executors take.

    loop_computation {
      parameters
      anything that can be computed element by element from them     the first state, element by element
      state = tuple(...)
      loop = while(state), condition=..., body=...
      results = get-tuple-element(loop), ...
      ROOT tuple(results)                                            or one of them alone
    }

The fusion's kind is ``kCustom``.
"""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction

__all__ = ["FusedLoop", "fused_loop"]


@dataclass(frozen=True, eq=False)
class FusedLoop:
    """A fusion that is one ``while``.

    results  for each leaf of the fusion's result the element of the state it is
    """

    fusion: Instruction
    loop: Instruction
    results: tuple[int, ...]

    def leaves(self, number: int) -> tuple[int, ...]:
        """The leaves of the fusion's result that are element ``number`` of the state."""
        return tuple(leaf for leaf, found in enumerate(self.results) if found == number)

    def init(self, number: int) -> Instruction:
        """What element ``number`` of the state is before the first iteration."""
        return self.loop.operands[0].operands[number]


def fused_loop(fusion: Instruction) -> FusedLoop | None:
    """The loop of a fusion that is made of one; None for every other instruction."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kCustom":
        return None
    computation: Computation = fusion.attributes["calls"]
    root = computation.root
    reads = root.operands if root.opcode == "tuple" else (root,)
    loops = {read.operands[0] if read.opcode == "get-tuple-element" else read for read in reads}
    if len(loops) != 1:
        return None
    (loop,) = loops
    if loop.opcode != "while" or loop in reads or loop.operands[0].opcode != "tuple":
        return None
    return FusedLoop(fusion, loop, tuple(read.attributes["index"] for read in reads))

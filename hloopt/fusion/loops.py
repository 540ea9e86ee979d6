"""Where a loop ends one kernel and begins another."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.fusion.decision import forbid
from hloopt.fusion.scribe import Scribe
from hloopt.ir import Computation
from hloopt.types import TupleShape

__all__ = ["note_loops"]


def note_loops(scribe: Scribe, computations: Iterable[Computation]) -> None:
    """Record for each while, once, that nothing is fused across its iterations.

    What a body computes for the next iteration goes through memory: no strategy has a kernel for more than
    one iteration.  The refusal's producer is the root of the body, its consumer the while.
    """
    for computation in computations:
        for instruction in computation:
            if instruction.opcode != "while":
                continue
            body: Computation = instruction.attributes["body"]
            shape = body.root.shape
            words = "one array"
            if isinstance(shape, TupleShape):
                words = f"a tuple of {len(shape.elements)}"
            scribe.refused(body.root, instruction, forbid("loop-carried", words=words))

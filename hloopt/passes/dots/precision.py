"""Leave to multiply f32 by matrix units, written into dots."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.analysis.matrix_factors import ALGORITHMS
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, edit
from hloopt.rewrite import Pass, PassLog
from hloopt.targets import find_target
from hloopt.types import record_of

__all__ = ["PRECISIONS", "DotPrecision"]

PRECISIONS: Final = {"tf32": "dot_tf32_tf32_f32", "bf16x3": "dot_bf16_bf16_f32_x3"}
"""The algorithms by the values of ``--precision``."""

_FIRST_UNITS: Final = (8, 0)


@dataclass(frozen=True)
class DotPrecision(Pass):
    """Let dots of f32 round their factors, so that matrix units multiply them.

        dot(a, b)    =>    dot(a, b), algorithm=dot_tf32_tf32_f32

    Products of f32 are exact in f32 otherwise, on plain units, several times slower.  ``--precision tf32`` has
    this pass come first; XLA itself takes TF32 where a GPU has it.  The algorithm is part of the text from
    then on: kernels, prices and bounds of errors follow it, the interpreter computes as before.  Left alone: a
    dot that says ``operand_precision`` highest or names an algorithm, and convolutions: HLO has none for them.

    precision  tf32: 10 bits of fraction, off by 2^-11 of a factor;  bf16x3: three products of bf16 terms,
               off by 2^-16, a third as fast as bf16
    target     the device; modules for one without such units (below compute capability 8.0) stay as they are
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  a = f32[5,3] parameter(0)
  b = f32[3,4] parameter(1)
  ROOT r = f32[5,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    precision: str = "tf32"
    target: str = "h200"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UsageError(
                f"{self.name}: precision is one of {', '.join(PRECISIONS)}, not {self.precision}"
            )

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each dot once, those in fusions too."""
        target = find_target(self.target)
        algorithm, changed = PRECISIONS[self.precision], False
        products = ALGORITHMS[algorithm].products
        what = "factors are rounded" if products == 1 else f"{products} products each"
        for computation in module:
            for one in computation:
                if one.opcode != "dot" or not self._takes(one, log):
                    continue
                if not target.has_threads or target.capability < _FIRST_UNITS:
                    log.note(f"{target.name} multiplies no {self.precision}: products stay f32")
                    return False
                if log.allows():
                    edit.set_attribute(one, "algorithm", algorithm)
                    log.hit(f"dot(f32) => dot({self.precision})", one, what)
                    changed = True
        return changed

    def _takes(self, dot: Instruction, log: PassLog) -> bool:
        """Whether a dot multiplies f32, and says nothing of how."""
        kinds = {one.array.dtype.name for one in (*dot.operands, dot)}
        if kinds != {"f32"} or "sparsity_config" in dot.attributes:
            return False
        if str(dot.attributes.get("algorithm", "dot_unset")) != "dot_unset":
            return False
        words = record_of(dot.attributes, "operand_precision", tuple) or ()
        if any(word.lower() == "highest" for word in words):
            log.miss(f"dot(f32) => dot({self.precision})", dot, "its operand_precision is highest")
            return False
        return True

"""Leave to multiply f32 by matrix units, written into dots and convolutions."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.analysis.backend_config import product_algorithm, written_algorithm
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
_OF_LIBRARIES: Final = ("tf32",)
"""What cuDNN has for convolutions of f32."""


@dataclass(frozen=True)
class DotPrecision(Pass):
    """Let dots of f32 round their factors, so that matrix units multiply them.

        dot(a, b)    =>    dot(a, b), algorithm=dot_tf32_tf32_f32

    Products of f32 are exact in f32 otherwise, on plain units, several times slower.  ``--precision tf32`` has
    this pass come first; XLA itself takes TF32 where a GPU has it.  The algorithm is part of the text from
    then on: kernels, prices and bounds of errors follow it, the interpreter computes as before.  HLO has none
    for convolutions: their ``backend_config`` says that a library may take TF32, and the price is that of its
    call; our own kernels stay f32.  Left alone: what says ``operand_precision`` highest or names an algorithm.

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
                if one.opcode not in ("dot", "convolution") or not self._takes(one, log):
                    continue
                if not target.has_threads or target.capability < _FIRST_UNITS:
                    log.note(f"{target.name} multiplies no {self.precision}: products stay f32")
                    return False
                if log.allows():
                    if one.opcode == "dot":
                        edit.set_attribute(one, "algorithm", algorithm)
                    else:
                        edit.set_attribute(one, "backend_config", written_algorithm(one, algorithm))
                    log.hit(self._step(one), one, what)
                    changed = True
        return changed

    def _step(self, product: Instruction) -> str:
        return f"{product.opcode}(f32) => {product.opcode}({self.precision})"

    def _takes(self, product: Instruction, log: PassLog) -> bool:
        """Whether a product is of f32, and says nothing of how it is multiplied."""
        kinds = {one.array.dtype.name for one in (*product.operands, product)}
        if kinds != {"f32"} or "sparsity_config" in product.attributes:
            return False
        if product_algorithm(product) not in ("", "dot_unset"):
            return False
        if product.opcode == "convolution" and (
            self.precision not in _OF_LIBRARIES or written_algorithm(product, "") is None
        ):
            return False
        words = record_of(product.attributes, "operand_precision", tuple) or ()
        if any(word.lower() == "highest" for word in words):
            log.miss(self._step(product), product, "its operand_precision is highest")
            return False
        return True

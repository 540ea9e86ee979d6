"""Products ``dot(dot(x, A), B)`` of loops, one of which is collected, folded into ``dot(x, dot(A, B))``."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.analysis.emitters.dots import DotSizes
from hloopt.analysis.executions import executions
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra import LinearAlgebra
from hloopt.linear_algebra.output_sinking import WhileOutputSinking
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.loops.invariant_motion import WhileInvariantMotion
from hloopt.passes.loops.motion import check_growth, inner_loops_first
from hloopt.passes.loops.simplifier import WhileLoopSimplifier
from hloopt.rewrite import Pass, PassLog
from hloopt.simplify import Simplify
from hloopt.targets import find_target

__all__ = ["WhileChainFolding"]

_STEP: Final = "products of loops folded"
_LEAST: Final = 0.98


@dataclass(frozen=True)
class WhileChainFolding(Pass):
    """Fold products in loops although one is collected, too: a single decision for all loops of the module.

    ``u = dot(x, A); v = dot(u, B)`` in each iteration, where the loop collects ``u`` and passes ``A`` and ``B``
    through, becomes ``v = dot(x, dot(A, B))``, and the array of all ``u`` is one product after the loop.  That
    alone may gain nothing; but what reads the array often sums over the iterations, as gradients of weights do:

        dot(dot(xs, A)', gs)    =>  dot(A', dot(xs', gs))
        dot(xs', dot(gs, B'))   =>  dot(dot(xs', gs), B')

    So a recurrent layer of two matrices takes one product in each step forward, one back, and one for both
    gradients, instead of six.  The module is changed where all its products together take less then.

    fast_math    whether to take floats, whose sums round otherwise then
    reassociate  the same, for this pass alone
    max_growth   the factors that are kept take at most so many times the bytes of the rest of the state
    target       the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "while-chain-folding"
    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], s32[64,16], s32[32,64,16], s32[16,16], s32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(32)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], s32[64,16], s32[32,64,16], s32[16,16], s32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[64,16] get-tuple-element(s), index=1
  us = s32[32,64,16] get-tuple-element(s), index=2
  a = s32[16,16] get-tuple-element(s), index=3
  b = s32[16,16] get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  u = s32[64,16] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  v = s32[64,16] dot(u, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = s32[1,64,16] reshape(u)
  out = s32[32,64,16] dynamic-update-slice(us, y, i, zero, zero)
  more = s32[64,16] maximum(v, x)
  ROOT t = (s32[], s32[64,16], s32[32,64,16], s32[16,16], s32[16,16]) tuple(j, more, out, a, b)
}

ENTRY main {
  x = s32[64,16] parameter(0)
  a = s32[16,16] parameter(1)
  b = s32[16,16] parameter(2)
  g = s32[32,64] parameter(3)
  zero = s32[] constant(0)
  us = s32[32,64,16] broadcast(zero), dimensions={}
  t = (s32[], s32[64,16], s32[32,64,16], s32[16,16], s32[16,16]) tuple(zero, x, us, a, b)
  loop = (s32[], s32[64,16], s32[32,64,16], s32[16,16], s32[16,16]) while(t), condition=less, body=next
  last = s32[64,16] get-tuple-element(loop), index=1
  all = s32[32,64,16] get-tuple-element(loop), index=2
  d = s32[16] dot(g, all), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  ROOT r = (s32[64,16], s32[16]) tuple(last, d)
}
"""

    fast_math: bool = False
    reassociate: bool = False
    max_growth: float = 1.0
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)
        check_growth(self, self.max_growth)

    def run(self, module: Module, log: PassLog) -> bool:
        """Try it on a copy, and do the same where that takes less."""
        chains = [one for loop in inner_loops_first(module) for one in self._chains(loop)]
        if not chains:
            return False
        tried = clone_module(module)
        self._fold(tried)
        before, after = self._seconds(module), self._seconds(tried)
        gain = f"{gained_time(before, after)} predicted on {self.target} of all products"
        if after >= before * _LEAST:
            log.miss(_STEP, chains[0], f"they take no less: {gain}")
            return False
        floats = [one for one in chains if one.array.dtype.is_float]
        if floats and not (self.fast_math or self.reassociate):
            kind = floats[0].array.dtype.name
            words = f"{gain}: sums of {kind} would round otherwise"
            log.miss(_STEP, floats[0], words, lost_us=1e6 * (before - after))
            return False
        if not log.allows():
            return False
        log.hit(_STEP, chains[0], gain)
        for one in chains[1:]:
            log.hit(_STEP, one, gain, 0)
        self._fold(module)
        return True

    @property
    def _sinking(self) -> WhileOutputSinking:
        return WhileOutputSinking(self.max_growth, self.target)

    def _chains(self, loop: Instruction) -> list[Instruction]:
        return [one.dot for one in self._sinking.found(loop, PassLog(), in_chains=True)]

    def _fold(self, module: Module) -> None:
        log = PassLog()
        for loop in inner_loops_first(module):
            self._sinking.sink(loop, log, in_chains=True)
        cleaning = (
            Simplify(),
            CommonSubexpressionElimination(),
            WhileLoopSimplifier(),
            DeadCodeElimination(),
        )
        algebra = LinearAlgebra(reassociate=True, target=self.target)
        for one in (*cleaning, algebra, WhileInvariantMotion(), algebra, *cleaning):
            one.run(module, log)

    def _seconds(self, module: Module) -> float:
        """Of all products, as often as they are computed."""
        times = executions(module, self._price)
        return sum(
            times[computation].counted * self._price(one)
            for computation in times
            for one in computation
        )

    def _price(self, one: Instruction) -> float:
        if one.opcode != "dot":
            return 0.0
        sizes = DotSizes.of(one)
        prices = AlgebraPrices(
            find_target(self.target), one.array.dtype, one.attributes.get("algorithm", "")
        )
        return prices.matrix_product(sizes.batch, sizes.m, sizes.n, sizes.k)

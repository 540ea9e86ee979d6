"""The pass ``linear-algebra``: products, sums, transposes and scalings computed in the cheapest way.

``reading.py`` reads values as sums of products over named indices (``terms.py``), in which transposes, batches
and the sides of a dot mean nothing.  ``products.py`` has the laws: distribution both ways, identities gone.
``planning.py`` searches orders and forms over ``nodes.py``, which prices them; ``building.py`` writes the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import ClassVar, Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.linear_algebra.clusters import KINDS, Cluster, clusters
from hloopt.linear_algebra.orders import PairBudget
from hloopt.linear_algebra.structured import write_structured
from hloopt.rewrite import Pass, PassLog
from hloopt.targets import find_target

__all__ = ["LinearAlgebra"]

_ROUNDS: Final = 4
_RULE: Final = "products and sums in the cheapest order"


@dataclass
class _PlanningState:
    """Of one module: signatures of clusters without a better plan, which others are spared, and a budget."""

    settled: set[object] = field(default_factory=set)
    budget: PairBudget = field(default_factory=PairBudget)


@dataclass(frozen=True)
class LinearAlgebra(Pass):
    """Compute products, sums, transposes and scalings in the order and form that take least on the target.

        dot(dot(A, B), x)            =>  dot(A, dot(B, x))
        dot(A, B) + dot(A, C)        =>  dot(A, B + C)
        dot(A + u v, x)              =>  dot(A, x) + u * dot(v, x)
        reduce-add(dot(A, B))        =>  dot(reduce-add(A), reduce-add(B))
        slice(dot(A, B))             =>  dot(slice(A), slice(B))
        sum of the diagonal of A B   =>  reduce-add(A * transpose(B))
        dot(diagonal mask * d, A)    =>  d * A

    What is known of a matrix (``hloopt explain`` says it) makes its products cheaper, too:

        dot(identity, A)             =>  A
        dot(one-hot rows, A)         =>  gather(A)
        dot(diagonal, A)             =>  multiply(diagonal, A)
        dot(triangle, A)             =>  concatenate(dots of what is not zero)
        dot(A, transpose(A))         =>  one half, and its transpose
        dot(blocks, A)               =>  concatenate(dot(block, part of A), ...)

    All of them, and what follows from several, are found in one form: a sum of products over named indices.
    Values that share products are planned together, and a product that several need is computed once.  Sums
    are multiplied out only where that leaves a quarter of the flops or less, of a matrix with products added
    to it, which are rounded in any case, four fifths.  Integers wrap, so that every form has the same bits;
    floats are rounded in another order, which needs ``fast_math`` or ``reassociate``; a zero beside
    a diagonal gives 0 then where an infinity or NaN meets it, too.  In the body of a loop what is the same in
    each iteration counts once, for ``while-invariant-motion`` can move it out:

        dot(dot(x, A), B)            =>  dot(x, dot(A, B))

    fast_math    whether to take floats as well, whose sums round otherwise then
    reassociate  the same, for this pass and ``while-product-sinking`` alone: no other has the option
    target       the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "linear-algebra"
    example: ClassVar[str] = """HloModule chain_with_a_vector

ENTRY main {
  a = s32[256,256]{1,0} parameter(0)
  b = s32[256,256]{1,0} parameter(1)
  x = s32[256]{0} parameter(2)
  ab = s32[256,256]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = s32[256]{0} dot(ab, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    fast_math: bool = False
    reassociate: bool = False
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)

    def run(self, module: Module, log: PassLog) -> bool:
        """Plan each computation, again where something was written: that may open more."""
        changed = False
        effects, state = Effects(module), _PlanningState()
        for computation in open_computations(module):
            changed |= self.run_on(computation, effects, log, state)
        return changed

    def run_on(
        self,
        computation: Computation,
        effects: Effects,
        log: PassLog,
        state: _PlanningState | None = None,
    ) -> bool:
        """Plan the clusters of one computation; whether any was written anew."""
        matrices = Matrices()
        state = state or _PlanningState()
        reassociates = self.fast_math or self.reassociate
        target = find_target(self.target)
        rounds, changed = 0, False
        while rounds < _ROUNDS:
            while rounds < _ROUNDS and self._all(computation, effects, matrices, state, log):
                rounds, changed = rounds + 1, True
            read = write_structured(computation, matrices, target, log, reassociates=reassociates)
            _remove_dead(read)
            if not read:
                break
            rounds, changed = rounds + 1, True
        return changed

    def _all(
        self,
        computation: Computation,
        effects: Effects,
        matrices: Matrices,
        state: _PlanningState,
        log: PassLog,
    ) -> bool:
        """Plan those that are not settled, to which those are added that have no better plan."""
        changed = False
        replaced: dict[Instruction, Instruction] = {}
        looks_at_floats = self.fast_math or self.reassociate or "missed" in log.kinds
        kinds = KINDS if looks_at_floats else KINDS - {"float"}
        target = find_target(self.target)
        # Of what a plan replaces nothing is known any more.
        found = [
            (cluster, cluster.signature)
            for cluster in clusters(computation, target, effects, matrices, kinds)
        ]
        for cluster, signature in found:
            if not log.allows():
                break
            # What an earlier cluster no longer reads may be gone.
            if not cluster.is_there(replaced) or signature in state.settled:
                continue
            if self._one(cluster, state.budget, replaced, log):
                changed = True
            else:
                state.settled.add(signature)
        return changed

    def _one(
        self,
        cluster: Cluster,
        budget: PairBudget,
        replaced: dict[Instruction, Instruction],
        log: PassLog,
    ) -> bool:
        """Write a cluster anew where its plan takes less."""
        plan = cluster.best_plan(budget)
        if plan is None:
            return False
        cluster = plan.cluster
        first = cluster.values[0].root
        if cluster.dtype.is_float and not (self.fast_math or self.reassociate):
            words = f"{plan.gain}: sums of {cluster.dtype.name} would round otherwise"
            log.miss(_RULE, first, words, lost_us=plan.gain_us)
            return False
        if plan.was_cut:
            log.miss(_RULE, first, "it has too many factors: not all orders were looked at")
        log.hit(_RULE, first, plan.gain)
        for value in cluster.values[1:]:
            log.hit(_RULE, value.root, plan.gain, 0)
        plan.write(replaced)
        _remove_dead(cluster.read)
        return True


def _remove_dead(candidates: Iterable[Instruction]) -> None:
    """Remove those of the instructions that nothing reads any more, and what only they read."""
    pending = list(candidates)
    while pending:
        one = pending.pop()
        if one.computation is None or one.users or one.is_root or one.opcode == "parameter":
            continue
        operands: Sequence[Instruction] = one.operands
        edit.remove(one)
        pending += operands

"""Fusing by what it gains: the producer whose fusion saves most time comes first.

The strategy of XLA's GPU compiler of 2026.  A producer goes into all of its users or into none; bitcasts go
before anything else, small constants at the end.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.emitters.pairs import Kernels
from hloopt.cost_models.model import CostModel
from hloopt.cost_models.registry import DEFAULT
from hloopt.dataclass import dataclass
from hloopt.fusion.code_room import CodeRoom
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.limits import KernelLimits, check_counts, shared_memory_of
from hloopt.fusion.priority.rules import PairRules
from hloopt.fusion.priority.run import PriorityRun
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.triton import TritonFusions
from hloopt.ir import Module
from hloopt.ir.build import no_collection
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target, find_target

__all__ = ["PriorityFusion"]


@dataclass(frozen=True)
class PriorityFusion(FusionPass):
    """Fuse each producer into all its users, by a cost model, the one that gains most first.

    cost_model         the model that predicts kernel times
    target             the device
    max_operands       operands and outputs of a fusion
    max_reductions     reductions of a fusion that have a tiled kernel of their own
    shared_memory      bytes a block may use; 0 for what the device has
    row_bytes          of shared memory a row reduction needs for each byte of an element it reads
    column_bytes       the same for a column reduction
    significant_ratio  elements a reduce reads for each result from which on no two share a kernel
    max_ir_size        instructions a kernel's code may have, those written several times counted as often
    bounded_code       whether to refuse kernels whose code would take a compiler too long (XLA: no)
    short_reductions   whether a loop may compute reductions of fewer elements than ``significant_ratio``, where
                       that takes less time (XLA: no)
    max_constant       elements of a constant that goes into its users' kernels
    fuel               the most fusions to make in a module, negative for no limit
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  a = f32[1024] multiply(x, y)
  ROOT r = f32[1024] negate(a)
}
"""

    cost_model: str = DEFAULT
    target: str = "h200"
    max_operands: int = 96
    max_reductions: int = 8
    shared_memory: int = 0
    row_bytes: int = 32
    column_bytes: int = 4128
    significant_ratio: int = 16
    max_ir_size: int = 10000
    bounded_code: bool = False
    short_reductions: bool = False
    max_constant: int = 1
    fuel: int = -1

    def __post_init__(self) -> None:
        check_counts(self)

    def fuse(
        self, module: Module, log: PassLog | None = None, device: Target | None = None
    ) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        ``device`` takes the place of ``target``, for descriptions that have no name.  Raises ``UsageError``
        for an unknown model or target.
        """
        target = device or find_target(self.target)
        recorder = FusionRecorder(self, module, log, self.fuel)
        model = recorder.model(self.cost_model, target)
        rules = self.pair_rules(model)
        triton = TritonFusions(model, rules.limits)
        with no_collection():
            for computation in fusible_computations(module):
                PriorityRun(computation, rules, model, triton, recorder, self.max_constant).run()
        return recorder.close()

    def pair_rules(self, model: CostModel) -> PairRules:
        """The rules by which this decides about pairs, with these limits and the model's device."""
        shared_memory = shared_memory_of(model.target, self.shared_memory)
        limits = KernelLimits.of(self, shared_memory=shared_memory)
        kernels = getattr(model, "kernels", None)
        return PairRules(
            limits,
            model.usage,
            kernels
            if isinstance(kernels, Kernels)
            else Kernels(model.target, opcodes=model.usage.opcodes),
            triton=TritonFusions(model, limits).decide,
            significant_ratio=self.significant_ratio,
            max_ir_size=self.max_ir_size,
            room=CodeRoom() if self.bounded_code else None,
            short_reductions=self.short_reductions,
        )

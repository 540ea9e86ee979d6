"""What strategies have in common that make one kernel of each cluster where it takes less time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from hloopt.cost_models.model import CostModel
from hloopt.cost_models.registry import DEFAULT
from hloopt.dataclass import dataclass
from hloopt.fusion.apply import restore_order
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Module
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target, find_target
from hloopt.targets.target import HOST

__all__ = ["ClusterFusion"]


@dataclass(frozen=True)
class ClusterFusion(FusionPass):
    """A strategy for devices with blocks and threads; ``what`` is what others leave alone, in the plural.

    cost_model  the model that predicts kernel times
    target      the device; one without blocks and threads is left alone
    always      whether what fits is fused whatever the cost model says
    fuel        the most fusions to make in a module, negative for no limit
    """

    asks_advice: ClassVar[bool] = True
    what: ClassVar[str]

    cost_model: str = DEFAULT
    target: str = "h200"
    always: bool = False
    fuel: int = -1

    def fuse(
        self, module: Module, log: PassLog | None = None, device: Target | None = None
    ) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        ``device`` takes the place of ``target``.  Raises ``UsageError`` for an unknown model or target.
        """
        target = device or find_target(self.target)
        recorder = FusionRecorder(self, module, log, self.fuel)
        recorder.plan.target = target.name
        if not target.has_threads:
            if target is not HOST:  # which has passes of its own
                words = f"{target.name} has no blocks and threads: {self.what} stay as they are"
                recorder.log.note(words)
            return recorder.close()
        visit = self._visitor(recorder.model(self.cost_model, target), recorder)
        for computation in fusible_computations(module):
            if visit(computation):
                restore_order(computation)
        return recorder.close()

    @abstractmethod
    def _visitor(self, model: CostModel, recorder: FusionRecorder) -> Callable[[Computation], bool]:
        """What fuses the clusters of one computation, and says whether its order is to be restored."""

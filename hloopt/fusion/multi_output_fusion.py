"""One kernel for several results: instructions that read the same, and producers beside their users.

XLA's multi-output fusion, which follows its fusion of single results.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.fusion.code_room import CodeRoom
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.limits import KernelLimits, shared_memory_of
from hloopt.fusion.multi_output.forms import Era
from hloopt.fusion.multi_output.rules import MultiOutputRules
from hloopt.fusion.multi_output.run import MultiOutputRun
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Module
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import find_target

__all__ = ["MultiOutputFusion"]


@dataclass(frozen=True)
class MultiOutputFusion(KernelLimits, FusionPass):
    """Make kernels with several results, of siblings and of producers with a user.

    From the last instruction to the first: fusions that read it and do not need each other become one where
    their kernels have one form (``siblings``: what they share is read once); then it joins one of its users, a
    fusion with several results before other fusions and these before ops, and keeps its result for the others
    (``producer_consumer``: what it makes is not read again), where a cost model says that this takes no longer.

    siblings             whether readers of the same value are joined
    producer_consumer    whether producers join a user and keep their result
    era                  whose rules hold: ``2026``, or those of XLA of 2023, where only constants of one
                         element were no shared value, slices might have nothing in common, any transpose
                         went with any kernel, reductions had equal shapes and dimensions, and each
                         interruption of index computations doubled the code
    cost_model           whose times count
    target               the device the times are of
    shared_memory        bytes a block may use; 0 for what the device has
    slice_overlap_bytes  size of a shared value from which on siblings that each read one slice of it must have
                         elements in common; negative for no such rule
    max_ir_size          instructions the code of a kernel may have
    max_splits           times index computations may be interrupted in a kernel, in 2023
    bounded_code         whether to refuse kernels whose code would take a compiler too long (XLA: no)
    fuel                 the most fusions to make in a module, negative for no limit
    """

    example: ClassVar[str] = """HloModule example

scaled {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  ROOT s = f32[1024] multiply(x, y)
}

shifted {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  ROOT r = f32[1024] add(x, y)
}

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  s = f32[1024] fusion(x, y), kind=kLoop, calls=scaled
  t = f32[1024] fusion(x, y), kind=kLoop, calls=shifted
  ROOT r = (f32[1024], f32[1024]) tuple(s, t)
}
"""

    shared_memory: int = 0
    siblings: bool = True
    producer_consumer: bool = True
    era: Era = "2026"
    cost_model: str = "xla-2026"
    target: str = "h200"
    slice_overlap_bytes: int = 1024
    max_ir_size: int = 10000
    max_splits: int = 10
    bounded_code: bool = False
    fuel: int = -1

    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        Raises ``UsageError`` for an unknown model or target.
        """
        target = find_target(self.target)
        recorder = FusionRecorder(self, module, log, self.fuel)
        model = recorder.model(self.cost_model, target)
        rules = MultiOutputRules(
            KernelLimits.of(self, shared_memory=shared_memory_of(target, self.shared_memory)),
            model.usage,
            self.era,
            self.slice_overlap_bytes,
            self.max_ir_size,
            self.max_splits,
            CodeRoom() if self.bounded_code else None,
        )
        for computation in fusible_computations(module):
            MultiOutputRun(
                computation, rules, model, recorder, self.siblings, self.producer_consumer
            ).run()
        return recorder.close()

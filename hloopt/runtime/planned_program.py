"""What programs of a plan share: they run one participant, one run at a time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from hloopt.errors import EvaluationError
from hloopt.interpret import Host
from hloopt.ir import Module
from hloopt.kernels.plan import HostStep, KernelStep, Plan, walk_steps
from hloopt.runtime.program import Program
from hloopt.types import Array

__all__ = ["PlannedProgram"]


class PlannedProgram(Program):
    """A module, made ready and planned."""

    def __init__(self, module: Module, plan: Plan) -> None:
        self.module = module
        self.plan = plan
        self.kernels = sum(
            isinstance(step, KernelStep | HostStep) for step in walk_steps(plan.steps)
        )
        self.launches = 0
        self._running = Lock()

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run the entry for the only participant.  Raises ``EvaluationError`` for several."""
        if len(inputs) != 1:
            raise EvaluationError(f"{len(inputs)} lists of inputs: a device runs one participant")
        return [self.run(inputs[0], host)]

"""Writing down how often loops run."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.backend_config import BackendConfig, config_text, read_backend_config
from hloopt.analysis.trip_count import MAX_EVALUATED_ITERATIONS, trip_count
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.passes.loops.counters import counters, elements_in_condition
from hloopt.rewrite import Pass, PassLog

__all__ = ["TripCount"]

_GREATEST = (1 << 63) - 1


@dataclass(frozen=True)
class TripCount(Pass):
    """Write the trip counts of loops into their backend_config, as XLA does.

    ``known_trip_count`` where the module shows how often a loop runs; with it, where the condition reads
    one counter, ``known_induction_variable`` and ``known_init_step``.  Other entries stay as they are.
    Left alone: a backend_config that is not a JSON object, and a count that is there already (it is trusted).

    limit   how many iterations of a loop without a closed form are run to count them; 0 for none
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

less {
  i = s32[] parameter(0)
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  i = s32[] parameter(0)
  three = s32[] constant(3)
  ROOT j = s32[] add(i, three)
}

ENTRY main {
  zero = s32[] constant(0)
  ROOT loop = s32[] while(zero), condition=less, body=next
}
"""

    limit: int = MAX_EVALUATED_ITERATIONS

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise UsageError(f"{self.name}: limit must be non-negative, got {self.limit}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each loop once."""
        changed = False
        for computation in open_computations(module):
            for instruction in computation:
                if instruction.opcode == "while" and log.allows():
                    changed |= self.annotate(instruction, log)
        return changed

    def annotate(self, loop: Instruction, log: PassLog) -> bool:
        """Write one loop's count, unless it is there or unknown."""
        name = "write a trip count"
        config = read_backend_config(loop)
        if config is None:
            log.miss(name, loop, "its backend_config is not a JSON object")
            return False
        if "known_trip_count" in config:
            return False
        iterations = trip_count(loop, self.limit)
        if iterations is None:
            log.miss(name, loop, f"no closed form, and no end within {self.limit} iterations")
            return False
        if iterations > _GREATEST:
            log.miss(name, loop, f"{iterations} iterations do not fit into 63 bits")
            return False
        log.hit(name, loop, f"{iterations} iterations")
        found = {**config, "known_trip_count": {"n": str(iterations)}, **_variable(loop)}
        edit.set_attribute(loop, "backend_config", config_text(loop, found))
        return True


def _variable(loop: Instruction) -> BackendConfig:
    """The counter that the condition reads, if it is the only one."""
    if not loop.is_tuple:
        return {}
    read = elements_in_condition(loop)
    if len(read) != 1:
        return {}
    (index,) = read
    variable = counters(loop).get(index)
    if variable is None or variable.step <= 0 or variable.first < 0:
        return {}
    return {
        "known_init_step": {"init": str(variable.first), "step": str(variable.step)},
        "known_induction_variable": {"tuple_index": str(index)},
    }

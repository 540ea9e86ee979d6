"""Dead code elimination."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.effects import Effects
from hloopt.analysis.needed import Needed
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Module, edit
from hloopt.ir.signatures import (
    drop_parameters,
    keep_barrier_elements,
    keep_branch_elements,
    keep_results,
    takes_only,
    tied,
)
from hloopt.ir.walk import called_computations, callees_first
from hloopt.rewrite import Pass, PassLog
from hloopt.types import TupleShape

__all__ = ["DeadCodeElimination", "narrow_argument", "narrow_results", "sweep"]


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove dead instructions, within computations and across calls, and computations without callers.

    1. Needed are: the entry's result, side effects and collectives, both ends of control edges, and what
       these need in turn, through calls, fusions, maps and conditionals.
    2. Elements of result tuples that no caller takes go, and with them what computed them; a result with
       one element left becomes that element.
    3. Parameters that nothing needs go with their operands, and so do elements of the tuple a branch of a
       conditional is given, or an optimization barrier forwards.

    The entry keeps its signature, and so does what loops, asynchronous ops, composite calls, custom
    fusions and calls that share buffers with their operands run.

    signatures   whether to do steps 2 and 3
    """

    name: ClassVar[str] = "dce"
    settles: ClassVar[bool] = True
    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

parts {
  used = f32[4] parameter(0)
  idle = f32[4] parameter(1)
  a = f32[4] negate(used)
  b = f32[4] exponential(used)
  ROOT t = (f32[4], f32[4]) tuple(a, b)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] sine(x)
  c = (f32[4], f32[4]) call(x, y), to_apply=parts
  ROOT r = f32[4] get-tuple-element(c), index=0
}
"""

    signatures: bool = True

    def run(self, module: Module, log: PassLog) -> bool:
        """Rounds until nothing is left; another one is needed only where a signature changed."""
        changed, again = _remove_uncalled(module, log), True
        while again:
            removed, again = self._round(module, log)
            changed |= removed or again
        return changed

    def _round(self, module: Module, log: PassLog) -> tuple[bool, bool]:
        needed = Needed(module, Effects(module), signatures=self.signatures)
        changed = False
        for computation in module:
            changed |= sweep(computation, needed, log)
        narrowed = narrow_results(needed, log) | _narrow_barriers(needed, log)
        for computation in callees_first(module):
            changed |= sweep(computation, needed, log)
            narrowed |= _drop_parameters(computation, needed, log)
            narrowed |= narrow_argument(computation, needed, log)
        narrowed |= _remove_uncalled(module, log)
        return changed, narrowed


def sweep(computation: Computation, needed: Needed, log: PassLog) -> bool:
    """Remove what nothing needs from one computation."""
    changed = False
    whole = _is_fused(computation)
    for instruction in reversed(computation):
        if (
            instruction not in needed.instructions
            and instruction.opcode != "parameter"
            and not instruction.users
            and not instruction.is_root
            and (whole or log.allows())
        ):
            log.hit("remove an instruction", instruction, "nothing needs it", count=not whole)
            edit.remove(instruction)
            changed = True
    return changed


def _is_fused(computation: Computation) -> bool:
    """Whether dead code would make a fusion invalid: then what follows from one rewrite costs no fuel."""
    return any(caller.opcode == "fusion" for caller in computation.callers)


def narrow_results(needed: Needed, log: PassLog) -> bool:
    """Step 2.  The branches of a conditional are narrowed together, and so count as one rewrite."""
    changed = False
    done: set[Computation] = set()
    for computation, wanted in needed.results.items():
        shape = computation.root.shape
        if computation in done or not computation.callers:
            continue
        group = tied(computation)
        done.update(group)
        assert isinstance(shape, TupleShape)
        lost = len(shape.elements) - len(wanted)
        if lost and takes_only(group, wanted) and log.allows():
            log.hit("drop unused results", computation.root, f"no caller takes {lost} of them")
            keep_results(group, sorted(wanted))
            changed = True
    return changed


def _narrow_barriers(needed: Needed, log: PassLog) -> bool:
    """Optimization barriers forward only the elements that are used."""
    changed = False
    for barrier, wanted in needed.barriers.items():
        if barrier.computation is None:
            continue
        lost = len(barrier.operands[0].operands) - len(wanted)
        only = all(user.tuple_index in wanted for user in barrier.users)
        if lost and only and log.allows():
            log.hit("drop unused elements of a barrier", barrier, f"nothing takes {lost} of them")
            keep_barrier_elements(barrier, sorted(wanted))
            changed = True
    return changed


def _drop_parameters(computation: Computation, needed: Needed, log: PassLog) -> bool:
    """Step 3 for calls, fusions and maps; a map keeps one operand, which says how large its result is."""
    if computation not in needed.parameters:
        return False
    unused = [
        parameter
        for parameter in computation.parameters
        if parameter not in needed.instructions and not (parameter.users or parameter.is_root)
    ]
    if len(unused) == len(computation.parameters) and any(
        caller.opcode == "map" for caller in computation.callers
    ):
        unused = unused[1:]
    dropped, whole = [], _is_fused(computation)
    for parameter in unused:
        if whole or log.allows():
            log.hit("drop an unused parameter", parameter, "nothing needs it", count=not whole)
            dropped.append(parameter.parameter_number)
    drop_parameters(computation, dropped)
    return bool(dropped)


def narrow_argument(computation: Computation, needed: Needed, log: PassLog) -> bool:
    """Step 3 for a branch: give it those elements of its argument only that it needs."""
    wanted = needed.elements.get(computation)
    if wanted is None:
        return False
    parameter = computation.parameters[0]
    if len(wanted) == len(parameter.elements) or not log.allows():
        return False
    if any(user.tuple_index not in wanted for user in parameter.users):
        return False
    lost = len(parameter.elements) - len(wanted)
    log.hit("drop unused elements of an argument", parameter, f"nothing needs {lost} of them")
    keep_branch_elements(computation, sorted(wanted))
    return True


def _remove_uncalled(module: Module, log: PassLog) -> bool:
    pending = [entry for entry in module if not entry.callers and entry is not module.entry]
    changed = False
    while pending and log.allows():
        computation = pending.pop()
        called = {entry for caller in computation for entry in called_computations(caller)}
        log.hit("remove a computation", computation.root, "nothing calls it")
        edit.remove_computation(computation)
        changed = True
        pending.extend(entry for entry in called if not entry.callers)
    return changed

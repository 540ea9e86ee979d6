"""One call, one computation."""

from __future__ import annotations

from hloopt.ir import Computation, Module, build, edit
from hloopt.ir.walk import calls_by_attribute
from hloopt.passes.own_bodies import own_fusion_bodies
from hloopt.rewrite import PassLog

__all__ = ["flatten"]

_CONTROL_FLOW = ("while", "conditional", "call")


def flatten(module: Module, log: PassLog) -> bool:
    """Give every call in control flow a computation of its own; whether any was cloned.

    What a computation writes into then belongs to one caller.
    """
    changed = False
    taken: set[Computation] = set()
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        for instruction in list(computation):
            if instruction.opcode not in _CONTROL_FLOW:
                continue
            for name, called in calls_by_attribute(instruction).items():
                own = tuple(_own(module, entry, taken) for entry in called)
                cloned = sum(one is not other for one, other in zip(own, called, strict=True))
                if cloned:
                    changed = True
                    log.hit("clone a computation", instruction, count=cloned)
                    single = not isinstance(instruction.attributes[name], tuple)
                    edit.set_attribute(instruction, name, own[0] if single else own)
                pending.extend(own)
    return changed


def _own(module: Module, called: Computation, taken: set[Computation]) -> Computation:
    if called not in taken:
        taken.add(called)
        return called
    copy = edit.add_computation(module, build.clone_computation(called))
    own_fusion_bodies(copy)
    taken.add(copy)
    return copy

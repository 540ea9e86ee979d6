"""One call, one computation."""

from __future__ import annotations

from typing import Final

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import own_fusion_bodies
from hloopt.ir.walk import called_computations, callees_first, calls_by_attribute
from hloopt.ops.traits import BODIES, SEQUENTIAL
from hloopt.rewrite import PassLog

__all__ = ["flatten"]

_GROWTH: Final = 100
_ROOM: Final = 100_000


def flatten(module: Module, log: PassLog) -> bool:
    """Give every call in control flow a private computation; whether any was cloned.

    What a computation writes into then belongs to one caller.  Raises ``UnsupportedError`` where calls within
    calls stand for more than 100 times the instructions the module came with, and more than 100,000.
    """
    _check_size(module)
    changed = False
    taken: set[Computation] = set()
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        for instruction in list(computation):
            if instruction.opcode not in SEQUENTIAL:
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


def _check_size(module: Module) -> None:
    limit = max(_ROOM, _GROWTH * module.source_size())
    sizes: dict[Computation, int] = {}
    for computation in callees_first(module):
        size = len(computation)
        for instruction in computation:
            called = called_computations(instruction) if _runs_others(instruction) else ()
            size += sum(sizes[entry] for entry in called)
            if size > limit:
                most = f"that is more than {limit} instructions"
                raise module.unsupported(instruction, f"each call gets code of its own: {most}")
        sizes[computation] = size


def _runs_others(instruction: Instruction) -> bool:
    return instruction.opcode in BODIES


def _own(module: Module, called: Computation, taken: set[Computation]) -> Computation:
    if called not in taken:
        taken.add(called)
        return called
    copy = edit.add_computation(module, build.clone_computation(called))
    own_fusion_bodies(copy)
    taken.add(copy)
    return copy

"""The graph verifier: the invariants passes rely on and keep, and what XLA requires of a module.

``violations`` yields every violation, ``verify_module`` raises the first; ``RULES`` explains the names of the
constraints.  The cost is linear in the number of instructions, operands and control edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from hloopt.errors import VerifyError
from hloopt.ir import Computation, Instruction, Module
from hloopt.types import stray_key
from hloopt.verifier.buffers import BufferChecks
from hloopt.verifier.calls import CALLING, calling_faults
from hloopt.verifier.chains import CHAINED, ChainChecks
from hloopt.verifier.constraints import RULES, Fault
from hloopt.verifier.devices import DeviceChecks
from hloopt.verifier.differing import differing
from hloopt.verifier.header import header_faults
from hloopt.verifier.links import call_faults, link_faults, order_faults
from hloopt.verifier.notes import NoteChecks
from hloopt.verifier.rows import RowChecks
from hloopt.verifier.shardings import Shardings

__all__ = ["RULES", "verify_module", "violations"]

Check: TypeAlias = Callable[[Instruction], Iterator[Fault]]


def verify_module(module: Module, like: Module | None = None) -> None:
    """Raise ``VerifyError`` for the first offence: instruction, line, constraint.

    ``like`` is a sound module of which this one is a changed copy: computations that are the same there, and
    call only such, are not looked at again.
    """
    looked = list(module) if like is None else differing(module, like)
    for fault in _faults(module, looked):
        raise fault.error(module)


def violations(module: Module) -> Iterator[VerifyError]:
    """All violations, computation by computation, each as an error with its place and its rule.

    Offences of instructions are looked for in a sound graph only, and in the rest of the module where all
    instructions are sound.
    """
    for fault in _faults(module, list(module)):
        yield fault.error(module)


def _faults(module: Module, looked: Sequence[Computation]) -> Iterator[Fault]:
    for computation in looked:
        yield from link_faults(module, computation)
        broken = False
        for fault in order_faults(computation):
            broken = True
            yield fault
        # Shapes of called computations are read below; without a root there are none.
        if broken and getattr(computation, "root", None) is None:
            return
    broken = False
    for fault in call_faults(module):
        broken = True
        yield fault
    if broken:
        return
    checks = _Checks(module)
    for computation in looked:
        for fault in checks.faults(computation):
            broken = True
            yield fault
    if not broken:
        buffers = BufferChecks()
        for computation in looked:
            yield from buffers.faults(computation)
    yield from header_faults(module)


class _Checks:
    """The checks of instructions: first each against its row, then what XLA requires besides that."""

    def __init__(self, module: Module) -> None:
        shardings, notes = Shardings(), NoteChecks(module.stack_tables)
        self._rows = RowChecks()
        self._notes = notes
        self._by_opcode: dict[str, list[Check]] = {}
        for checks in (
            dict.fromkeys(CHAINED, ChainChecks().faults),
            dict.fromkeys(CALLING, calling_faults),
            dict.fromkeys(("conditional", "while"), shardings.agreement_faults),
            DeviceChecks(module).by_opcode,
        ):
            for opcode, check in checks.items():
                self._by_opcode.setdefault(opcode, []).append(check)
        self._by_attribute: dict[str, Check] = {
            "origin": notes.origin_faults,
            "parameter_replication": notes.replication_faults,
            stray_key("result_accuracy"): notes.accuracy_faults,
            "sharding": shardings.faults,
        }

    def faults(self, computation: Computation) -> Iterator[Fault]:
        """The offences of the instructions of a computation, in their order."""
        for instruction in computation:
            sound = True
            for fault in self._rows.faults(instruction):
                sound = False
                yield fault
            if sound:
                yield from self._further(instruction)

    def _further(self, instruction: Instruction) -> Iterator[Fault]:
        for check in self._by_opcode.get(instruction.opcode, ()):
            yield from check(instruction)
        for name in instruction.attributes:
            attribute_check = self._by_attribute.get(name)
            if attribute_check is not None:
                yield from attribute_check(instruction)
        if instruction.metadata is not None:
            yield from self._notes.frame_faults(instruction, instruction.metadata)

"""The graph verifier: what every pass may rely on and has to keep.

``violations`` yields every offence, ``verify_module`` raises the first.  The cost is linear in the number
of instructions and operands.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.errors import VerifyError
from hloopt.ir import Module
from hloopt.verify.header import header_faults
from hloopt.verify.links import call_faults, link_faults, order_faults
from hloopt.verify.places import Fault
from hloopt.verify.rows import RowChecks

__all__ = ["verify_module", "violations"]


def verify_module(module: Module) -> None:
    """Raise ``VerifyError`` for the first offence: instruction, line, constraint."""
    for error in violations(module):
        raise error


def violations(module: Module) -> Iterator[VerifyError]:
    """All offences, computation by computation, each as an error that knows its place."""
    for fault in _faults(module):
        yield fault.error(module)


def _faults(module: Module) -> Iterator[Fault]:
    rows = RowChecks()
    for computation in module:
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
    for computation in module:
        for instruction in computation:
            yield from rows.faults(instruction)
    yield from header_faults(module)

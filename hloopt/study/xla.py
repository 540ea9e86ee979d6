"""XLA itself as a device of a study: its CPU compiler.

XLA gets the optimised module without fusions and choices of kernels, which it makes itself: the study measures
what the passes before fusion gain there.
"""

from __future__ import annotations

from math import prod

from hloopt.errors import UnsupportedError
from hloopt.ir import Module, build
from hloopt.runtime.timing import Timing
from hloopt.runtime.xla import run_xla, xla_python
from hloopt.runtime.xla_form import make_for_xla
from hloopt.study.cells import Checked, Measured
from hloopt.study.devices import machine
from hloopt.study.execute import REPEAT, StudyLimits
from hloopt.study.reference import StudyReference

__all__ = ["execute_xla"]


def execute_xla(
    module: Module, wanted: StudyReference, limits: StudyLimits
) -> tuple[Checked, Measured]:
    """Compile and run by XLA's CPU compiler; results compared, times taken.

    Raises ``DeviceError`` where no Python with jaxlib is named, ``UnsupportedError`` for what XLA does not
    compile and for programs of several participants.
    """
    xla_python()
    if prod(wanted.counts) != 1:
        raise UnsupportedError("studies run XLA with one participant only", name=module.name)
    if wanted.written:
        raise UnsupportedError("what XLA writes to the host is not read here", name=module.name)
    copy = build.clone_module(module)
    make_for_xla(copy)
    found = run_xla(copy, wanted.inputs[0], repeat=limits.repeat or REPEAT)
    checked = wanted.check("xla-cpu", [found.results], wanted.host.restarted())
    return checked, Measured(Timing(found.seconds), f"{machine()}, jaxlib {found.version}")

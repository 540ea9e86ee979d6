"""A plan compiled into one shared object and run in this process.

What no loop computes is a callback: the NumPy executor runs it on views of the buffers (``calls``).  All that
does not depend on the inputs is prepared when the program is made, so that a run costs microseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hloopt.backends.native.addresses import ELEMENTS, ITEMS
from hloopt.backends.native.calls import NumpyCall, SingleInstructions, call_of
from hloopt.backends.native.clock import PlanClock
from hloopt.backends.native.codegen import HEADER, render
from hloopt.backends.native.codegen.driver import called_steps, loops
from hloopt.backends.native.memory import Placed, PlanMemory
from hloopt.backends.native.toolchain import build_library, shared_pool
from hloopt.backends.numpy.threads import thread_count
from hloopt.interpret import Host
from hloopt.interpret.control import check_progress
from hloopt.interpret.participant import Participant
from hloopt.interpret.progress import Progress
from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import HostStep, KernelStep, Plan
from hloopt.runtime.blas import blas_threads
from hloopt.runtime.planned_program import PlannedProgram
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.runtime.timing import StepClock

__all__ = ["HostSide", "NativeProgram"]

_PYTHON: Final = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_CheckSignals",
    "PyObject_CallFunctionObjArgs",
    "Py_DecRef",
)


_ALONE: Final = Participant()
"""The only participant of programs that do not call Python: nothing is exchanged."""


class HostSide(ctypes.Structure):
    """``Host`` of native.h; the first fields are functions of Python's C API."""

    _fields_ = (
        ("release", ctypes.c_void_p),
        ("take", ctypes.c_void_p),
        ("signals", ctypes.c_void_p),
        ("invoke", ctypes.c_void_p),
        ("forget", ctypes.c_void_p),
        ("calls", ctypes.c_void_p),
        ("stuck", ctypes.c_void_p),
        ("share", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("launches", ctypes.c_longlong),
        ("checked", ctypes.c_longlong),
        ("done", ctypes.c_longlong),
        ("iterations", ctypes.c_longlong),
        ("threads", ctypes.c_int),
        ("ends", ctypes.c_int),
        ("runner", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("arrays", ctypes.c_void_p),
        ("changing", ctypes.c_void_p),
        ("changes", ctypes.c_longlong),
        ("items", ctypes.c_longlong),
        ("elements", ctypes.c_longlong),
    )


class _Progress(Progress):
    """Reads the driver's progress from the structure they share."""

    __slots__ = ("_host", "_steps")

    def __init__(self, host: HostSide, steps: int) -> None:
        self._host = host
        self._steps = steps
        self.leave()

    @property
    def done(self) -> int:  # type: ignore[override]
        """Steps of the entry that have run."""
        return int(self._host.done)

    @property
    def total(self) -> int:  # type: ignore[override]
        """Steps of the entry; 0 before the first run."""
        return 0 if self._host.done < 0 else self._steps


class NativeProgram(PlannedProgram):
    """A module, made ready and planned, in the form of a shared object.

    ``threads`` is how many threads share large loops, ``thread_count`` unless given; results do not depend
    on it.  ``source`` is the result of ``render``, where the caller has it.  ``clock`` is called around steps.
    Raises what ``build_library`` raises.
    """

    def __init__(
        self,
        module: Module,
        plan: Plan,
        *,
        threads: int | None = None,
        source: str = "",
        clock: PlanClock | None = None,
    ) -> None:
        super().__init__(module, plan)
        self.source = source or render(plan, is_timed=clock is not None)
        self._threads, self._clock = threads, clock
        self._memory = PlanMemory(module, plan)
        self._placed: Placed = []
        self._numpy = SingleInstructions(module)
        self._calls = _objects(self._called(self._call_of(step)) for step in called_steps(plan))
        self._stuck = _objects(self._checked(step.instruction) for step in loops(plan))
        self._host = HostSide(
            *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON),
            ctypes.addressof(self._calls),
            ctypes.addressof(self._stuck),
            ctypes.cast(shared_pool(), ctypes.c_void_p),
            threads=thread_count(threads),
            done=-1,
            times=None if clock is None else ctypes.addressof(clock.times),
            changing=ctypes.addressof(self._memory.changing),
            changes=len(self._memory.changing),
            items=ITEMS,
            elements=ELEMENTS,
        )
        self.progress = _Progress(self._host, len(plan.steps))
        self._addresses = (ctypes.addressof(self._memory.table), ctypes.addressof(self._host))
        self._run = _load(build_library(self.source, header=HEADER))
        self._blas = blas_threads(module, thread_count(threads))

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        return self.run_as(Participant() if len(self._calls) else _ALONE, inputs, host)

    def run_as(
        self, participant: Participant, inputs: Sequence[Array], host: Host | None = None
    ) -> list[Array]:
        """As ``run``, for one of several participants."""
        with self._running:
            self._numpy.participant = participant
            placed = self._memory.place(inputs)
            host_side = self._host
            host_side.launches = 0
            # The driver is quicker to look at a list of arrays than Python at each of them.
            if ITEMS:
                host_side.arrays = id(placed)
            else:
                self._memory.find_arrays(placed)
            if len(self._calls):
                self._run_with_calls(placed, host)
            else:
                self._run(*self._addresses)
            self.launches = host_side.launches
            return self._memory.results(placed)

    def timed(self) -> tuple[NativeProgram, StepClock]:
        """The same program with a driver that calls a clock around its steps; compiled anew."""
        clock = PlanClock(self.plan)
        return NativeProgram(self.module, self.plan, threads=self._threads, clock=clock), clock

    def _run_with_calls(self, placed: Placed, host: Host | None) -> None:
        self._numpy.host = Host.given(host)
        self._placed = placed
        try:
            with self._blas, np.errstate(all="ignore"):
                self._run(*self._addresses)
        finally:
            self._placed = []

    # ---- what the driver calls ----------------------------------------------------------------------

    def _call_of(self, step: KernelStep | HostStep) -> NumpyCall:
        return call_of(step, self._memory, self._numpy)

    def _called(self, call: NumpyCall) -> Callable[[], None]:
        return lambda: call(self._placed)

    def _checked(self, loop: Instruction) -> Callable[[], None]:
        def check() -> None:
            alone = self._numpy.participant.count == 1
            check_progress(loop, int(self._host.iterations), alone=alone)

        return check


def _objects(given: Iterable[object]) -> ctypes.Array[Any]:
    """A C array of Python objects."""
    found: list[Any] = list(given)
    return (ctypes.py_object * len(found))(*found)


def _load(path: Path) -> Callable[..., int]:
    """The driver, which is called with Python's lock; what it raised is raised."""
    function = ctypes.PyDLL(str(path)).hloopt_run
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_int
    run: Callable[..., int] = function
    return run

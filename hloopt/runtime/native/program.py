"""A plan compiled into one shared object and run in this process.

Parameters and constants are read where they lie; the arena is allocated once.  A step that no loop computes is
called back: the NumPy executor runs it on views of the buffers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from hloopt.codegen.native import render
from hloopt.codegen.native.driver import called_steps, loops
from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import EVALUATORS, Host
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.control import check_progress
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.progress import Progress
from hloopt.interpret.values import parameter_values
from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import Allocation, Buffer, HostStep, KernelStep, Plan, walk_steps
from hloopt.runtime import library_numpy
from hloopt.runtime.borders import array_of_bytes, bytes_of_array, empty
from hloopt.runtime.native.toolchain import build_library
from hloopt.runtime.program import Array, Program
from hloopt.types import Literal

__all__ = ["NativeProgram"]

_ALIGNMENT: Final = 256
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
_STUCK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_longlong)
_INTERRUPTED = ctypes.CFUNCTYPE(ctypes.c_int)


class _Host(ctypes.Structure):
    """``Host`` of native.h."""

    _fields_ = (
        ("call", _CALL),
        ("stuck", _STUCK),
        ("interrupted", _INTERRUPTED),
        ("launches", ctypes.c_longlong),
        ("threads", ctypes.c_int),
        ("asked", ctypes.c_longlong),
    )


class NativeProgram(Program):
    """A module, made ready and planned, in the form of a shared object.

    Raises what ``build_library`` raises, ``UsageError`` for several participants.
    """

    def __init__(self, module: Module, plan: Plan, *, threads: int | None = None) -> None:
        for name in ("replica_count", "num_partitions"):
            count = module.attributes.get(name, 1)
            if count != 1:
                raise UsageError(f"{name}={count}: a device runs one participant; see --device cpu")
        self.plan = plan
        self.source = render(plan)
        self.progress = Progress()
        self.kernels = sum(
            isinstance(step, KernelStep | HostStep) for step in walk_steps(plan.steps)
        )
        self.launches = 0
        self._module = module
        self._running = Lock()
        self._error: BaseException | None = None
        self._context = Interpreter(module, EVALUATORS)
        self._memory = {
            id(allocation): _memory(allocation)
            for allocation in plan.allocations
            if allocation.kind != "parameter"
        }
        self._addresses = (ctypes.c_void_p * max(1, len(plan.allocations)))()
        self._calls = [self._called(step) for step in called_steps(plan)]
        self._loops = [step.instruction for step in loops(plan)]
        self._host = _Host(
            _CALL(self._call),
            _STUCK(self._stuck),
            _INTERRUPTED(self._interrupted),
            0,
            threads or _cores(),
            0,
        )
        self._run = self._load(build_library(self.source))

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        with self._running, np.errstate(all="ignore"):
            self._context.host = host or Host()
            self._place(inputs)
            self._host.launches = 0
            failed = self._run(self._addresses, ctypes.byref(self._host))
            self.launches = self._host.launches
            if failed:
                error, self._error = self._error, None
                assert error is not None
                raise error
            return [self._download(buffer) for buffer in self.plan.results]

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run the entry for the only participant.  Raises ``EvaluationError`` for several."""
        if len(inputs) != 1:
            raise EvaluationError(f"{len(inputs)} lists of inputs: a device runs one participant")
        return [self.run(inputs[0], host)]

    def _load(self, path: Path) -> Callable[..., int]:
        function = ctypes.CDLL(str(path)).hloopt_run
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        function.restype = ctypes.c_int
        run: Callable[..., int] = function
        return run

    # ---- memory -------------------------------------------------------------------------------------

    def _place(self, inputs: Sequence[Array]) -> None:
        values = parameter_values(self._module.entry, inputs, self._context)
        for buffer, array in zip(self.plan.parameters, leaf_arrays(tuple(values)), strict=True):
            if buffer is not None and buffer.byte_size:
                # Steps write into donated parameters; what the caller gave stays as it is.
                raw = bytes_of_array(array, buffer.shape)
                memory = _aligned(raw.nbytes)
                memory[:] = raw
                self._memory[id(buffer.allocation)] = memory
        for number, allocation in enumerate(self.plan.allocations):
            self._addresses[number] = self._memory[id(allocation)].ctypes.data

    def _view(self, buffer: Buffer) -> Array:
        memory = self._memory[id(buffer.allocation)]
        view: Array = memory[buffer.offset : buffer.offset + buffer.byte_size]
        return view

    def _download(self, buffer: Buffer) -> Array:
        if not buffer.byte_size:
            return empty(buffer.shape)
        return array_of_bytes(self._view(buffer).copy(), buffer.shape)

    # ---- what the driver calls ----------------------------------------------------------------------

    def _called(self, step: KernelStep | HostStep) -> Callable[[], None]:
        instruction: Instruction = step.instruction

        def call() -> None:
            given = [
                array_of_bytes(self._view(buffer), buffer.shape)
                if buffer.byte_size
                else empty(buffer.shape)
                for buffer in step.operands
                if buffer.shape.dtype.is_array
            ]
            made = library_numpy.call(instruction, given, self._context)
            results = [buffer for buffer in step.results if buffer.shape.dtype.is_array]
            for buffer, array in zip(results, made, strict=True):
                if buffer.byte_size:
                    self._view(buffer)[:] = bytes_of_array(array, buffer.shape)

        return call

    def _guarded(self, action: Callable[[], None]) -> int:
        """An exception must not pass through C: it is kept, and raised when the driver has returned."""
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again by run
            self._error = error
            return 1
        return 0

    def _call(self, number: int) -> int:
        return self._guarded(self._calls[number])

    def _stuck(self, number: int, trips: int) -> int:
        return self._guarded(lambda: check_progress(self._loops[number], trips, alone=True))

    def _interrupted(self) -> int:
        # Python runs its signal handlers before the next byte code, which is here.
        return self._guarded(lambda: None)


def _aligned(byte_size: int) -> Array:
    whole = np.empty(byte_size + _ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % _ALIGNMENT
    return whole[start : start + byte_size]


def _memory(allocation: Allocation) -> Any:
    memory = _aligned(allocation.byte_size)
    if allocation.kind == "constant":
        literal = _literal(allocation)
        assert literal.array is not None
        memory[:] = bytes_of_array(literal.array, literal.shape)  # type: ignore[arg-type]
    return memory


def _literal(allocation: Allocation) -> Literal:
    assert allocation.instruction is not None
    literal = allocation.instruction.literal
    assert literal is not None
    for number in allocation.index:
        literal = literal.elements[number]
    return literal


def _cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

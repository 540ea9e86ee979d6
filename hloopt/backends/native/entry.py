"""Programs called with the addresses of their inputs and results: no array is made, and none is copied.

For callers that have memory of their own, such as other frameworks' runtimes.  Any thread may call, without
Python's lock; it is taken only for native programs that have steps for the NumPy executor, and for functions of
Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from hloopt.backends.native.addresses import address_of
from hloopt.backends.native.bindings import (
    COPY_RESULT,
    INPUT_IN_PLACE,
    RESULT_IN_PLACE,
    Binding,
    bindings,
)
from hloopt.backends.native.codegen.driver import called_steps, loops
from hloopt.backends.native.memory import is_plain
from hloopt.backends.native.program import HostSide, NativeProgram
from hloopt.backends.native.toolchain import INCLUDE, build_library
from hloopt.errors import EvaluationError, UnsupportedError
from hloopt.interpret.control import endless
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = ["AddressEntry", "NativeEntry", "PythonEntry"]

_FAILURE: Final = 4096
_PYTHON: Final = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyObject_CallFunctionObjArgs",
    "PyUnicode_AsUTF8",
    "PyErr_Clear",
    "Py_DecRef",
)


class _Bound(ctypes.Structure):
    """``Binding`` of bindings.h."""

    _fields_ = tuple((name, ctypes.c_longlong) for name in Binding._fields)


class _Entry(ctypes.Structure):
    """``Entry`` of entry.h."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("host", HostSide),
        ("bound", ctypes.c_void_p),
        ("before", ctypes.c_longlong),
        ("after", ctypes.c_longlong),
        ("caller", ctypes.c_void_p),
        ("ensure", ctypes.c_void_p),
        ("leave", ctypes.c_void_p),
        ("invoke", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("clear", ctypes.c_void_p),
        ("forget", ctypes.c_void_p),
        ("none", ctypes.c_void_p),
        ("said", ctypes.c_void_p),
        ("alone", ctypes.c_void_p),
    )


class _Stuck(ctypes.Structure):
    """``Stuck`` of entry.h."""

    _fields_ = (("said", ctypes.c_void_p), ("text", ctypes.c_char_p))


class AddressEntry:
    """What is called with addresses; ``address`` is that of its ``Entry`` (entry.h).

    ``bound`` are the fields of each ``Binding``, ``table`` the places that they name.  ``caller``, where given,
    is called in place of ``run``: it returns None, or what failed.  Calls of one entry wait for each other.
    """

    def __init__(
        self,
        table: ctypes.Array[ctypes.c_void_p],
        bound: Iterable[Binding],
        *,
        run: Any = None,
        host: HostSide | None = None,
        caller: Callable[[], str | None] | None = None,
    ) -> None:
        ordered = sorted(bound)
        before = sum(one.kind != COPY_RESULT for one in ordered)
        self._table = table
        self._bound = (_Bound * len(ordered))(*(_Bound(*one) for one in ordered))
        self._caller = caller
        self._entry = _Entry(
            None if run is None else ctypes.cast(run, ctypes.c_void_p),
            ctypes.addressof(table),
            HostSide() if host is None else HostSide.from_buffer_copy(host),
            ctypes.addressof(self._bound),
            before,
            len(ordered) - before,
            None if caller is None else id(caller),
            *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON),
            id(None),
        )
        address = ctypes.addressof(self._entry)
        _library().hloopt_open(ctypes.c_void_p(address))
        self.address = address

    def __del__(self) -> None:
        """Free what ``hloopt_open`` has made."""
        if hasattr(self, "address"):
            _library().hloopt_close(ctypes.c_void_p(self.address))

    def call(self, inputs: Sequence[int], results: Sequence[int]) -> None:
        """Run on the inputs at these addresses, and write the results to those.

        Raises ``EvaluationError`` with what failed.
        """
        failure = ctypes.create_string_buffer(_FAILURE)
        given = [(ctypes.c_void_p * len(one))(*one) for one in (inputs, results)]
        entry = ctypes.c_void_p(self.address)
        if _library().hloopt_enter(entry, *given, failure, ctypes.c_longlong(_FAILURE)):
            raise EvaluationError(failure.value.decode(errors="replace"))


class PythonEntry(AddressEntry):
    """A function of Python, which is called with the addresses of inputs and of results, so many of each."""

    def __init__(
        self, function: Callable[[list[int], list[int]], None], inputs: int, results: int
    ) -> None:
        self._function, self._inputs = function, inputs
        bound = [Binding(INPUT_IN_PLACE, number, number, 0, 0) for number in range(inputs)]
        bound += [
            Binding(RESULT_IN_PLACE, number, inputs + number, 0, 0) for number in range(results)
        ]
        table = (ctypes.c_void_p * (inputs + results))()
        super().__init__(table, bound, caller=self._call_python)

    def _call_python(self) -> str | None:
        addresses = [address or 0 for address in self._table]
        try:
            self._function(addresses[: self._inputs], addresses[self._inputs :])
        except Exception as error:  # noqa: BLE001 - the message is all that the caller can raise
            return _told(error)
        return None


class NativeEntry(AddressEntry):
    """A native program, called by address; it is the entry's alone.

    Inputs are row-major arrays in parameter order, results in flat order, an element in whole bytes.  A result
    may lie in the input that ``input_output_alias`` pairs it with: then neither is copied.
    Raises ``UnsupportedError`` for parameters and results that have another form in memory.
    """

    def __init__(self, program: NativeProgram) -> None:
        self.program = program
        self._memory, plan = program._memory, program.plan
        self._numbers = {id(one): at for at, one in enumerate(plan.allocations)}
        self._scratch: list[Array] = []
        needs_python = bool(called_steps(plan))
        super().__init__(
            self._memory.table,
            self._bindings(),
            run=program._run,
            host=program._host,
            caller=self._call_python if needs_python else None,
        )
        self._views = list(self._viewed())
        if not needs_python:
            # Without Python's lock nothing can be asked whether a loop ends: what to say is made before.
            said = self.address + _Entry.said.offset
            told = [_endless(step.instruction) for step in loops(plan)]
            self._stuck = [_Stuck(said, text) for text in told]
            self._places = (ctypes.c_void_p * len(told))(*map(ctypes.addressof, self._stuck))
            self._entry.host.stuck = ctypes.addressof(self._places)

    def _bindings(self) -> list[Binding]:
        """What becomes of each input and result that has bytes."""
        plan = self.program.plan
        for buffer in (*plan.parameters, *plan.results):
            if buffer is not None and not is_plain(buffer.shape):
                raise UnsupportedError(
                    f"{buffer.shape} in memory is not a row-major array of whole bytes",
                    name=self.program.module.name,
                )
        found, apart = bindings(plan)
        for at in apart:
            # It is written into, and no result is left there.
            self._scratch.append(np.empty(plan.allocations[at].byte_size, np.uint8))
            self._memory.table[at] = address_of(self._scratch[-1])
        return found

    def _viewed(self) -> Iterator[tuple[int, tuple[int, ...], np.dtype, Any]]:
        """Allocations that the NumPy executor reads or writes and that lie elsewhere in each call."""
        plan = self.program.plan
        shapes = {
            id(buffer.allocation): buffer.shape
            for buffer in (*plan.parameters, *plan.results)
            if buffer is not None and buffer.byte_size == buffer.allocation.byte_size
        }
        used = {
            id(buffer.allocation): buffer.allocation
            for step in called_steps(plan)
            for buffer in (*step.operands, *step.results)
            if buffer.byte_size and buffer.allocation.kind in ("parameter", "result")
        }
        for key, allocation in used.items():
            memory = ctypes.c_char * allocation.byte_size
            shape = shapes.get(key)
            if shape is None:
                yield self._numbers[key], (allocation.byte_size,), np.dtype(np.uint8), memory
            else:
                yield self._numbers[key], shape.dims, shape.dtype.numpy, memory

    def _call_python(self) -> str | None:
        """Run on the arrays at these addresses.  Returns None, or what failed: the caller catches nothing."""
        table = self._memory.table
        # All places have their addresses already.
        self.program._host.arrays = None
        placed = self._memory._still.copy()
        for at, dims, kind, memory in self._views:
            placed[at] = np.ndarray(dims, kind, memory.from_address(table[at]))
        try:
            self.program._run_with_calls(placed, None)
        except Exception as error:  # noqa: BLE001 - the message is all that the caller can raise
            return _told(error)
        return None


def _endless(loop: Instruction) -> bytes | None:
    """What is said of a loop that does not end, as a format of C's for its iterations; None where it may."""
    error = endless(loop, "%lld", alone=True)
    return (
        None if error is None else str(error).replace("%", "%%").replace("%%lld", "%lld").encode()
    )


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


@cache
def _library() -> ctypes.CDLL:
    text = (INCLUDE / "entry.cpp").read_text(encoding="utf-8")
    return ctypes.CDLL(str(build_library(text)))

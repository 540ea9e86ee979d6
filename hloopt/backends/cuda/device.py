"""A GPU as a ``Device``: memory, copies and launches in the order of one stream, graphs and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from hloopt.backends.cuda.driver import capability, compiler_for, open_cupy
from hloopt.backends.cuda.libraries import Libraries
from hloopt.backends.nvrtc import VERIFY, Compiled, CompilerFlags, compile_cuda
from hloopt.codegen.program import KernelProgram, text_of
from hloopt.errors import DeviceError, EvaluationError
from hloopt.ir import Instruction
from hloopt.kernels.spec import Dim3
from hloopt.runtime.device import LentMemory, Pointer, PointerArgument
from hloopt.types import Array

__all__ = ["CudaDevice"]

_DEFAULT_SHARED = 48 * 1024  # bytes of shared memory that a block may have by default
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaDevice:
    """GPU ``number`` of this machine; see ``runtime.device.Device``.

    Launches are asynchronous: an error of a kernel is found by the next call that waits, which names the
    functions launched since the one before.  ``blocking`` waits after each, so that it is one.
    Raises ``DeviceError`` at once where CuPy, driver, GPU or compiler is missing.
    """

    # Library calls may be part of a graph, once ``prepare_library`` has made what they need.
    captures_libraries = True

    def __init__(
        self, number: int = 0, flags: CompilerFlags = VERIFY, *, blocking: bool = False
    ) -> None:
        self._cupy = open_cupy(number)
        self._runtime = self._cupy.cuda.runtime
        self.number = number
        self.flags = flags
        self.blocking = blocking
        self.capability = capability(self._cupy, number)
        self._nvrtc, self._arch = compiler_for(self._cupy, number)
        self._runtime.setDevice(number)
        # Captures need a separate stream; non-blocking, as no other stream's work matters here.
        self._own = self._current = self._cupy.cuda.Stream(non_blocking=True)
        self._last = self._own
        self.compiled: Compiled | None = None
        self._libraries = Libraries(self._cupy)
        self._module: Any = None
        self._describe: Mapping[str, str] = {}
        self._functions: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}
        self._allocations: dict[int, Any] = {}
        self._graphs: dict[int, tuple[Any, tuple[str, ...]]] = {}
        self._made = 0
        self._captured: list[str] | None = None
        self._pending: dict[str, None] = {}
        self._failed = False

    @property
    def stream(self) -> Any:
        """Where work goes: our own stream, or that of ``lent``, in which a capture would catch others' work."""
        return self._current if self._captured is None else self._own

    def load(self, program: KernelProgram | str, describe: dict[str, str]) -> None:
        """Compile a program for this GPU, or take it from the cache, and load it."""
        self.compiled = compile_cuda(
            text_of(program), self._arch, self.flags, describe=describe, nvrtc=self._nvrtc
        )
        self._describe = describe
        self._functions = {}
        self._allowed = {}
        self._module = self._cupy.cuda.function.Module()
        with self._failing("loading the program"):
            self._module.load(self.compiled.image)

    def require(self, libraries: Sequence[str]) -> None:
        """Raise ``DeviceError`` for a library (``cublas``, ``cufft``) that is not installed."""
        self._libraries.require(libraries)

    def allocate(self, byte_size: int) -> int:
        """Allocate memory, aligned to 256 bytes or more."""
        try:
            with self.stream:
                memory = self._cupy.cuda.alloc(max(byte_size, 1))
        except MemoryError as error:
            free, total = self._runtime.memGetInfo()
            raise DeviceError(
                f"GPU {self.number} has no {byte_size:,} bytes left: {free:,} of {total:,} are free"
            ) from error
        return self._numbered(self._allocations, memory)

    def reserve(self, byte_size: int) -> int:
        """The number of an allocation that lies nowhere until memory is lent for it."""
        return self._numbered(self._allocations, None)

    @contextmanager
    def lent(self, memory: Mapping[int, LentMemory], stream: int) -> Iterator[None]:
        """Reserved allocations lie at addresses of this GPU, and ``stream`` (cudaStream_t) has all work.

        What was put into another stream before is waited for there, as all share our own memory.
        """
        cuda = self._cupy.cuda
        self._runtime.setDevice(self.number)
        for number, one in memory.items():
            there = cuda.UnownedMemory(one.address, one.byte_size, self, self.number)
            self._allocations[number] = cuda.MemoryPointer(there, 0)
        if stream != self._last.ptr:
            before, self._last = self._last, cuda.ExternalStream(stream, self.number)
            with self._failing("waiting for another stream"):
                self._last.wait_event(before.record())
        self._current = self._last
        try:
            yield
        finally:
            self._current = self._own
            for number in memory:
                self._allocations[number] = None

    def upload(self, target: Pointer, array: Array) -> None:
        """Contiguous bytes of an array to the device; the array may be changed afterwards."""
        data = np.ascontiguousarray(array)
        if data.nbytes != target.byte_size:
            raise ValueError(f"{data.nbytes} bytes for a buffer of {target.byte_size}")
        self._outside_a_capture("upload")
        if not data.nbytes:
            return
        with self._failing("an upload"):
            self._runtime.memcpyAsync(
                self._address(target),
                data.ctypes.data,
                data.nbytes,
                self._runtime.memcpyHostToDevice,
                self.stream.ptr,
            )
        self.synchronize()

    def download(self, source: Pointer) -> Array:
        """Bytes (u8) from the device, after everything before has run."""
        self._outside_a_capture("download")
        data = np.empty(source.byte_size, np.uint8)
        if data.nbytes:
            with self._failing("a download"):
                self._runtime.memcpyAsync(
                    data.ctypes.data,
                    self._address(source),
                    data.nbytes,
                    self._runtime.memcpyDeviceToHost,
                    self.stream.ptr,
                )
        self.synchronize()
        return data

    def copy(self, target: Pointer, source: Pointer) -> None:
        """Copy bytes on the device."""
        if source.byte_size != target.byte_size:
            raise ValueError(f"{source.byte_size} bytes into a buffer of {target.byte_size}")
        if source.byte_size:
            with self._failing("a copy"):
                self._runtime.memcpyAsync(
                    self._address(target),
                    self._address(source),
                    source.byte_size,
                    self._runtime.memcpyDeviceToDevice,
                    self.stream.ptr,
                )

    def fill(self, target: Pointer, value: int) -> None:
        """Set every byte."""
        if target.byte_size:
            with self._failing("a fill"):
                self._runtime.memsetAsync(
                    self._address(target), value, target.byte_size, self.stream.ptr
                )

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
        shared: int = 0,
    ) -> None:
        """Launch a function: pointers, then 32-bit integers; a grid without blocks does nothing.

        ``shared`` bytes are given to each block beside the arrays that the function declares.
        """
        if 0 in grid:  # CuPy would make it one block
            return
        values: list[np.generic] = [
            np.uint64(self._address(argument.pointer)) for argument in arguments
        ]
        values += [np.int32(scalar) for scalar in scalars]
        self._remember(function)
        with self._failing(f"launching {self._named(function)}"):
            found = self._function(function)
            self._allow(function, shared)
            given = {"shared_mem": shared} if shared else {}
            found(grid, block, tuple(values), stream=self.stream, **given)
        if self.blocking and self._captured is None:
            self.synchronize()

    def prepare_library(self, name: str, instruction: Instruction) -> None:
        """Make what ``library`` will need, before a capture, in which nothing may be allocated."""
        with self._failing(f"{name} for {instruction.name}"), self.stream:
            self._libraries.prepare(name, instruction)

    def library(
        self,
        name: str,
        instruction: Instruction,
        operands: Sequence[Pointer],
        results: Sequence[Pointer],
    ) -> None:
        """Call cuBLAS or cuFFT for an instruction, on flat leaves of operands and of the result.

        Raises ``UnsupportedError`` for what ``libraries.can_call`` refuses.
        """
        self._remember(instruction.name)
        with self._failing(f"{name} for {instruction.name}"), self.stream:
            self._libraries.call(
                name,
                instruction,
                [self._bytes(pointer) for pointer in operands],
                [self._bytes(pointer) for pointer in results],
            )
        if self.blocking and self._captured is None:
            self.synchronize()

    def synchronize(self) -> None:
        """Wait for everything; an error is one of what was launched since the last wait."""
        with self._failing("waiting"):
            self.stream.synchronize()
        self._pending.clear()

    def begin_capture(self) -> None:
        """From here on launches, copies, fills and library calls are recorded instead of run."""
        if self._captured is not None:
            raise ValueError("a capture is under way")
        with self._failing("beginning a graph"):
            self._own.begin_capture()
        self._captured = []

    def end_capture(self) -> int:
        """A graph of what came since ``begin_capture``; its number, for ``replay``."""
        if self._captured is None:
            raise ValueError("no capture is under way")
        names, self._captured = tuple(dict.fromkeys(self._captured)), None
        with self._failing("making a graph"):
            graph = self._own.end_capture()
        return self._numbered(self._graphs, (graph, names))

    def abandon_capture(self) -> None:
        """End a capture whose work failed, and discard it; without one, do nothing."""
        if self._captured is not None:
            self._captured = None
            with suppress(RuntimeError):  # CUDA says once more that the capture was broken
                self._own.end_capture()

    def replay(self, graph: int) -> None:
        """Run a graph: the same functions on the same memory."""
        made, names = self._graphs[graph]
        self._pending.update(dict.fromkeys(names))
        with self._failing("launching a graph"):
            made.launch(stream=self.stream)
        if self.blocking:
            self.synchronize()

    def forget(self, graph: int) -> None:
        """Free a graph, once it has run."""
        self.synchronize()
        del self._graphs[graph]

    def record(self) -> Any:
        """An event after everything so far, for ``elapsed``."""
        event = self._cupy.cuda.Event()
        with self._failing("recording an event"):
            event.record(self.stream)
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds on the device between two events; waits for the second."""
        with self._failing("waiting for an event"):
            end.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def properties(self) -> Mapping[str, Any]:
        """The runtime's properties of the GPU (``cudaDeviceProp``)."""
        found: dict[str, Any] = self._runtime.getDeviceProperties(self.number)
        return found

    def close(self) -> None:
        """Free everything; after an error of a kernel nothing can be freed, and nothing is left."""
        self.abandon_capture()
        try:
            if not self._failed:
                self._last.synchronize()
            self._libraries.close()
            self._graphs.clear()
            self._functions.clear()
            self._module = None
            self._allocations.clear()
            self._cupy.get_default_memory_pool().free_all_blocks()
        except RuntimeError:
            if not self._failed:
                raise

    def _numbered(self, table: dict[int, Any], thing: Any) -> int:
        self._made += 1
        table[self._made] = thing
        return self._made

    def _address(self, pointer: Pointer) -> int:
        return int(self._allocations[pointer.allocation].ptr) + pointer.offset

    def _bytes(self, pointer: Pointer) -> Any:
        """A flat u8 array over a buffer."""
        memory = self._allocations[pointer.allocation] + pointer.offset
        return self._cupy.ndarray((pointer.byte_size,), np.uint8, memory)

    def _function(self, name: str) -> Any:
        found = self._functions.get(name)
        if found is None:
            if self._module is None:
                raise ValueError("no program is loaded")
            found = self._functions[name] = self._module.get_function(name)
        return found

    def _allow(self, name: str, shared: int) -> None:
        """Raise a function's limit of shared memory above the default."""
        if shared > self._allowed.get(name, _DEFAULT_SHARED):
            driver = self._cupy.cuda.driver
            driver.funcSetAttribute(self._function(name).ptr, _MOST_SHARED, shared)
            self._allowed[name] = shared

    def _remember(self, name: str) -> None:
        self._pending[name] = None
        if self._captured is not None:
            self._captured.append(name)

    def _outside_a_capture(self, what: str) -> None:
        if self._captured is not None:
            raise ValueError(f"no {what} while a graph is captured: it would wait for the device")

    def _named(self, name: str) -> str:
        of = self._describe.get(name)
        return f"{name} of {of}" if of else name

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """CUDA's errors as ours, with what may have caused them; CuPy raises RuntimeErrors of its own."""
        try:
            yield
        except (NotImplementedError, RecursionError):
            raise
        except RuntimeError as error:
            self._failed = True
            names = list(self._pending)
            shown = ", ".join(map(self._named, names[:8])) + (" ..." if len(names) > 8 else "")
            since = f"; launched since the last wait: {shown}" if shown else ""
            raise EvaluationError(f"GPU {self.number}, {doing}: {error}{since}") from error

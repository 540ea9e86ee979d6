"""The emulator as a device: the same CUDA C and launches, run on the CPU in a child process."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from hloopt.backends.emulator.child import Child, ChildEndedError, Ending
from hloopt.backends.emulator.memory import SharedMemory
from hloopt.backends.emulator.source import KernelSource, ProgramSource, translate
from hloopt.backends.emulator.toolchain import build_program
from hloopt.codegen.program import KernelProgram, text_of
from hloopt.errors import DeviceError, EvaluationError
from hloopt.kernels.spec import Dim3
from hloopt.runtime.device import LentMemory, Pointer, PointerArgument
from hloopt.types import Array

__all__ = ["EmulatorDevice", "Mode"]

Mode: TypeAlias = Literal["fast", "check"]

_SEGMENT, _ALLOCATION, _WRITTEN, _COPY, _FILL, _LAUNCH, _EXPECT, _SYNC = range(1, 9)
_ROLES = {"in": 0, "out": 1, "update": 2}
_BATCH_BYTES = 1 << 15

_MOST_THREADS = 1024
_MOST_SHARED = 227 * 1024
_MOST_BLOCK = (1024, 1024, 64)
_MOST_GRID = (2**31 - 1, 65535, 65535)


class EmulatorDevice:
    """Runs programs of CUDA C on the CPU (``runtime.device.Device``).

    mode        ``fast``, or ``check``: every access of memory is checked, and the first that is wrong ends
                the launch with an error that names it
    seed        0 runs blocks and threads in order; another number permutes blocks, and the threads of
                kernels that synchronise, so that results that differ betray a missing barrier
    threads     of the operating system; by default as many as there are processors.  Check mode uses one
    time_limit  seconds for one launch
    is_optimized  programs are compiled to run fast; without, a program of matrix units compiles in a quarter
                of the time, which is less where few threads run

    A kernel that crashes, hangs or is found wrong is an ``EvaluationError`` and ends the process it runs in,
    not this one.  Memory survives it; in check mode all of it counts as written afterwards.
    """

    def __init__(
        self,
        mode: Mode = "fast",
        seed: int = 0,
        threads: int | None = None,
        time_limit: float = 60.0,
        *,
        is_optimized: bool = True,
    ) -> None:
        if mode not in ("fast", "check"):
            raise ValueError(f"mode {mode!r} is neither fast nor check")
        self.mode = mode
        self.seed = seed
        self.threads = threads or _processors()
        self.time_limit = time_limit
        self.is_optimized = is_optimized
        self._memory = SharedMemory()
        self._source: KernelProgram | str = ""
        self._program: ProgramSource | None = None
        self._describe: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._child: Child | None = None
        self._segments_told = 0
        self._filled: list[Pointer] = []  # what a new child is sent as written
        self._batch = bytearray()
        self._waited = 0  # launches of the child that have ended
        self._launched: list[str] = []  # those after them

    def load(self, program: KernelProgram | str, describe: dict[str, str]) -> None:
        """Compile a program, or take it from the cache; the one before is forgotten, memory is kept.

        Raises ``DeviceError`` where there is no compiler or it refuses the text.
        """
        self._synchronize()
        self._end_child()
        self._program = translate(program, is_checked=self.mode == "check")
        self._executable = build_program(
            self._program.text, is_checked=self.mode == "check", is_optimized=self.is_optimized
        )
        self._source = program
        self._describe = dict(describe)
        self._numbers = {kernel.name: i for i, kernel in enumerate(self._program.kernels)}

    def allocate(self, byte_size: int) -> int:
        """Allocate memory, not initialised.  Returns the allocation's number."""
        number = self._memory.allocate(byte_size)
        if self._child is not None:
            self._send_allocations(number)
        return number

    def reserve(self, byte_size: int) -> int:
        """The number of an allocation for what is lent."""
        return self.allocate(byte_size)

    @contextmanager
    def lent(self, memory: Mapping[int, LentMemory], stream: int) -> Iterator[None]:
        """Upload operands from their host addresses, and download results to theirs; there are no streams."""
        for number, one in memory.items():
            if one.is_read:
                self.upload(Pointer(number, 0, one.byte_size), _at(one))
        yield
        for number, one in memory.items():
            if one.is_written:
                _at(one)[:] = self.download(Pointer(number, 0, one.byte_size))

    def upload(self, target: Pointer, array: Array) -> None:
        """Contiguous bytes of an array to the device."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if data.size != target.byte_size:
            raise ValueError(f"{data.size} bytes do not fill {target}")
        self._synchronize()
        self._memory.view(target)[:] = data
        if self._child is None:
            self._filled.append(target)
        else:
            self._send(_pack_range(_WRITTEN, target))

    def download(self, source: Pointer) -> Array:
        """Bytes (u8) from the device, after everything before has run.

        In check mode bytes that were never written are an ``EvaluationError``.
        """
        if self.mode == "check" and self._child is not None:
            self._send(_pack_range(_EXPECT, source))
        self._synchronize()
        return self._memory.view(source).copy()

    def copy(self, target: Pointer, source: Pointer) -> None:
        """Copy bytes on the device."""
        if target.byte_size != source.byte_size:
            raise ValueError(f"{source} does not fill {target}")
        self._memory.view(target), self._memory.view(source)  # both are inside
        self._start()
        self._send(_pack_range(_COPY, target) + _pack_range(None, source))

    def fill(self, target: Pointer, value: int) -> None:
        """Set every byte."""
        self._memory.view(target)
        self._start()
        self._send(_pack_range(_FILL, target, value))

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
        shared: int = 0,
    ) -> None:
        """Launch a function: pointers, then 32-bit integers; ``shared`` bytes a block beside its arrays.

        Raises ``EvaluationError`` where a GPU would refuse to; an error in the function is raised by
        the next call that waits.
        """
        number = self._numbers.get(function)
        if number is None or self._program is None:
            raise DeviceError(f"the program has no kernel called {function!r}")
        kernel = self._program.kernels[number]
        _check_launch(self._subject(function), kernel, grid, block)
        if not kernel.dynamic <= shared <= _MOST_SHARED:
            raise EvaluationError(
                f"{self._subject(function)}: a launch that gives {shared} bytes of shared memory; it needs"
                f" {kernel.dynamic}, and at most {_MOST_SHARED} are allowed"
            )
        self._start()
        record = struct.pack(
            "<II3I3III", _LAUNCH, number, *grid, *block, len(arguments), len(scalars)
        )
        for argument in arguments:
            self._memory.view(argument.pointer)
        pointers = b"".join(map(_pack_argument, arguments))
        self._launched.append(function)
        self._send(record + pointers + struct.pack(f"<{len(scalars)}i", *scalars))

    def close(self) -> None:
        """End the process and free everything; what was launched and not waited for may not have run."""
        self._end_child()
        self._memory.close()

    # ------------------------------------------------------------ the child

    def _start(self) -> None:
        if self._child is not None:
            return
        if self._program is None:
            raise DeviceError("no program is loaded")
        self._child = Child(
            self._executable,
            self._memory.descriptor,
            threads=self.threads,
            seed=self.seed,
            time_limit=self.time_limit,
        )
        self._send_allocations(0)
        for pointer in self._filled:
            self._send(_pack_range(_WRITTEN, pointer))
        self._filled.clear()

    def _end_child(self) -> None:
        """End the child; the next one does not know what was written, so that all counts as written."""
        if self._child is None:
            return
        self._child.close()
        self._child = None
        self._segments_told = self._waited = 0
        self._batch.clear()
        self._launched.clear()
        self._filled = [
            Pointer(number, 0, allocation.byte_size)
            for number, allocation in enumerate(self._memory.allocations)
        ]

    def _send_allocations(self, first: int) -> None:
        for segment in self._memory.segments[self._segments_told :]:
            self._batch += struct.pack("<IQQ", _SEGMENT, segment.offset, segment.byte_size)
        self._segments_told = len(self._memory.segments)
        for each in self._memory.allocations[first:]:
            self._batch += struct.pack(
                "<IQQQ", _ALLOCATION, each.segment, each.offset, each.byte_size
            )

    def _send(self, data: bytes) -> None:
        self._batch += data
        if len(self._batch) > _BATCH_BYTES:
            self._synchronize()

    def _synchronize(self) -> None:
        """Wait until everything has run."""
        if self._child is None or not self._batch:
            return
        data = bytes(self._batch) + struct.pack("<I", _SYNC)
        self._batch.clear()
        try:
            self._child.exchange(data)
        except ChildEndedError as error:
            failure = self._failure(error.ending)
            self._end_child()
            raise failure from None
        except BaseException:  # an interrupt: half of what was sent may have run
            self._end_child()
            raise
        self._waited += len(self._launched)
        self._launched.clear()

    # ------------------------------------------------------------ what went wrong

    def _subject(self, function: str) -> str:
        instruction = self._describe.get(function)
        return f"kernel {function} ({instruction})" if instruction else f"kernel {function}"

    def _failure(self, ending: Ending) -> EvaluationError:
        if ending.launch is None:
            return EvaluationError(f"the emulator: {ending.text}")
        message = self._subject(self._launched[ending.launch - self._waited])
        if ending.block is not None:
            place = f"block {ending.block}"
            if ending.thread is not None:
                place = f"thread {ending.thread} of {place}"
            message += f": {place}"
        message += f" {ending.text}"
        if ending.line:
            lines = text_of(self._source).splitlines()
            text = lines[ending.line - 1].strip() if ending.line <= len(lines) else ""
            message += f" (line {ending.line}: {text})"
        return EvaluationError(message)


def _at(one: LentMemory) -> Array:
    memory: Any = ctypes.c_char * one.byte_size
    return np.ndarray(one.byte_size, np.uint8, memory.from_address(one.address))


def _pack_range(command: int | None, pointer: Pointer, value: int = 0) -> bytes:
    head = b"" if command is None else struct.pack("<I", command)
    return head + struct.pack(
        "<IIQQ", pointer.allocation, value & 255, pointer.offset, pointer.byte_size
    )


def _pack_argument(argument: PointerArgument) -> bytes:
    pointer = argument.pointer
    return struct.pack(
        "<IIIIQQ",
        pointer.allocation,
        _ROLES[argument.role],
        argument.partial,
        0,
        pointer.offset,
        pointer.byte_size,
    )


def _check_launch(subject: str, kernel: KernelSource, grid: Dim3, block: Dim3) -> None:
    """Check a GPU's limits: raises ``EvaluationError`` for a launch it would refuse."""
    for name, sizes, most in (("grid", grid, _MOST_GRID), ("block", block, _MOST_BLOCK)):
        if any(not 1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
            raise EvaluationError(f"{subject}: a {name} of {sizes} is not within {most}")
    threads = prod(block)
    limit = min(kernel.most_threads or _MOST_THREADS, _MOST_THREADS)
    if threads > limit:
        raise EvaluationError(
            f"{subject}: a block of {block} has {threads} threads, and at most {limit} are allowed"
        )


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

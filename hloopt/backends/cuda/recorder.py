"""A device that records when each of its operations begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from hloopt.backends.cuda.device import CudaDevice
from hloopt.codegen.program import KernelProgram
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.spec import Dim3
from hloopt.runtime.device import Pointer, PointerArgument
from hloopt.types import Array

__all__ = ["EntryKind", "RecordedEvent", "Recorder"]

EntryKind = Literal["launch", "library", "copy", "fill"]

# Events are turned into seconds in batches, so that a long loop does not hold millions of them.
_BATCH = 4096


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """Something that ran: ``name`` is the function, or the instruction of a library call; ``bytes`` of a copy.

    ``start`` counts from the beginning of the record, in seconds.
    """

    kind: EntryKind
    name: str
    start: float
    seconds: float
    bytes: int = 0


_Call: TypeAlias = "tuple[EntryKind, str, int, Callable[[], None]]"


class Recorder:
    """A ``CudaDevice`` for a ``DeviceProgram``; while ``is_recording``, everything has its times.

    A graph is then replayed call by call, so that each can be timed.  ``before`` is called before
    each event, outside the measured time.
    """

    def __init__(self, device: CudaDevice, before: Callable[[], object] | None = None) -> None:
        self.is_recording = False
        self.captures_libraries = device.captures_libraries
        self._device = device
        self._before = before
        self._origin: Any = None
        self._open: list[tuple[EntryKind, str, int, Any, Any]] = []
        self._entries: list[RecordedEvent] = []
        self._captured: list[_Call] | None = None
        self._graphs: dict[int, list[_Call]] = {}

    def take(self) -> list[RecordedEvent]:
        """Everything since the last call, in order; the next begins at second 0."""
        self._resolve()
        entries, self._entries, self._origin = self._entries, [], None
        return entries

    def load(self, program: KernelProgram | str, describe: dict[str, str]) -> None:
        """Not timed."""
        self._device.load(program, describe)

    def allocate(self, byte_size: int) -> int:
        """Not timed."""
        return self._device.allocate(byte_size)

    def upload(self, target: Pointer, array: Array) -> None:
        """Not timed."""
        self._device.upload(target, array)

    def download(self, source: Pointer) -> Array:
        """Not timed."""
        return self._device.download(source)

    def copy(self, target: Pointer, source: Pointer) -> None:
        """Timed."""
        self._timed("copy", "copy", target.byte_size, lambda: self._device.copy(target, source))

    def fill(self, target: Pointer, value: int) -> None:
        """Timed."""
        self._timed("fill", "fill", target.byte_size, lambda: self._device.fill(target, value))

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
        shared: int = 0,
    ) -> None:
        """Timed."""
        self._timed(
            "launch",
            function,
            0,
            lambda: self._device.launch(function, grid, block, arguments, scalars, shared),
        )

    def prepare_library(self, name: str, instruction: Instruction) -> None:
        """Not timed."""
        self._device.prepare_library(name, instruction)

    def library(
        self,
        name: str,
        instruction: Instruction,
        operands: Sequence[Pointer],
        results: Sequence[Pointer],
    ) -> None:
        """Timed."""
        self._timed(
            "library",
            instruction.name,
            0,
            lambda: self._device.library(name, instruction, operands, results),
        )

    def begin_capture(self) -> None:
        """As the device; the calls are kept as well."""
        self._device.begin_capture()
        self._captured = []

    def end_capture(self) -> int:
        """As the device."""
        graph = self._device.end_capture()
        assert self._captured is not None, "the device would have complained"
        self._graphs[graph], self._captured = self._captured, None
        return graph

    def abandon_capture(self) -> None:
        """As the device."""
        self._captured = None
        self._device.abandon_capture()

    def replay(self, graph: int) -> None:
        """The graph, or its calls one by one, timed."""
        if not self.is_recording:
            self._device.replay(graph)
            return
        for call in self._graphs[graph]:
            self._timed(*call)

    def close(self) -> None:
        """Nothing: the device's owner closes it."""

    def _timed(self, kind: EntryKind, name: str, size: int, work: Callable[[], None]) -> None:
        if self._captured is not None:
            self._captured.append((kind, name, size, work))
        if self._captured is not None or not self.is_recording:
            work()
            return
        if self._before is not None:
            self._before()
        start = self._device.record()
        if self._origin is None:
            self._origin = start
        work()
        self._open.append((kind, name, size, start, self._device.record()))
        if len(self._open) >= _BATCH:
            self._resolve()

    def _resolve(self) -> None:
        for kind, name, size, start, end in self._open:
            seconds = self._device.elapsed(start, end)
            offset = self._device.elapsed(self._origin, start)
            self._entries.append(RecordedEvent(kind, name, offset, seconds, size))
        self._open.clear()

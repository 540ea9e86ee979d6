"""Programs on a device that read their inputs and write their results where their caller has them.

For callers that have memory and streams of the device, such as other frameworks: nothing goes through the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloopt.backends.device_compile import Prepared
from hloopt.backends.native.memory import is_plain
from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError
from hloopt.kernels.plan import Allocation
from hloopt.runtime.device import Lending, LentMemory, Pointer
from hloopt.runtime.device_program import DeviceProgram

__all__ = ["CalledProgram"]


@dataclass(frozen=True, slots=True)
class _Input:
    """Input ``number`` in the allocation ``at``.

    Where that is the memory of a ``result``, it is copied from ``staging`` unless the caller has it there.
    """

    number: int
    at: int
    byte_size: int
    result: int | None = None
    staging: int = -1


@dataclass(frozen=True, slots=True)
class _Result:
    """Result ``number`` in the allocation ``at``; copied from ``source`` unless the program has it there."""

    number: int
    at: int
    byte_size: int
    source: Pointer | None = None


class CalledProgram(DeviceProgram):
    """A program that has memory of its own for constants and temporaries only.

    Inputs are row-major arrays in parameter order, results in flat order, an element in whole bytes.  A result
    may lie in the input that ``input_output_alias`` pairs it with: then neither is copied.
    Raises as ``DeviceProgram``, and ``UnsupportedError`` for parameters and results of another form.
    """

    device: Lending

    def __init__(self, prepared: Prepared, device: Lending) -> None:
        for buffer in (*prepared.plan.parameters, *prepared.plan.results):
            if buffer is not None and not is_plain(buffer.shape):
                raise UnsupportedError(
                    f"{buffer.shape} in memory is not a row-major array of whole bytes",
                    name=prepared.module.name,
                )
        super().__init__(prepared.module, prepared.plan, device, prepared.program)
        lying: dict[Allocation, int] = {}
        self._made = list(self._results(lying))
        self._given = list(self._inputs(lying))

    def run_at(self, inputs: Sequence[int], results: Sequence[int], stream: int = 0) -> None:
        """Put a run on what lies at these addresses of the device into a stream of it."""
        memory: dict[int, LentMemory] = {}
        arriving: list[tuple[Pointer, Pointer]] = []
        for one in self._made:
            memory[one.at] = LentMemory(results[one.number], one.byte_size, False, True)
        for given in self._given:
            address, size = inputs[given.number], given.byte_size
            if given.result is None:
                memory[given.at] = LentMemory(address, size, True, False)
            elif address == results[given.result]:
                memory[given.at] = LentMemory(address, size, True, True)
            else:
                memory[given.staging] = LentMemory(address, size, True, False)
                arriving.append((Pointer(given.at, 0, size), Pointer(given.staging, 0, size)))
        with self._running, np.errstate(all="ignore"), self.device.lent(memory, stream):
            self._places = (*inputs, *results)
            for target, source in arriving:
                self.device.copy(target, source)
            self.walk()
            for one in self._made:
                if one.source is not None:
                    self.device.copy(Pointer(one.at, 0, one.byte_size), one.source)

    def _allocated(self, allocation: Allocation) -> int:
        if allocation.kind in ("parameter", "result"):
            return self.device.reserve(allocation.byte_size)
        return super()._allocated(allocation)

    def _results(self, lying: dict[Allocation, int]) -> Iterator[_Result]:
        """Where results are left; ``lying`` gets those that have an allocation, which may be a parameter's."""
        for number, buffer in enumerate(self.plan.results):
            found, size = buffer.allocation, buffer.byte_size
            is_whole = found.kind in ("parameter", "result") and size == found.byte_size
            if not size:
                continue
            if is_whole and found not in lying:
                lying[found] = number
                yield _Result(number, self._numbers[found], size)
            else:
                yield _Result(number, self.device.reserve(size), size, self._pointer(buffer))

    def _inputs(self, lying: dict[Allocation, int]) -> Iterator[_Input]:
        given = (one for one in self.plan.parameters if one is not None)
        for number, buffer in enumerate(given):
            size, at = buffer.byte_size, self._numbers.get(buffer.allocation, -1)
            if size and buffer.allocation in lying:
                staging = self.device.reserve(size)
                yield _Input(number, at, size, lying[buffer.allocation], staging)
            elif size:
                yield _Input(number, at, size)

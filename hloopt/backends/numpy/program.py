"""A module compiled for NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from hloopt.backends.numpy.clock import LineClock
from hloopt.backends.numpy.compiler import LineCompiler
from hloopt.backends.numpy.plan import unpack
from hloopt.backends.numpy.threads import thread_count
from hloopt.errors import EvaluationError
from hloopt.interpret import Host, check_inputs, supported
from hloopt.interpret.participant import Participant, Transport
from hloopt.interpret.participants import Participants
from hloopt.interpret.progress import Progress
from hloopt.interpret.values import flatten_results, parameter_values
from hloopt.ir import Module
from hloopt.kernels import module_kernels
from hloopt.runtime.blas import blas_threads
from hloopt.runtime.program import NumpyOptions, SharedProgram
from hloopt.types import Array, ArrayShape, Shape, leaves

if TYPE_CHECKING:
    from hloopt.backends.numpy.loop_plan import Blocking
    from hloopt.runtime.timing import StepClock

__all__ = ["NumpyProgram"]


class NumpyProgram(SharedProgram):
    """Every computation compiled once; see ``plan`` for the form.

    ``loops`` says of each fused loop, by its name, in which blocks it runs, or why whole; ``blocking``
    what blocks are worth while.  ``exact`` has functions of f32 computed as the interpreter does, which errs
    less and takes longer (``quick_math``).  ``threads`` share large elementwise work (``blocks``): as many
    as ``threads.thread_count`` says.  ``clock`` is called between steps.

    Raises ``UnsupportedError`` for the first instruction that cannot be run.
    """

    def __init__(
        self,
        module: Module,
        options: NumpyOptions | None = None,
        blocking: Blocking | None = None,
        clock: LineClock | None = None,
    ) -> None:
        self._options = options = options or NumpyOptions()
        replicas, partitions = options.replicas, options.partitions
        threads = thread_count(options.threads)
        supported(module, replicas, partitions)
        self.module = module
        self._replicas, self._partitions = replicas, partitions
        self._launches = [0]
        self._running = Lock()
        self.progress = Progress()
        self._compiler = LineCompiler(
            module,
            self._launches,
            excess_precision=options.excess_precision,
            blocking=blocking,
            exact=options.exact,
            threads=threads,
            clock=clock,
        )
        self._clock = clock
        self._blas = blas_threads(module, threads)
        self.loops = self._compiler.loops
        with np.errstate(all="ignore"):
            self._entry = self._compiler.program(self.progress, keeps=replicas * partitions == 1)
        self.kernels = module_kernels(module)
        self.launches = 0

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        count = self._replicas * self._partitions
        if count > 1:
            raise EvaluationError(f"this program has {count} participants; see run_participants")
        # A run keeps its count, its participant and its host here: one at a time.
        with self._running:
            self._launches[0] = 0
            self._enter(Participant(), Host.given(host))
            outputs = self._run(inputs)
            self.launches = self._launches[0]
        return outputs

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run the entry once for each participant, in lock step."""
        check_inputs(inputs, self._replicas, self._partitions)
        if len(inputs) == 1:
            return [self.run(inputs[0], host)]
        return self._run_together(inputs, host, None)

    def run_local(
        self, inputs: Sequence[Sequence[Array]], host: Host, transport: Transport
    ) -> list[list[Array]]:
        """Run the entry once for each participant of this process."""
        check_inputs(inputs, self._replicas, self._partitions)
        return self._run_together(inputs, host, transport)

    def _run_together(
        self, inputs: Sequence[Sequence[Array]], host: Host | None, transport: Transport | None
    ) -> list[list[Array]]:
        hosts = Host.given(host)
        counts = [0] * len(inputs)
        running = [0]

        def entered(participant: Participant) -> None:
            counts[running[0]] = self._launches[0]
            running[0] = participant.number
            self._launches[0] = counts[participant.number]
            self._enter(participant, hosts.of(participant.number))

        with self._running:
            self._launches[0] = 0
            several = Participants[list[Array]](
                self._replicas, self._partitions, entered, transport
            )
            outputs = several.run(lambda participant: self._run(inputs[participant.number]))
            counts[running[0]] = self._launches[0]
            self.launches = counts[0]
        return outputs

    def _enter(self, participant: Participant, host: Host) -> None:
        self._compiler.participant, self._compiler.host = participant, host
        if self._clock is not None:
            self._clock.switch(participant.number)

    def timed(self) -> tuple[NumpyProgram, StepClock]:
        """The same program with a clock that is called between its steps."""
        clock = LineClock()
        return NumpyProgram(self.module, self._options, clock=clock), clock

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        entry = self.module.entry
        with self._blas, np.errstate(all="ignore"):
            values = parameter_values(entry, inputs, self._compiler)
            flat = self._entry(*[leaf for value in values for leaf in unpack(value)])
            return self._owned_results(flat)

    def _owned_results(self, flat: Sequence[Any]) -> list[Array]:
        """The results' arrays: those that nothing else refers to as they are, copies of others."""
        found = []
        shapes = leaves(self.module.entry.result_shape)
        for array, shape, own in zip(flat, shapes, self._compiler.own_results, strict=True):
            if own and _is_whole(array, shape):
                found.append(array)
            else:
                found += flatten_results(array, shape, self._compiler)
        return found


def _is_whole(array: Any, shape: Shape) -> bool:
    """Whether an array is what a result is to be: in row-major order, and of no larger one."""
    if not isinstance(array, np.ndarray) or not isinstance(shape, ArrayShape):
        return False
    base = array.base
    return (
        array.dtype == shape.dtype.numpy
        and shape.dtype.is_array
        and bool(array.flags.c_contiguous and array.flags.writeable)
        and (base is None or getattr(base, "nbytes", -1) == array.nbytes)
    )

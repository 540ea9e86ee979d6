"""Times on the GPU by CUDA events, also as shares of the roofline.

An event pair costs about two microseconds by itself, so that the smallest kernels look slower than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from hloopt.backends.cuda.device import CudaDevice
from hloopt.backends.cuda.occupancy import Occupancy, occupancy
from hloopt.backends.nvrtc import Resources
from hloopt.dataclass import dataclass
from hloopt.runtime.device import Pointer
from hloopt.runtime.timing import Timing
from hloopt.targets import Target, Unit

__all__ = ["KernelTime", "StepSpan", "Stopwatch"]

_Step = Callable[[], object]

_SPACER_FILLS = 64
_COPIES = 10


@dataclass(frozen=True, slots=True)
class StepSpan:
    """Seconds from the beginning of a run to that of a step, and seconds it took."""

    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel's times, with what it has to do.

    function     the CUDA function, or the library
    instruction  the HLO instruction
    bytes        it reads and writes at least
    flops        it computes, in ``dtype``; ``unit`` is where
    threads      of a block
    resources    of its machine code; None of a library's
    launches     how often it runs in a run of the program
    """

    function: str
    instruction: str
    timing: Timing
    bytes: int
    flops: int
    dtype: str = "f32"
    unit: Unit = "scalar"
    threads: int = 0
    resources: Resources | None = None
    launches: int = 1

    @property
    def bytes_per_second(self) -> float:
        """At the median time; 0 of what is too short for the GPU's clock (half a microsecond)."""
        return self._per(self.bytes)

    @property
    def flops_per_second(self) -> float:
        """At the median time, as bytes."""
        return self._per(self.flops)

    def share_of_roofline(self, target: Target) -> float:
        """The least time the device's description allows, of the median time: 1 is as fast as can be."""
        return self._per(target.roofline(self.bytes, self.flops, self.dtype, self.unit))

    def _per(self, amount: float) -> float:
        median = self.timing.median
        return amount / median if median else 0.0

    def occupancy(self, target: Target) -> Occupancy | None:
        """Warps a multiprocessor holds; None where the machine code is not ours."""
        if self.resources is None or not self.threads:
            return None
        return occupancy(target, self.threads, self.resources.registers, self.resources.shared)


class Stopwatch:
    """Times work on a device.

    ``cold`` empties the second-level cache before each step, so that operands come from memory.  Before each
    step the device is kept busy for as long as the host needs to queue it: otherwise the host's time to
    launch would be measured.
    """

    def __init__(self, device: CudaDevice, *, cold: bool = False) -> None:
        self._device = device
        self._cold = cold
        self._l2 = max(int(device.properties()["l2CacheSize"]), 1 << 20)
        self._flush: Pointer | None = None
        scratch = Pointer(device.allocate(4), 0, 4)
        device.fill(scratch, 0)  # the code this loads cannot be loaded in a capture
        device.begin_capture()
        for _ in range(_SPACER_FILLS):
            device.fill(scratch, 0)
        self._spacer = device.end_capture()

    def steps(
        self, steps: Sequence[_Step], repeat: int = 20, warm_up: int = 3
    ) -> tuple[Timing, ...]:
        """Times of each step of a program: all steps run in their order, ``repeat`` times after ``warm_up``."""
        for _ in range(warm_up):
            for step in steps:
                step()
        self._device.synchronize()
        taken: list[list[float]] = [[] for _ in steps]
        for _ in range(repeat):
            for times, step in zip(taken, steps, strict=True):
                times.append(self._timed(step))
        return tuple(Timing(tuple(times)) for times in taken)

    def whole(
        self, run: _Step, repeat: int = 20, warm_up: int = 3, before: _Step | None = None
    ) -> Timing:
        """Times of a program as one piece, what the host does between its launches included.

        ``before`` is called before each run, outside the measured time.
        """
        for _ in range(warm_up):
            run()
        taken = []
        for _ in range(repeat):
            if before is not None:
                before()
            self._device.synchronize()
            taken.append(self._timed(run))
        return Timing(tuple(taken))

    def timeline(self, steps: Sequence[_Step]) -> tuple[StepSpan, ...]:
        """When each step of one run began and how long it took; nothing waits between them."""
        if not steps:
            return ()
        self._device.synchronize()
        self._device.replay(self._spacer)
        events = [self._device.record()]
        for step in steps:
            step()
            events.append(self._device.record())
        ends = [self._device.elapsed(events[0], event) for event in events[1:]]
        starts = [0.0, *ends[:-1]]
        return tuple(StepSpan(start, end - start) for start, end in zip(starts, ends, strict=True))

    def copy_bandwidth(self, byte_size: int = 1 << 28) -> float:
        """Bytes a second, read and written, of the device's own copy of ``byte_size``: what memory can do."""
        source, target = (Pointer(self._device.allocate(byte_size), 0, byte_size) for _ in range(2))
        self._device.fill(source, 1)

        def copy() -> None:
            self._device.copy(target, source)

        copy()
        return 2 * byte_size / median(self._timed(copy) for _ in range(_COPIES))

    def ready(self) -> None:
        """Prepare the device for timing: empty its cache where that is wanted, and keep it busy."""
        if self._cold:
            self._empty_cache()
        self._device.replay(self._spacer)

    def _timed(self, step: _Step) -> float:
        self.ready()
        start = self._device.record()
        step()
        return self._device.elapsed(start, self._device.record())

    def _empty_cache(self) -> None:
        """Write twice as much as the cache holds."""
        if self._flush is None:
            size = 2 * self._l2
            self._flush = Pointer(self._device.allocate(size), 0, size)
        self._device.fill(self._flush, 0)

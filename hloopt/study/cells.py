"""What a study has found: a cell for each module, strategy and device."""

from __future__ import annotations

from statistics import median
from typing import Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.runtime.timing import Timing
from hloopt.study.devices import DeviceUse

__all__ = [
    "Cell",
    "CellResults",
    "Checked",
    "Counts",
    "LongKernel",
    "Measured",
    "Predicted",
    "TimeParts",
]

CellResults: TypeAlias = Literal["equal", "within tolerance", "differ", "not verified"]


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether the results are still right.

    results   ``equal`` to the first they were compared with: every bit, but for the sign of zero and the bits
              of NaN
    device    where the optimised module was run
    against   what its results were compared with: interpreter, recorded results
    problem   what differs, or why nothing was compared
    ulp       how many values of the type lie at most between them and the first they were compared with
    share     the worst error as a part of what rounding allows, against the first they were compared with
    """

    results: CellResults
    device: str = ""
    against: tuple[str, ...] = ()
    problem: str = ""
    ulp: int = 0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What one run of the optimised module launches and moves.

    known  whether the module shows how often its loops run
    bytes  read and written by all launches
    bounded  whether it shows how often at most, which counts; loops without a bound count once
    """

    kernels: int
    launches: int
    known: bool
    bytes: int
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class TimeParts:
    """What predicted seconds are spent on; they add up to the whole.

    Memory and arithmetic overlap: the longer counts in full, the shorter by what is not hidden.
    ``latency`` is what remains: chains of dependent steps, and what else a model adds.
    """

    launch: float
    memory: float
    compute: float
    latency: float

    @property
    def seconds(self) -> float:
        """All of them."""
        return self.launch + self.memory + self.compute + self.latency


@dataclass(frozen=True, slots=True)
class LongKernel:
    """One of the kernels that take longest: seconds of all of its runs, and the first of the user's lines."""

    name: str
    runs: int
    seconds: float
    line: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of one run on a target by a cost model; ``calibrated`` as the target says.

    loops    kernels that are a whole loop, which have a model of their own
    longest  those that take most of the time
    """

    target: str
    model: str
    calibrated: bool
    parts: TimeParts
    loops: int = 0
    longest: tuple[LongKernel, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all launches that count."""
        return self.parts.seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of several runs; ``where`` is the machine or the GPU."""

    timing: Timing
    where: str

    @property
    def seconds(self) -> float:
        """The median."""
        return self.timing.median

    @property
    def deviation(self) -> float:
        """The median absolute deviation in seconds."""
        middle = self.timing.median
        return median(abs(one - middle) for one in self.timing.seconds)


@dataclass(frozen=True)
class Cell:
    """One module by one strategy on one device.

    way      how the device is used: to measure, verify or predict
    problem  why there is no figure; ``code`` is the exit code of such an error, 0 where the device is missing
    passes   seconds that the passes took
    same_as  an earlier strategy of this module and device that gives the same module; empty where none does
    key      equal for cells of a module and device that are of the same module after the passes; empty where
             that is not all that decides
    """

    module: str
    strategy: str
    device: str
    way: DeviceUse
    counts: Counts | None = None
    checked: Checked | None = None
    measured: Measured | None = None
    predicted: Predicted | None = None
    problem: str = ""
    code: int = 0
    passes: float = 0.0
    same_as: str = ""
    key: str = ""

    @property
    def seconds(self) -> float | None:
        """The time that ratios are made of: measured where it was, else predicted."""
        found = self.measured or self.predicted
        return None if found is None else found.seconds

    @property
    def missing(self) -> bool:
        """Whether the device is missing."""
        return bool(self.problem) and not self.code

    @property
    def wrong(self) -> bool:
        """Whether results differ."""
        return self.checked is not None and self.checked.results == "differ"

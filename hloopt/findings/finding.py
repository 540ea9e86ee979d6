"""What is found of a module: a record for each thing that costs, and the record of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hloopt.dataclass import dataclass

if TYPE_CHECKING:
    from hloopt.findings.measuring import MeasuredGain

__all__ = [
    "ContendedScatter",
    "Finding",
    "FindingRemedy",
    "Gain",
    "GainlessChange",
    "KernelShare",
    "LinkedCollectives",
    "LoopBuffer",
    "Measure",
    "ReducedDot",
    "RefusedArray",
    "RemedyWay",
    "Spent",
    "unit_of",
]

Measure: TypeAlias = Literal["time", "memory", "compile time", "accuracy"]
"""What a change makes less of: seconds of a run, bytes at the peak, elements that XLA evaluates while it
compiles, elements of the results that are wrong."""

RemedyWay: TypeAlias = Literal["model", "flag", "hloopt"]
"""Where a change is made: in the user's program, by a flag of XLA, by a pass or a lock file of hloopt."""


def unit_of(measure: Measure, counted: str) -> str:
    """What figures of a measure count; ``counted`` where that is neither time nor memory."""
    return {"time": "seconds", "memory": "bytes"}.get(measure, counted)


@dataclass(frozen=True, slots=True)
class FindingRemedy:
    """A change that helps, in the words of the one who makes it."""

    way: RemedyWay
    text: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"way": self.way, "text": self.text}


@dataclass(frozen=True, slots=True)
class Spent:
    """What something costs on the target while the entry runs once.

    seconds   of all its kernels, loop iterations included
    bytes     that these read and write
    launches  of these; ``exact`` says whether the module shows how often the loops around them run
    bound     of the longest of them: memory, compute, launch, contention; empty where there is no kernel
    share     of the module's whole time, 0 to 1
    measured  seconds that its kernels took in a real run, where one was given and has any of them
    mostly_beside  whether nearly all is of kernels that compute other instructions
    """

    seconds: float = 0.0
    bytes: int = 0
    launches: int = 0
    exact: bool = True
    bound: str = ""
    share: float = 0.0
    measured: float | None = None
    mostly_beside: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "seconds": self.seconds,
            "bytes": self.bytes,
            "launches": self.launches,
            "launches_known": self.exact,
            "bound": self.bound,
            "share": self.share,
            "measured_seconds": self.measured,
            "mostly_of_other_kernels": self.mostly_beside,
        }


@dataclass(frozen=True, slots=True)
class Gain:
    """What the change gave when it was made on a copy of the module, or on the part around it.

    measure  what became less, from ``before`` to ``after``: seconds, bytes or elements
    how      ``predicted`` by the cost model, ``counted`` in the module, or ``measured`` by runs on this machine
    seconds  the predicted times of a run before and after, whatever the measure
    peak     the bytes alive at once before and after
    verdict  of the judge on the results: ``equal``, ``within tolerance``; ``not verified`` with ``reason``
    part     the instructions of the part that was changed and priced by itself; 0: the whole module was
    unit     of compile time and accuracy: what is counted
    measured what runs of both took on this machine, where that was asked for
    """

    measure: Measure
    before: float
    after: float
    how: str
    seconds: tuple[float, float]
    peak: tuple[int, int]
    verdict: str
    reason: str = ""
    part: int = 0
    unit: str = "elements"
    measured: MeasuredGain | None = None

    @property
    def saved(self) -> float:
        """How much less, in the unit of the measure."""
        return self.before - self.after

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "measure": self.measure,
            "before": self.before,
            "after": self.after,
            "how": self.how,
            "seconds_before": self.seconds[0],
            "seconds_after": self.seconds[1],
            "peak_bytes_before": self.peak[0],
            "peak_bytes_after": self.peak[1],
            "verdict": self.verdict,
            "reason": self.reason,
            "part": self.part or None,
            "unit": unit_of(self.measure, self.unit),
            "measured": None if self.measured is None else self.measured.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that costs, why, what changes it, and what that change gave.

    kind         its row in the table of kinds; ``title`` says it in a few words
    instruction  the one that costs, in ``computation``, with its ``opcode`` and ``shape``
    others       instructions of the same cause, which the change takes along
    lines        of the user's program, the instruction's own first; ``op_name`` is its framework's name
    why          one or two sentences with the cause; ``blocking`` are the instructions that stand in the way
    """

    kind: str
    title: str
    instruction: str
    computation: str
    opcode: str
    shape: str
    others: tuple[str, ...]
    lines: tuple[str, ...]
    op_name: str
    cost: Spent
    why: str
    blocking: tuple[str, ...]
    remedies: tuple[FindingRemedy, ...]
    gain: Gain

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "kind": self.kind,
            "title": self.title,
            "instruction": self.instruction,
            "computation": self.computation,
            "opcode": self.opcode,
            "shape": self.shape,
            "others": list(self.others),
            "line": next(iter(self.lines), ""),
            "lines": list(self.lines),
            "op_name": self.op_name,
            "cost": self.cost.to_json(),
            "why": self.why,
            "blocking": list(self.blocking),
            "remedies": [one.to_json() for one in self.remedies],
            "gain": self.gain.to_json(),
        }


@dataclass(frozen=True, slots=True)
class GainlessChange:
    """A change that was tried and rejected.

    before, after  of what the kind is about: seconds, bytes or what is counted, in ``unit``
    remedy         the change in the user's terms, the first of its candidate
    reason         why it was rejected
    """

    kind: str
    title: str
    instruction: str
    line: str
    measure: Measure
    before: float
    after: float
    unit: str
    remedy: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "kind": self.kind,
            "instruction": self.instruction,
            "line": self.line,
            "measure": self.measure,
            "before": self.before,
            "after": self.after,
            "unit": unit_of(self.measure, self.unit),
            "remedy": self.remedy,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class KernelShare:
    """One of the kernels that take longest: ``seconds`` of all launches, and the part of the whole.

    ``measured`` are those of a real run, where one was given and has the kernel.
    """

    name: str
    lines: tuple[str, ...]
    bound: str
    launches: str
    seconds: float
    share: float
    measured: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "line": next(iter(self.lines), ""),
            "bound": self.bound,
            "launches": self.launches,
            "seconds": self.seconds,
            "share": self.share,
            "measured_seconds": self.measured,
        }


@dataclass(frozen=True, slots=True)
class LoopBuffer:
    """A large array that a loop carries and updates in place: whether each iteration copies it.

    element     of the loop's state, of ``shape`` and ``byte_size``
    iterations  of the loop; ``exact`` says whether the module shows how many
    writer      the instruction that updates it, with the user's line
    readers     what else reads its old value
    copies      of it in the body
    seconds     that one copy takes by the cost model
    """

    loop: str
    line: str
    iterations: int
    exact: bool
    element: int
    shape: str
    byte_size: int
    writer: str
    readers: tuple[str, ...]
    copies: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "loop": self.loop,
            "line": self.line,
            "iterations": self.iterations,
            "iterations_known": self.exact,
            "element": self.element,
            "shape": self.shape,
            "bytes": self.byte_size,
            "writer": self.writer,
            "readers": list(self.readers),
            "copies": self.copies,
            "seconds_per_copy": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class RefusedArray:
    """A large array that goes through memory between two kernels, and the refusal that keeps it there.

    writer, readers  the kernels; ``reader`` is the instruction that the refusal is about
    code, reason     of the decision, with the ``limit`` and the ``actual`` value where there are such
    fused, apart     microseconds by the cost model of one run; None where no kernel of both has a price
    changes          what lets the pair through: options of the pass, or a row of a lock file
    """

    name: str
    line: str
    byte_size: int
    writer: str
    readers: tuple[str, ...]
    reader: str
    pass_name: str
    code: str
    reason: str
    limit: int | None
    actual: int | None
    fused: float | None
    apart: float | None
    changes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "line": self.line,
            "bytes": self.byte_size,
            "written_by": self.writer,
            "read_by": list(self.readers),
            "reader": self.reader,
            "pass": self.pass_name,
            "code": self.code,
            "reason": self.reason,
            "limit": self.limit,
            "actual": self.actual,
            "fused_us": self.fused,
            "apart_us": self.apart,
            "changes": list(self.changes),
        }


@dataclass(frozen=True, slots=True)
class ReducedDot:
    """A dot that the compiler computes as multiply and reduce: by which rule, and what the dot would take.

    shape      of the result; ``summed`` is the element type of the sum, to which factors are converted
    reason     why the pass took it, with its limit
    others     how many dots besides it were taken, too
    seconds    of the whole module as it is planned, and with all these dots kept
    """

    name: str
    line: str
    shape: str
    summed: str
    reason: str
    others: int
    seconds: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "line": self.line,
            "shape": self.shape,
            "summed": self.summed,
            "reason": self.reason,
            "others": self.others,
            "seconds": self.seconds[0],
            "seconds_as_dot": self.seconds[1],
        }


@dataclass(frozen=True, slots=True)
class ContendedScatter:
    """A scatter whose time depends on how many of its indices are equal, which the module does not say.

    windows   there are, on ``places`` where one can begin; ``least`` meet on one of them at least
    seconds   where they are spread evenly, ``worst`` where all are equal
    swapped   where all are equal, by compare-and-swap, which some compilers make of ``native`` updates
    native    the update that is one atomic instruction; empty where there is none
    """

    name: str
    line: str
    windows: int
    places: int
    least: int
    seconds: float
    worst: float
    swapped: float
    native: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "line": self.line,
            "windows": self.windows,
            "places": self.places,
            "least_collisions": self.least,
            "most_collisions": self.windows,
            "seconds": self.seconds,
            "worst_seconds": self.worst,
            "compare_and_swap_seconds": self.swapped,
            "native": self.native,
        }


@dataclass(frozen=True, slots=True)
class LinkedCollectives:
    """Collectives of one kind over the same link, as the table of links has it: an estimate.

    over     ``8 devices along 'x' by 18 NVLinks``
    names    in the plan; ``line`` is that of the one that takes longest
    count    how often they are made in a run, ``exact`` where the module shows that
    bytes    of their results, in all
    seconds  of all of them, one after the other
    """

    opcode: str
    over: str
    names: tuple[str, ...]
    line: str
    count: int
    bytes: int
    seconds: float
    exact: bool

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "opcode": self.opcode,
            "over": self.over,
            "names": list(self.names),
            "line": self.line,
            "count": self.count,
            "count_known": self.exact,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }

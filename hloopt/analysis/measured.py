"""Times of a real run, joined to the instructions of a module.

A trace names the instructions of the module that ran.  Where this is the module, or one with the same names,
they are joined by name; kernels whose trace has only the names of functions by what XLA makes of an
instruction's name.  Where the trace holds the module that ran, a name counts only for the same op and shape;
what is left is joined through the pairing of the two modules, then a fusion by the last of its instructions
that both have, then by the place in the user's program that both carry in their metadata (``places.py``), then
where only one instruction has that op and shape.
Costs are linear in instructions and in what was measured.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from statistics import median, mode
from typing import Final, Literal, TypeAlias

from hloopt.analysis.pairing import pair_modules
from hloopt.analysis.places import Places, may_be_one, place_of
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.ir.normal import normal_shape
from hloopt.ops.traits import CONTROL_FLOW, FREE
from hloopt.profiles.spans import ProgramTimes, RunKey, SpanTimes, TraceProfile
from hloopt.proto import read_proto

__all__ = ["JoinedTimes", "MeasuredInstruction", "Way", "join", "joined_times"]

Way: TypeAlias = Literal["name", "kernel", "pairing", "metadata", ""]
"""By what a time was joined: an instruction's name, a kernel's, the pairing of modules, ``op_name``; or not."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_$]")


@dataclass(frozen=True, slots=True)
class MeasuredInstruction:
    """What was measured of one instruction, or of what belongs to none.

    names       what the trace calls it
    way         by what it was joined
    executions  in all runs: iterations of loops, and kernels of one instruction, each count
    seconds     of each run in which it was executed, without what ran inside it
    """

    instruction: Instruction | None
    names: tuple[str, ...]
    way: Way
    executions: int
    seconds: tuple[float, ...]

    @property
    def name(self) -> str:
        """The instruction's name, or what the trace has."""
        return self.names[0] if self.instruction is None else self.instruction.name

    @property
    def median(self) -> float:
        """Seconds in one of the runs in which it was executed, all iterations together."""
        return median(self.seconds)

    @property
    def total(self) -> float:
        """Seconds in all runs."""
        return sum(self.seconds)


@dataclass(frozen=True)
class JoinedTimes:
    """The times of one program; what took longest is first.

    module  the one whose instructions these are
    trace   the name of the trace
    held    whether the trace holds the module that ran
    runs    how many runs of it were measured, on each device
    """

    module: Module
    trace: str
    program: ProgramTimes
    held: bool
    runs: int
    rows: tuple[MeasuredInstruction, ...]

    @property
    def total(self) -> float:
        """Seconds of all runs."""
        return sum(row.total for row in self.rows)

    def share(self, rows: Iterable[MeasuredInstruction]) -> float:
        """The part of the measured time that rows have."""
        return sum(row.total for row in rows) / (self.total or 1.0)

    @property
    def run_seconds(self) -> float:
        """Seconds of one run."""
        return self.total / self.runs

    def seconds_of(self, instructions: Iterable[Instruction]) -> float | None:
        """What these took in one run, all that were measured together; None where none was."""
        found = [self._medians[one] for one in instructions if one in self._medians]
        return sum(found) if found else None

    @cached_property
    def _medians(self) -> dict[Instruction, float]:
        return {row.instruction: row.median for row in self.rows if row.instruction is not None}

    @property
    def joined(self) -> tuple[MeasuredInstruction, ...]:
        """The rows that belong to an instruction."""
        return tuple(row for row in self.rows if row.instruction is not None)

    @property
    def rest(self) -> tuple[MeasuredInstruction, ...]:
        """The rows that belong to none."""
        return tuple(row for row in self.rows if row.instruction is None)


def program_for(module: Module, profile: TraceProfile) -> ProgramTimes:
    """The program of a trace that is most likely the module's: of its name, and most of whose time it names."""
    named = [one for one in profile.programs if one.name == module.name] or profile.programs
    names = {entry.name for entry in module.instructions()}
    kernels = {_UNSAFE.sub("_", name) for name in names}

    def known(program: ProgramTimes) -> float:
        return sum(
            times.total
            for times in program.times
            if times.instruction in names or times.kernel in kernels
        )

    return max(named, key=lambda program: (known(program), program.total))


def join(
    module: Module, profile: TraceProfile, program: ProgramTimes, ran: Module | None = None
) -> JoinedTimes:
    """The times of a program by the instructions of a module; ``ran`` is the module that the trace holds."""
    finder = _Finder(module, ran)
    seconds: defaultdict[object, defaultdict[RunKey, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    counts: Counter[object] = Counter()
    names: defaultdict[object, dict[str, Way]] = defaultdict(dict)
    found: dict[object, Instruction | None] = {}
    for times in program.times:
        entry, way = finder.find(times)
        called = times.instruction or times.kernel
        key = entry or called
        found[key] = entry
        names[key].setdefault(called, way)
        counts[key] += times.executions
        for run, spent in times.seconds.items():
            seconds[key][run] += spent
    runs, has_runs = _runs(module, program, {key: counts[key] for key in found if found[key]})
    rows = [
        MeasuredInstruction(
            entry,
            tuple(names[key]),
            next(iter(names[key].values())),
            counts[key],
            _by_run(seconds[key], runs if not has_runs else 0),
        )
        for key, entry in found.items()
    ]
    rows.sort(key=lambda row: -row.total)
    return JoinedTimes(module, profile.name, program, ran is not None, runs, tuple(rows))


def joined_times(
    module: Module, profile: TraceProfile, program: ProgramTimes | None = None
) -> JoinedTimes:
    """The times of the program of a trace that is the module, or was made of it; ``program`` where it is known.

    Raises ``ParseError`` for a module in the trace that cannot be read.
    """
    chosen = program or program_for(module, profile)
    label = f"{profile.name}:{chosen.label}"
    ran = read_proto(chosen.module, label) if chosen.module else None
    return join(module, profile, chosen, ran)


def _by_run(seconds: Mapping[RunKey, float], runs: int) -> tuple[float, ...]:
    """Seconds of each run; where a trace does not say which is which, equal parts of the whole."""
    if not runs:
        return tuple(seconds.values())
    return (sum(seconds.values()) / runs,) * runs


def _runs(module: Module, program: ProgramTimes, joined: Mapping[object, int]) -> tuple[int, bool]:
    """How many runs were measured, and whether the trace says so.

    Otherwise it is how often most instructions of the entry were executed.
    """
    keys = {run for times in program.times for run in times.seconds}
    if None not in keys:
        return len(keys), True
    entry = [
        count
        for one, count in joined.items()
        if isinstance(one, Instruction) and one.computation is module.entry
    ]
    return mode(entry or [times.executions for times in program.times]), False


class _Finder:
    """Finds the instruction of a module that a trace means."""

    def __init__(self, module: Module, ran: Module | None) -> None:
        self._module = module
        self._named = {entry.name: entry for entry in module.instructions()}
        self._functions: dict[str, Instruction | None] = {}
        for name, entry in self._named.items():
            function = _UNSAFE.sub("_", name)
            self._functions[function] = None if function in self._functions else entry
        self._ran: Mapping[str, Instruction] = {}
        self._pairs: Mapping[Instruction, Instruction] = {}
        self._places: Places | None = None
        self._alike: defaultdict[object, list[Instruction]] = defaultdict(list)
        self._there = ran
        if ran is not None:
            self._ran = {entry.name: entry for entry in ran.instructions()}
            if any(not self._is_same(name) for name in self._ran):
                self._pairs = pair_modules(module, ran).before
                self._places = Places(module)
                for entry in module.instructions():
                    self._alike[entry.opcode, normal_shape(entry.shape)].append(entry)

    def _is_same(self, name: str) -> bool:
        """Whether the module has what ran under this name."""
        here, there = self._named.get(name), self._ran.get(name)
        if here is None or there is None:
            return here is not None and not self._ran
        same_shape = normal_shape(here.shape) == normal_shape(there.shape)
        return here.opcode == there.opcode and same_shape

    def find(self, times: SpanTimes) -> tuple[Instruction | None, Way]:
        """The instruction, and by what it was found."""
        name = times.instruction
        if self._is_same(name):
            return self._named[name], "name"
        function = self._functions.get(times.kernel or name)
        if function is not None and not self._ran:
            return function, "kernel"
        there = self._ran.get(name)
        if there is None or self._there is None or self._places is None:
            return None, ""
        here = self._pairs.get(there)
        if here is not None and here.opcode == there.opcode:
            return here, "pairing"
        inside = self._named_inside(there)
        if inside is not None:
            return inside, "name"
        made_of = self._places.take(self._there, there)
        if made_of is not None:
            return made_of, "metadata"
        op = there.attributes["calls"].root.opcode if there.opcode == "fusion" else there.opcode
        alike = self._alike.get((op, normal_shape(there.shape)), ())
        return (alike[0], "pairing") if len(alike) == 1 else (None, "")

    def _named_inside(self, there: Instruction) -> Instruction | None:
        """What a fusion computes last of what the module has under the same name; the loop of this name."""
        body = reversed(there.calls) if there.opcode == "fusion" else (there,)
        return next((self._named[one.name] for one in body if self._does_the_same(one)), None)

    def _does_the_same(self, there: Instruction) -> bool:
        """Whether the module has an instruction of the same name that does work, and the same."""
        here = self._named.get(there.name)
        if here is None or here.opcode != there.opcode or here.opcode in FREE:
            return False
        assert self._there is not None, "there is in it"
        if not may_be_one(place_of(self._module, here), place_of(self._there, there)):
            return False
        # Passes take elements from the state of a loop: its shape says nothing.
        same_shape = normal_shape(here.shape) == normal_shape(there.shape)
        return same_shape or here.opcode in CONTROL_FLOW

"""Reading machine code: what a straight run through a function takes in cycles and instructions.

Since Volta every instruction carries what the assembler knows: for how many cycles its warp waits behind it,
which of six barriers it waits for, and which it sets where its own latency varies (memory, special functions,
conversions).  A warp alone therefore takes the sum of the waits and of what the barriers add, and only the
latencies behind barriers have to be known.  (Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, section 2.1: 4 bits of stall, 1 of yield, 3 of write barrier, 3 of read barrier,
6 of barriers waited for.)
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["Line", "LoopRun", "Run", "disassemble", "loop_run", "ordinary_path", "run", "unit_of"]

_FUNCTION = re.compile(r"^\.text\.(\S+):\s*$")
_LABEL = re.compile(r"^(\.L_\w+|\$\S+):\s*$")
_CODE = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*;).*/\* 0x(?P<low>[0-9a-f]{16}) \*/"
)
_HIGH = re.compile(r"^\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/")
_GUARD = re.compile(r"^@(!?U?P[0-9T]+)\s+")
_REGISTER = re.compile(r"\b(UR|UP|R|P)(\d+)\b(\.64)?")
_TARGET = re.compile(r"`\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction: its guard (empty without), opcode with modifiers, operands, labels before it, and the
    cycles it waits behind itself, the barrier it sets when its result is there (7: none), and the set of those
    it waits for."""

    guard: str
    opcode: str
    operands: tuple[str, ...]
    labels: tuple[str, ...]
    stall: int
    sets: int
    waits: frozenset[int]

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", maxsplit=1)[0]

    @property
    def target(self) -> str:
        """The label it branches to, empty where to none."""
        found = _TARGET.search(" ".join(self.operands))
        return found[1] if found and self.name in ("BRA", "CALL") else ""


def disassemble(cubin: bytes, tool: str) -> Mapping[str, Sequence[Line]]:
    """The kernels of a cubin, by name; ``tool`` is nvdisasm."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(cubin)
        command = [tool, "--print-code", "--print-instruction-encoding", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _read(text)


def _read(text: str) -> Mapping[str, Sequence[Line]]:
    found: dict[str, list[Line]] = {}
    current: list[Line] = []
    labels: list[str] = []
    low: re.Match[str] | None = None
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            current = found.setdefault(match[1], [])
            labels = []
        elif match := _LABEL.match(line):
            labels.append(match[1])
        elif match := _CODE.search(line):
            low = match
        elif low is not None and (match := _HIGH.match(line)):
            current.append(_line(low["text"], int(match["high"], 16), tuple(labels)))
            labels, low = [], None
    return found


def _line(text: str, high: int, labels: tuple[str, ...]) -> Line:
    text = text.strip().rstrip(";").strip()
    guard = ""
    if match := _GUARD.match(text):
        guard, text = match[1], text[match.end() :]
    opcode, _, rest = text.partition(" ")
    operands = tuple(part.strip() for part in rest.split(",")) if rest.strip() else ()
    waits = frozenset(number for number in range(6) if high >> (52 + number) & 1)
    return Line(guard, opcode, operands, labels, high >> 41 & 15, high >> 46 & 7, waits)


def ordinary_path(code: Sequence[Line], *, double: bool = True) -> list[Line]:
    """The longest way to the end without a call, a loop or local memory: what ordinary arguments take.

    Slow ways (division of subnormal numbers, sines of huge angles) call functions, loop, index local memory, or,
    where nothing else is ``double``, compute with doubles.  Where no other way is there, functions are entered,
    and loops run through once.
    """
    for calls, loops in ((False, False), (True, False), (True, True)):
        path = _Ways(code, calls, loops, double or calls).longest(0)
        if path:
            return path
    raise ValueError("no way leads through the function")


class _Ways:
    def __init__(self, code: Sequence[Line], calls: bool, loops: bool, double: bool) -> None:
        self.code, self.calls = code, calls
        self.places = {label: number for number, line in enumerate(code) for label in line.labels}
        self.shut: set[int] = set()
        for number, line in enumerate(code):
            start = self.places.get(line.target, number)
            # The last instruction of a kernel branches to itself.
            if line.name == "BRA" and start < number and not loops:
                self.shut |= set(range(start, number + 1))
            if line.name in ("STL", "LDL") and not loops:
                self.shut.add(number)
            if unit_of(line) == "f64" and not double:
                self.shut.add(number)

    def longest(self, first: int) -> list[Line]:
        """From a place to the function's end; empty where no way leads there."""
        code = self.code
        best: list[list[Line]] = [[] for _ in range(len(code) + 1)]
        for number in reversed(range(first, len(code))):
            line = code[number]
            if number in self.shut:
                continue
            if line.name in ("EXIT", "RET") and not line.guard:
                best[number] = [line]
                continue
            ways = []
            target = self.places.get(line.target, -1)
            if line.name == "BRA" and target > number and best[target]:
                ways.append(best[target])
            predicated = line.guard or any(
                part.lstrip("!").startswith("P") for part in line.operands
            )
            if (line.name != "BRA" or predicated) and best[number + 1]:
                ways.append(best[number + 1])
            if line.name == "CALL":
                inside = self.longest(target) if self.calls and target > number else []
                ways = [[*inside, *way] for way in ways if inside]
            if ways:
                best[number] = [line, *max(ways, key=len)]
        return best[first]


_UNITS: Mapping[str, str] = {
    **dict.fromkeys(["FADD", "FMUL", "FFMA", "FADD32I", "FMUL32I", "FFMA32I", "FSWZADD"], "fma"),
    **dict.fromkeys(["IMAD", "IMUL", "HADD2", "HMUL2", "HFMA2", "HADD2_32I"], "imad"),
    **dict.fromkeys(["DADD", "DMUL", "DFMA", "DSETP", "DMNMX"], "f64"),
    **dict.fromkeys(
        ["MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "FCHK", "I2I"], "xu"
    ),
    **dict.fromkeys(
        [
            "LDG",
            "STG",
            "LDS",
            "STS",
            "LDL",
            "STL",
            "LDC",
            "LD",
            "ST",
            "SHFL",
            "ATOMS",
            "ATOMG",
            "RED",
        ],
        "memory",
    ),
    **dict.fromkeys(
        [
            "BRA",
            "BSSY",
            "BSYNC",
            "NOP",
            "EXIT",
            "WARPSYNC",
            "CALL",
            "RET",
            "BAR",
            "S2R",
            "CS2R",
            "R2UR",
            "BMOV",
            "YIELD",
            "DEPBAR",
        ],
        "control",
    ),
}


def unit_of(line: Line) -> str:
    """What executes an instruction: fma, imad, alu, f64, xu (special functions), memory, control.

    Instructions of uniform registers are control: they take a turn of the scheduler and no lanes.
    """
    if line.name in _UNITS:
        return _UNITS[line.name]
    return "control" if line.name.startswith("U") and line.name != "UMOV" else "alu"


@dataclass(frozen=True, slots=True)
class Run:
    """Cycles from the arrival of the operands until the result is there, and the instructions between."""

    cycles: int
    units: Mapping[str, int]


def run(path: Sequence[Line], latencies: Mapping[str, int]) -> Run:
    """A warp alone on a path that loads its operands (LDG) and stores one result (STG).

    ``latencies`` of what sets barriers, by unit.  Instructions that do not depend on the operands (addresses,
    constants) are not counted, but for the cycles they keep others waiting.
    """
    tainted: set[str] = set()
    inputs: set[int] = set()
    ready: dict[int, int] = {}
    clock, started = 0, False
    if not any(line.name == "STG" for line in path):
        # The operand is the result: the assembler has left nothing.
        return Run(0, {})
    units: Counter[str] = Counter()
    for line in path:
        if line.name == "LDG" and not _reads(line) & tainted:
            inputs.add(line.sets)
            tainted |= _writes(line)
            continue
        if not started:
            started = bool(line.waits & inputs)
            if not started:
                continue
            clock = 0
        clock = max([clock, *(ready.get(number, 0) for number in line.waits)])
        if line.name == "STG":
            return Run(clock, dict(units))
        depends = bool(_reads(line) & tainted)
        if depends:
            units[unit_of(line)] += 1
            tainted |= _writes(line)
        elif not line.guard:
            tainted -= _writes(line)
        if line.sets != 7:
            ready[line.sets] = clock + latencies[unit_of(line)]
        clock += max(1, line.stall)
    raise ValueError("nothing is stored")


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One trip of a function's largest loop, a warp alone: cycles, instructions by unit, trips written."""

    cycles: float
    units: Mapping[str, float]


def loop_run(code: Sequence[Line], latencies: Mapping[str, int], turns: int = 1) -> LoopRun | None:
    """The trip as often as it is written behind itself; None where nothing loops.

    With ``turns`` the largest loop is one of groups of trips, and those right in it run so often: a part of a
    group for each.
    """
    places = {label: number for number, line in enumerate(code) for label in line.labels}
    loops = [
        (number - places.get(line.target, number), number)
        for number, line in enumerate(code)
        if line.name == "BRA"
    ]
    length, last = max(loops, default=(0, 0))
    if length <= 0:
        return None
    first = last - length
    path = _group(code, loops, first, last, turns) if turns > 1 else _pass(code, first, last)
    clock, ready, marks = 0, dict[int, int](), list[int]()
    for _ in range(_ITERATIONS):
        for line in path:
            clock = max([clock, *(ready.get(number, 0) for number in line.waits)])
            if line.sets != 7:
                kind = "shuffle" if line.name == "SHFL" else unit_of(line)
                ready[line.sets] = clock + latencies[kind]
            clock += max(1, line.stall)
        marks.append(clock)
    counts = {unit: count / turns for unit, count in Counter(map(unit_of, path)).items()}
    return LoopRun((marks[-1] - marks[0]) / (_ITERATIONS - 1) / turns, counts)


def _group(
    code: Sequence[Line],
    loops: Sequence[tuple[int, int]],
    first: int,
    last: int,
    turns: int,
) -> list[Line]:
    """The path through a loop in which each loop of some length is run ``turns`` times."""
    path: list[Line] = []
    at = first
    inner = sorted((end - size, end) for size, end in loops if size >= _OWN_LOOP)
    for start, end in inner:
        if start > at and end < last:
            path += [*_pass(code, at, start)[:-1], *_pass(code, start, end) * turns]
            at = end + 1
    return [*path, *code[at : last + 1]]


def _pass(code: Sequence[Line], first: int, last: int) -> list[Line]:
    """The ordinary path from an instruction to another one: what leaves these leaves the list."""
    body = list(code[first : last + 1])
    body[-1] = replace(body[-1], opcode="EXIT", guard="", operands=())
    return ordinary_path(body, double=False)


_ITERATIONS = 12
_OWN_LOOP = 40  # instructions: those of mathematical functions, for rare arguments, are shorter


def _registers(text: str, *, wide: bool) -> set[str]:
    found = set()
    for kind, number, pair in _REGISTER.findall(text):
        found.add(kind + number)
        if wide or pair:
            found.add(f"{kind}{int(number) + 1}")
    return found


def _results(line: Line) -> int:
    """How many of the operands, from the first on, are results."""
    count = 0
    for operand in line.operands:
        if count and not re.fullmatch(r"U?P[0-9T]", operand):
            break
        count += 1
        if count == 1 and not re.fullmatch(r"U?P[0-9T]|U?R[0-9Z]+(\.\w+)?", operand):
            return 0
    # The predicates at the end of a select, a minimum and the like are operands: a register was between.
    return min(count, 3)


def _is_wide(line: Line) -> bool:
    opcode = line.opcode
    return (
        ".WIDE" in opcode
        or line.name in ("DADD", "DMUL", "DFMA")
        or (".64" in opcode and line.name not in ("SHF", "USHF"))
        or opcode.startswith(("F2F.F64", "I2F.F64", "F2I.S64", "F2I.U64", "FRND.F64"))
    )


def _writes(line: Line) -> set[str]:
    if line.name in ("STG", "BRA", "BSSY", "BSYNC", "NOP", "STS", "STL"):
        return set()
    count = _results(line)
    found: set[str] = set()
    for number, operand in enumerate(line.operands[:count]):
        found |= _registers(operand, wide=number == 0 and _is_wide(line))
    return found


def _reads(line: Line) -> set[str]:
    found = _registers(line.guard, wide=False)
    count = _results(line) if line.name not in ("STG", "STS", "STL") else 0
    wide = line.name.startswith("D") or "F64" in line.opcode
    for operand in line.operands[count:]:
        found |= _registers(operand, wide=wide)
    return found

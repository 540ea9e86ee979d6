"""What ops take as machine code: the wait from operands to result, and instructions by unit.

``instructions.toml`` has the counts for elementwise ops, ``latencies.toml`` what memory, barriers and lanes of
a generation of devices take; each says where its numbers are from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.targets import Target
from hloopt.types import ArrayShape

__all__ = [
    "FOLDS_RUNNING",
    "NOTHING",
    "UNITS",
    "Latencies",
    "Work",
    "issued_ns",
    "latencies_of",
    "sorted_ns",
    "work_of",
]

UNITS: Final = ("fma", "imad", "alu", "either", "f64", "xu", "memory", "control")
"""What executes instructions: f32 multiply-adds; integer multiplies and packed halves; integer and logic; one
of these two, as the assembler likes (it writes additions as multiply-adds where lanes are free); doubles;
special functions and conversions; loads and stores; none of these (branches)."""

_FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Work:
    """Cycles from operands to result, and the instructions of a thread by ``UNITS``."""

    chain: float
    units: tuple[float, ...]

    def __mul__(self, times: float) -> Work:
        """The same ``times`` times, one beside the other: the wait stays."""
        return Work(self.chain, tuple([unit * times for unit in self.units]))

    def after(self, other: Work, times: float = 1) -> Work:
        """``other``, ``times`` times, before this."""
        units = [mine + times * its for mine, its in zip(self.units, other.units, strict=True)]
        return Work(self.chain + times * other.chain, tuple(units))


NOTHING: Final = Work(0.0, (0.0,) * len(UNITS))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one generation: cycles until something is there, and lanes of a core; see ``latencies.toml``.

    works  by opcode and element type
    """

    name: str
    l1: float
    l2: float
    memory: float
    shared: float
    shuffle: float
    barrier: float
    barrier_warp: float
    branch: float
    lanes: tuple[float, ...]
    works: Mapping[tuple[str, str], Work]

    def synchronize(self, threads: int) -> float:
        """Cycles of a barrier of so many threads."""
        return self.barrier + self.barrier_warp * (max(1, -(-threads // 32)) - 1)

    def issue(self, work: Work, warps: float) -> float:
        """Cycles that so many warps of one core keep its busiest scheduler busy with a work each.

        Each of four schedulers has a quarter of the core's warps and lanes: it starts an instruction a cycle,
        and a unit's lanes take the 32 numbers of a warp one after the other where they are fewer.  (CUDA C++
        Programming Guide, "Compute Capabilities")
        """
        busiest = sum(work.units)
        for count, lanes in zip(work.units, self.lanes, strict=True):
            busiest = max(busiest, count * 32 * _SCHEDULERS / lanes)
        integer = sum(work.units[unit] for unit in _INTEGER)
        busiest = max(busiest, integer * 32 * _SCHEDULERS / self.lanes[_EITHER])
        return busiest * ceil(warps / _SCHEDULERS)


_EITHER: Final = UNITS.index("either")
_INTEGER: Final = tuple(map(UNITS.index, ("imad", "alu", "either")))
_SUMS: Final = frozenset(
    (opcode, key) for opcode in ("add", "subtract") for key in ("s32", "u32", "s64", "u64")
)
_SCHEDULERS: Final = 4
_WARP: Final = 32
FOLDS_RUNNING: Final = 4
"""How often a running reduction folds each element: in its thread, warp and block, and what precedes it."""


def latencies_of(target: Target) -> Latencies:
    """Those of the newest generation that is not newer than the device; of the oldest for older ones.

    Raises ``ValueError`` for a device that is not NVIDIA's.
    """
    if target.kind != "cuda":
        raise ValueError(
            f"{target.name} is not a CUDA device: no latencies of its instructions are known"
        )
    tables = _tables("latencies.toml")
    mine = target.capability
    names = sorted(tables, key=_capability)
    name = next((name for name in reversed(names) if _capability(name) <= mine), names[0])
    return _latencies(name)


def _capability(name: str) -> tuple[int, int]:
    number = int(name.removeprefix("sm_"))
    return number // 10, number % 10


@cache
def _latencies(name: str) -> Latencies:
    row = dict(_tables("latencies.toml")[name])
    table = _tables("instructions.toml")[row.pop("instructions")]
    lanes = {unit: row.pop(unit) for unit in ("fma", "imad", "alu", "f64", "xu")}
    lanes["memory"] = row.pop("load")
    lanes["either"] = lanes["imad"] + lanes["alu"]
    # It takes a turn of a scheduler and no lanes.
    lanes["control"] = 32 * _SCHEDULERS
    works = {
        (opcode, key): _work(found, either=(opcode, key) in _SUMS)
        for opcode, rows in table.items()
        for key, found in rows.items()
    }
    return Latencies(
        name=name,
        lanes=tuple([float(lanes[unit]) for unit in UNITS]),
        works=MappingProxyType(works),
        **row,
    )


def _work(row: Mapping[str, int], *, either: bool) -> Work:
    counts = dict(row)
    if either:
        counts["either"] = counts.pop("alu", 0)
    return Work(float(counts["chain"]), tuple([float(counts.get(unit, 0)) for unit in UNITS]))


@cache
def _tables(name: str) -> Mapping[str, Any]:
    return tomllib.loads((_FOLDER / name).read_text())


_FREE: Final = frozenset({"copy", "bitcast-convert"})

# What is computed in a wider type, and how many conversions that takes.
_WIDER: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s1", "s2", "s4", "s8", "s16"), "s32"),
    **dict.fromkeys(("u1", "u2", "u4", "u8", "u16"), "u32"),
}


def work_of(instruction: Instruction, latencies: Latencies) -> Work:
    """Of one element of an elementwise op.

    Types without a row are computed in a wider one: narrow integers wrap (an instruction more),
    narrow floats are converted before and after.  Raises ``KeyError`` for an op without a row.
    """
    opcode = instruction.opcode
    if opcode in _FREE:
        return NOTHING
    shape = instruction.operands[0].array
    source, result = shape.dtype.name, instruction.array.dtype.name
    works = latencies.works
    if opcode == "stochastic-convert":
        return works["reduce-precision", "f32"].after(works["convert", "f32-f16"])
    if opcode == "select":
        source = result
    if opcode.startswith("shift") and _amount(instruction) is not None:
        if any(map(_is_rotation, instruction.users)):
            return NOTHING
        # No amount to compare with the width.
        return works["and", "u32"] * max(1, shape.dtype.bits // 32)
    if opcode == "convert":
        direct = works.get((opcode, f"{source}-{result}"))
        return _converted(source, result, works) if direct is None else direct
    found = works.get((opcode, source))
    if found is not None:
        return found
    if source in _WIDER:
        return works[opcode, _WIDER[source]].after(works["and", "s32"])
    if opcode in ("select", "compare", "is-finite"):
        return works[opcode, "f32"]
    if instruction.operands[0].array.dtype.is_float:
        around = works["convert", "f16-f32"].after(works["convert", "f32-f16"])
        return works[opcode, "f32"].after(around)
    return works[opcode, "f32"]


def _converted(source: str, result: str, works: Mapping[tuple[str, str], Work]) -> Work:
    """By way of wider types that have rows."""
    first, last = _nearest(source), _nearest(result)
    if first == last:
        return works["and", "s32"] if first in ("s32", "u32") else works["convert", "f32-f16"]
    return works["convert", f"{first}-{last}"]


def _nearest(name: str) -> str:
    if name in _WIDER:
        return _WIDER[name]
    if name in ("c64", "c128"):
        return "f32" if name == "c64" else "f64"
    return "f16" if name.startswith(("f8", "f4", "f6")) else name


def issued_ns(ops: Iterable[tuple[Instruction, float]], target: Target) -> float | None:
    """Nanoseconds that all cores are busy with ops, each so many times, with enough threads for all of them.

    XLA's models count the cycles of one op by itself, from operands to result.  Where thousands of threads wait
    for each other's results in turn, what counts is how many instructions there are, and the units they need.

    None on a device that is not NVIDIA's, and where an op is none whose instructions are known.
    """
    if target.kind != "cuda" or not target.has_threads:
        return None
    latencies = latencies_of(target)
    total = NOTHING
    for op, times in ops:
        work = _whole_work(op, latencies)
        if work is None:
            return None
        total = total.after(work, times)
    warps = 1 / (_WARP * target.cores * _SCHEDULERS)
    return latencies.issue(total * warps, _SCHEDULERS) / target.clock_ghz


def sorted_ns(topk: Instruction, target: Target) -> float | None:
    """Nanoseconds of a ``topk`` as a sort of values with their places, by a network in shared memory.

    None on a device that is not NVIDIA's.
    """
    if target.kind != "cuda" or not target.has_threads:
        return None
    latencies = latencies_of(target)
    source = topk.operands[0].array
    steps = (source.dims[-1] - 1).bit_length()
    pairs = source.elements // 2 * steps * (steps + 1) // 2
    works = latencies.works
    swap = works["compare", "u64"].after(works["select", "u64"], 2).after(_accesses(8))
    warps = pairs / (_WARP * target.cores * _SCHEDULERS)
    return latencies.issue(swap * warps, _SCHEDULERS) / target.clock_ghz


def _picking(topk: Instruction, latencies: Latencies) -> Work:
    """Of the threads of all rows: each sorts its keys, then all find the largest of the first ones."""
    source = topk.operands[0].array
    count: int = topk.attributes["k"]
    minor = source.dims[-1]
    threads = -(-minor // (_KEYS * _WARP)) * _WARP
    slots = -(-minor // threads)
    works = latencies.works
    steps = (slots - 1).bit_length()
    swaps = (steps * steps - steps + 4 << steps) // 4 - 1  # of a network of Batcher's
    exchanged = works["maximum", "u64"].after(_accesses(2)) * (threads - 1).bit_length()
    moved = works["select", "u64"] * min(slots, count)
    own = (works["compare", "u64"].after(works["select", "u64"], 2)) * swaps
    return own.after(exchanged.after(moved), count) * (source.elements // minor * threads)


_KEYS: Final = 16
"""Elements of a row that a thread has, as in the tile of the kernel ``whole-row``."""


def _accesses(count: int) -> Work:
    """Of shared memory, or of a warp's registers."""
    return Work(0.0, tuple([float(count) if unit == "memory" else 0.0 for unit in UNITS]))


def _whole_work(op: Instruction, latencies: Latencies) -> Work | None:
    """Of all elements of an op; nothing for what only says which element is read."""
    try:
        if op.opcode == "topk":
            return _picking(op, latencies)
        if op.opcode in ("reduce", "reduce-window"):
            folded = op.operands[0].array.elements * (FOLDS_RUNNING if op.opcode != "reduce" else 1)
            each = NOTHING
            for inner in op.attributes["to_apply"]:
                if inner.op.is_elementwise:
                    each = each.after(work_of(inner, latencies))
            return each * folded
        if not (op.operands and op.op.is_elementwise and isinstance(op.shape, ArrayShape)):
            return NOTHING
        return work_of(op, latencies) * op.shape.elements
    except KeyError:
        return None


def _amount(shift: Instruction) -> int | None:
    """By how much is shifted, where that is a constant."""
    amount = shift.operands[1]
    while amount.opcode in REARRANGING:
        amount = amount.operands[0]
    values = amount.literal.splat if amount.literal is not None else None
    return None if values is None else int(values)


def _is_rotation(instruction: Instruction) -> bool:
    """Bits that go out on one side come in on the other: one instruction (a funnel shift), the shifts none."""
    if instruction.opcode not in ("or", "xor", "add") or len(instruction.operands) != 2:
        return False
    left, right = sorted(instruction.operands, key=lambda operand: operand.opcode)
    if (left.opcode, right.opcode) != ("shift-left", "shift-right-logical"):
        return False
    if left.operands[0] is not right.operands[0] or len({*left.users, *right.users}) != 1:
        return False
    amounts = _amount(left), _amount(right)
    return None not in amounts and sum(amounts) == left.array.dtype.bits  # type: ignore[arg-type]

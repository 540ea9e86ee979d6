"""How many neighbouring elements a thread computes, of a loop kernel and of a concatenate."""

from __future__ import annotations

from math import gcd
from typing import Final

from hloopt.analysis.emitters.launch import LaunchDimensions, loop_launch
from hloopt.analysis.region import Region
from hloopt.analysis.transpose import normal_form
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REDUCING
from hloopt.targets import Target

__all__ = [
    "ConcatenateTiling",
    "Unroll",
    "concatenate_tiling",
    "drops_when_unrolled",
    "loop_elements",
    "max_unroll",
    "unroll_factor",
]


_BLACKWELL = (10, 0)
_DROPPING: Final = REDUCING | {"concatenate", "dot", "sort"}
"""Ops that may keep a thread from computing several elements."""


# XLA's thresholds.
_MAX_UNROLL: Final = 4
"""Elements of a thread, at most."""
_WINDOW: Final = 8
"""A reduce-window over more elements than this is not unrolled."""
_CONCATENATE_OPERANDS: Final = 10
"""Nor is a concatenate of more operands."""
_WIDE_MAX_UNROLL: Final = 32
"""At most so many on devices from Blackwell on, where results are narrow."""
_WIDE_MIN_UNROLL: Final = 8
_WIDE_PAD_UNROLL: Final = 8
"""At most so many where a pad is in the kernel."""
_VECTOR_BITS: Final = 256
"""The widest memory access of such a device (from CUDA 12.9 on)."""
_OUTPUT_BITS: Final = 8
"""A thread writes at least so many bits at once, so that none shares a byte."""


@dataclass(frozen=True, slots=True)
class Unroll:
    """Elements a thread computes, and why not more where it is fewer than the most there may be."""

    factor: int
    reason: str = ""


def loop_elements(region: Region) -> int:
    """The elements a loop kernel iterates over: those of the first result."""
    return region.results[0].shape.elements if region.results else 0


def unroll_factor(
    region: Region, target: Target, elements: int | None = None, *, kind: str = "loop"
) -> Unroll:
    """The unroll factor over ``elements`` (default: those of the first result), a power of two.

    It need not divide ``elements`` where results are narrower than a byte: kernels check bounds.  ``kind`` is
    the emitter's; wide factors are for ``loop``, ``transpose`` and ``concatenate``.
    """
    count = loop_elements(region) if elements is None else elements
    factor, reason = _factor(region, target, count, kind)
    widths = {result.shape.dtype.bits for result in region.results}
    narrow = min(widths - {0}, default=8)
    least = _power_of_two(-(-_OUTPUT_BITS // narrow))
    if factor < least:
        return Unroll(least, f"elements of {narrow} bits are written a byte at a time")
    return Unroll(factor, reason)


def _factor(region: Region, target: Target, count: int, kind: str) -> tuple[int, str]:
    threads = target.threads_per_core * target.cores
    if count < threads:
        return 1, f"{count} elements are fewer than the {threads} threads of the device"
    drop = drops_when_unrolled(region)
    if drop:
        return 1, drop
    most = max_unroll(region, target, kind)
    factor = gcd(count, most)
    return factor, "" if factor == most else f"{most} does not divide {count} elements"


def drops_when_unrolled(region: Region) -> str:
    """Why a thread should compute one element only: what makes unrolled code slower; empty where nothing."""
    if region.opcodes.isdisjoint(_DROPPING):
        return ""
    for instruction in region.body:
        reason = _drop(instruction)
        if reason:
            return f"{instruction.name} is {reason}"
    return ""


def _drop(instruction: Instruction) -> str:
    opcode = instruction.opcode
    if opcode in ("sort", "dot"):
        return f"a {opcode}"
    if opcode == "reduce-window":
        volume = instruction.window.size
        if volume > _WINDOW:
            return f"a reduce-window over {volume} elements, more than {_WINDOW}"
    elif opcode == "concatenate":
        count = len(instruction.operands)
        if count > _CONCATENATE_OPERANDS:
            return f"a concatenate of {count} operands, more than {_CONCATENATE_OPERANDS}"
    elif opcode == "reduce" and len(instruction.operands) > 2:
        return f"a reduce of {len(instruction.operands) // 2} arrays"
    return ""


def max_unroll(region: Region, target: Target, kind: str = "loop") -> int:
    """The largest unroll factor: ``max_unroll``, or more for narrow results from Blackwell on."""
    if not _is_wide(region, target, kind):
        return _MAX_UNROLL
    widths = [shape.dtype.bits for shape in region.operands]
    widths += [result.shape.dtype.bits for result in region.results]
    factor = min(_WIDE_MAX_UNROLL, _VECTOR_BITS // max(8, *widths))
    factor = 1 << (max(1, factor).bit_length() - 1)
    if "pad" in region.opcodes and any(entry.opcode == "pad" for entry in region.body):
        factor = min(factor, _WIDE_PAD_UNROLL)
    for instruction in region.body if "transpose" in region.opcodes else ():
        minor = _moved_minor(instruction)
        while minor and factor > _MAX_UNROLL and minor < factor:
            factor //= 2
    return max(factor, _WIDE_MIN_UNROLL)


def _is_wide(region: Region, target: Target, kind: str) -> bool:
    if target.kind != "cuda" or target.capability < _BLACKWELL:
        return False
    if kind not in ("loop", "transpose", "concatenate") or len(region.results) != 1:
        return False
    if "reduce" in region.opcodes and any(entry.opcode == "reduce" for entry in region.body):
        return False
    return region.results[0].shape.dtype.bits < _VECTOR_BITS // 4


def _moved_minor(instruction: Instruction) -> int:
    """The size of a transpose's last dimension in normal form; 0 for anything else."""
    if instruction.opcode != "transpose":
        return 0
    dims, _ = normal_form(instruction.array.dims, instruction.dimensions)
    return dims[-1] if dims else 0


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


@dataclass(frozen=True, slots=True)
class ConcatenateTiling:
    """How threads share a concatenate.

    dimension  the one along which operands are put together
    offsets    where each operand begins along it
    elements   of the largest operand: the grid is over it, each operand guards its own bounds
    unroll     neighbouring elements a thread has; divides every operand's size along the dimension
    launch     grid and block
    """

    dimension: int
    offsets: tuple[int, ...]
    elements: int
    unroll: int
    launch: LaunchDimensions


def concatenate_tiling(
    hero: Instruction,
    region: Region,
    target: Target,
) -> ConcatenateTiling:
    """The tiling of the kernel of a concatenate."""
    (dimension,) = hero.dimensions
    sizes = [operand.array.dims[dimension] for operand in hero.operands]
    elements = max(operand.array.elements for operand in hero.operands)
    most = unroll_factor(region, target, elements, kind="concatenate").factor
    factor = gcd(most, *sizes)
    grid = loop_launch(elements, factor, target)
    offsets = tuple(sum(sizes[:number]) for number in range(len(sizes)))
    return ConcatenateTiling(dimension, offsets, elements, factor, grid)

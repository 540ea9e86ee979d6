"""How many neighbouring elements a thread of a loop kernel computes."""

from __future__ import annotations

from math import gcd
from typing import Final

from hloopt.analysis.region import Region
from hloopt.analysis.transpose import normal_form
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REDUCING
from hloopt.targets import Target

__all__ = [
    "Unroll",
    "UnrollOptions",
    "drops_when_unrolled",
    "loop_elements",
    "max_unroll",
    "unroll_factor",
]

_BLACKWELL = (10, 0)
_DROPPING: Final = REDUCING | {"concatenate", "dot", "sort"}
"""Ops that may keep a thread from computing several elements."""


@dataclass(frozen=True)
class UnrollOptions:
    """XLA's thresholds.

    max_unroll            elements of a thread, at most
    window                a reduce-window over more elements than this is not unrolled
    concatenate_operands  nor a concatenate of more operands
    wide_max_unroll       at most so many on devices from Blackwell on, where results are narrow
    wide_min_unroll       and at least so many
    wide_pad_unroll       at most so many where a pad is in the kernel
    vector_bits           the widest memory access of such a device (256 from CUDA 12.9 on)
    output_bits           a thread writes at least so many bits at once, so that none shares a byte
    """

    max_unroll: int = 4
    window: int = 8
    concatenate_operands: int = 10
    wide_max_unroll: int = 32
    wide_min_unroll: int = 8
    wide_pad_unroll: int = 8
    vector_bits: int = 256
    output_bits: int = 8


@dataclass(frozen=True, slots=True)
class Unroll:
    """Elements a thread computes, and why not more where it is fewer than the most there may be."""

    factor: int
    reason: str = ""


def loop_elements(region: Region) -> int:
    """The elements a loop kernel iterates over: those of the first result."""
    return region.results[0].shape.elements if region.results else 0


def unroll_factor(
    region: Region,
    target: Target,
    elements: int | None = None,
    *,
    kind: str = "loop",
    options: UnrollOptions | None = None,
) -> Unroll:
    """The unroll factor over ``elements`` (default: those of the first result), a power of two.

    It need not divide ``elements`` where results are narrower than a byte: kernels check bounds.  ``kind`` is
    the emitter's; wide factors are for ``loop``, ``transpose`` and ``concatenate``.
    """
    options = options or UnrollOptions()
    count = loop_elements(region) if elements is None else elements
    factor, reason = _factor(region, target, count, kind, options)
    widths = {result.shape.dtype.bits for result in region.results}
    narrow = min(widths - {0}, default=8)
    least = _power_of_two(-(-options.output_bits // narrow))
    if factor < least:
        return Unroll(least, f"elements of {narrow} bits are written a byte at a time")
    return Unroll(factor, reason)


def _factor(
    region: Region, target: Target, count: int, kind: str, options: UnrollOptions
) -> tuple[int, str]:
    threads = target.threads_per_core * target.cores
    if count < threads:
        return 1, f"{count} elements are fewer than the {threads} threads of the device"
    drop = drops_when_unrolled(region, options)
    if drop:
        return 1, drop
    most = max_unroll(region, target, kind, options)
    factor = gcd(count, most)
    return factor, "" if factor == most else f"{most} does not divide {count} elements"


def drops_when_unrolled(region: Region, options: UnrollOptions | None = None) -> str:
    """Why a thread should compute one element only: what makes unrolled code slower; empty where nothing."""
    options = options or UnrollOptions()
    if region.opcodes.isdisjoint(_DROPPING):
        return ""
    for instruction in region.body:
        reason = _drop(instruction, options)
        if reason:
            return f"{instruction.name} is {reason}"
    return ""


def _drop(instruction: Instruction, options: UnrollOptions) -> str:
    opcode = instruction.opcode
    if opcode in ("sort", "dot"):
        return f"a {opcode}"
    if opcode == "reduce-window":
        volume = instruction.window.size
        if volume > options.window:
            return f"a reduce-window over {volume} elements, more than {options.window}"
    elif opcode == "concatenate":
        count = len(instruction.operands)
        if count > options.concatenate_operands:
            return f"a concatenate of {count} operands, more than {options.concatenate_operands}"
    elif opcode == "reduce" and len(instruction.operands) > 2:
        return f"a reduce of {len(instruction.operands) // 2} arrays"
    return ""


def max_unroll(
    region: Region, target: Target, kind: str = "loop", options: UnrollOptions | None = None
) -> int:
    """The largest unroll factor: ``max_unroll``, or more for narrow results from Blackwell on."""
    options = options or UnrollOptions()
    if not _is_wide(region, target, kind, options):
        return options.max_unroll
    widths = [shape.dtype.bits for shape in region.operands]
    widths += [result.shape.dtype.bits for result in region.results]
    factor = min(options.wide_max_unroll, options.vector_bits // max(8, *widths))
    factor = 1 << (max(1, factor).bit_length() - 1)
    if "pad" in region.opcodes and any(entry.opcode == "pad" for entry in region.body):
        factor = min(factor, options.wide_pad_unroll)
    for instruction in region.body if "transpose" in region.opcodes else ():
        minor = _moved_minor(instruction)
        while minor and factor > options.max_unroll and minor < factor:
            factor //= 2
    return max(factor, options.wide_min_unroll)


def _is_wide(region: Region, target: Target, kind: str, options: UnrollOptions) -> bool:
    if target.kind != "cuda" or target.capability < _BLACKWELL:
        return False
    if kind not in ("loop", "transpose", "concatenate") or len(region.results) != 1:
        return False
    if "reduce" in region.opcodes and any(entry.opcode == "reduce" for entry in region.body):
        return False
    return region.results[0].shape.dtype.bits < options.vector_bits // 4


def _moved_minor(instruction: Instruction) -> int:
    """The size of a transpose's last dimension in normal form; 0 for anything else."""
    if instruction.opcode != "transpose":
        return 0
    dims, _ = normal_form(instruction.array.dims, instruction.dimensions)
    return dims[-1] if dims else 0


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()

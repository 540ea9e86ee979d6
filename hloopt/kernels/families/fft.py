"""Discrete Fourier transforms of any length that shared memory holds, one dimension a launch.

A complex transform continues in the result, where each block reads its lines before it writes them; an IRFFT
has the dimensions before the last in scratch memory.

A line of n = a b elements that is too long for shared memory is transformed as a matrix of a rows and b
columns: the columns, then a root of unity times each element, then the rows, whose results are stored in
columns (Bailey's four steps).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, prod
from types import MappingProxyType

from hloopt.analysis.layout import is_descending
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.dot_tiling import SHARED_BYTES
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import (
    Argument,
    ArgumentRole,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
)

__all__ = [
    "KERNELS",
    "AxisTransform",
    "axis_transforms",
    "fft_problem",
    "longest_line",
    "radices",
    "rows_of",
    "whole_transforms",
]

_NAME = "fft-shared"
_LINE_ELEMENTS = 1024
_NEIGHBOURS = 8


@dataclass(frozen=True, slots=True)
class AxisTransform:
    """The transform of one dimension.

    length        of the transform
    outer, inner  elements before and behind the dimension
    read, written how many elements of a line are in memory before and after; of a whole line for the first
                  half of a long IRFFT, and for the second half of any
    kind          ``FFT`` or ``IFFT`` of complex lines, ``RFFT`` of real ones, ``IRFFT`` to real ones
    source, target  where the lines are
    rows          of the second half of a long line: how many rows its matrix has
    columns       of the first half of one: how many columns
    """

    length: int
    outer: int
    inner: int
    read: int
    written: int
    kind: str
    source: LeafPlace
    target: LeafPlace
    rows: int = 1
    columns: int = 1

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self.outer * self.inner

    @property
    def is_inverse(self) -> bool:
        """Whether exponents are positive, and results divided by the length."""
        return self.kind in ("IFFT", "IRFFT")


def radices(length: int) -> list[int]:
    """Factors of a length: fours, a two, then primes in ascending order."""
    found = []
    for radix in (4, 2):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    radix = 3
    while length > 1:
        if radix * radix > length:
            radix = length
        while length % radix == 0:
            found.append(radix)
            length //= radix
        radix += 2
    return found


def axis_transforms(instruction: Instruction) -> tuple[AxisTransform, ...]:
    """The transforms of each dimension in the order in which they are done, long lines in two halves."""
    most = longest_line(instruction)
    return tuple(half for whole in whole_transforms(instruction) for half in _halves(whole, most))


def whole_transforms(instruction: Instruction) -> list[AxisTransform]:
    """The transforms of each dimension in the order in which they are done, whatever their length."""
    kind = str(instruction.attributes["fft_type"])
    lengths = tuple(instruction.attributes["fft_length"])
    source, target = instruction.operands[0].array.dims, instruction.array.dims
    rank, count = len(source), len(lengths)
    # A real line first becomes complex, and becomes real again last.
    order = list(range(rank - 1, rank - count - 1, -1))
    if kind == "IRFFT":
        order.reverse()
    dims, found = list(source), []
    here = LeafPlace("operand", 0)
    for number, axis in enumerate(order):
        last = number == count - 1
        there = LeafPlace("scratch", 0) if kind == "IRFFT" and not last else LeafPlace("result", 0)
        own = kind if axis == rank - 1 else {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
        found.append(
            AxisTransform(
                lengths[axis - (rank - count)],
                prod(dims[:axis]),
                prod(dims[axis + 1 :]),
                dims[axis],
                target[axis],
                own,
                here,
                there,
            )
        )
        dims[axis], here = target[axis], there
    return found


def longest_line(instruction: Instruction) -> int:
    """How many elements a line may have for shared memory to hold it, its successor and all roots."""
    return SHARED_BYTES // (3 * _element_bytes(instruction))


def rows_of(length: int, most: int) -> int:
    """The rows of the matrix that a long line is put as: the divisor next to the root; 0 if there is none."""
    for rows in range(isqrt(length), 0, -1):
        if length % rows == 0:
            return rows if length // rows <= most else 0
    return 0


def _halves(whole: AxisTransform, most: int) -> list[AxisTransform]:
    """A transform, or the two that a long one is made of."""
    length, kind = whole.length, whole.kind
    if length <= most:
        return [whole]
    rows = rows_of(length, most)
    if not rows:
        return [whole]
    columns = length // rows
    taken = "scratch" in (whole.source.kind, whole.target.kind)
    between = LeafPlace("scratch", 1 if taken else 0)
    # The first half reads what the whole line has, the second one writes what it gives.
    rest = "FFT" if kind == "RFFT" else kind
    first = AxisTransform(
        rows,
        whole.outer,
        columns * whole.inner,
        whole.read if kind == "IRFFT" else rows,
        rows,
        kind,
        whole.source,
        between,
        columns=columns,
    )
    second = AxisTransform(
        columns,
        whole.outer * rows,
        whole.inner,
        columns,
        whole.written,
        rest,
        between,
        whole.target,
        rows=rows,
    )
    return [first, second]


def _element_bytes(instruction: Instruction) -> int:
    shapes = (instruction.operands[0].array, instruction.array)
    return 16 if any(shape.dtype.name in ("f64", "c128") for shape in shapes) else 8


def fft_problem(instruction: Instruction) -> str:
    """Why no kernel makes an instruction by lines, whatever their length; empty where one may."""
    if instruction.opcode != "fft":
        return f"{instruction.name} is not an fft"
    lengths = tuple(instruction.attributes["fft_length"])
    kind = str(instruction.attributes["fft_type"])
    source, result = instruction.operands[0].array, instruction.array
    if not source.elements or not result.elements:
        return f"{instruction.name} has no elements"
    if not is_descending(source) or not is_descending(result):
        return f"{instruction.name} has a layout that is not row-major"
    if source.is_dynamic:
        return f"{instruction.name} has a bounded dynamic dimension"
    if kind in ("FFT", "IFFT") and result.dims[-len(lengths) :] != lengths:
        return f"{instruction.name} cuts or pads its lines"
    return ""


def _fits(site: Site) -> Verdict:
    instruction = site.region.instruction
    if problem := fft_problem(instruction):
        return NO(problem)
    lengths = tuple(instruction.attributes["fft_length"])
    most = longest_line(instruction)
    for length in lengths:
        if length > most and not rows_of(length, most):
            return NO(
                f"a line of {length} elements, which form no matrix of at most {most} by {most}"
            )
    return YES(f"lines of at most {max(lengths)} elements; shared memory holds {most}")


def _wanted(site: Site) -> Verdict:
    longest = max(site.region.instruction.attributes["fft_length"])
    most = site.limits.fft_shared_length
    if longest > most:
        return NO(
            f"a line of {longest} elements; above {most} cuFFT is quicker", "fft_shared_length"
        )
    return YES(f"lines of at most {longest} elements, {most} or fewer", "fft_shared_length")


def _tile(site: Site) -> Tile:
    instruction = site.region.instruction
    transforms = axis_transforms(instruction)
    longest = max(transform.length for transform in transforms)
    lines = max(1, _LINE_ELEMENTS // longest)
    if any(transform.inner > 1 for transform in transforms):
        lines = max(lines, _NEIGHBOURS)
    room = site.target.shared_per_block // _element_bytes(instruction) - longest
    most = max(transform.lines for transform in transforms)
    lines = min(lines, most, room // (2 * longest))
    threads = min(256, max(32, -(-lines * longest // 4 // 32) * 32))
    return MappingProxyType({"lines": lines, "threads": threads})


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    instruction = site.region.instruction
    lines, threads = tile["lines"], tile["threads"]
    if not 1 <= threads <= site.target.threads_per_block:
        most = site.target.threads_per_block
        raise UsageError(f"{_NAME}: threads={threads}; a block has 1 to {most}")
    transforms = axis_transforms(instruction)
    longest = max(transform.length for transform in transforms)
    room = site.target.shared_per_block // _element_bytes(instruction) - longest
    if not 1 <= lines <= room // (2 * longest):
        raise UsageError(
            f"{_NAME}: lines={lines}; a block has room for 1 to {room // (2 * longest)}"
        )
    steps = []
    for number, transform in enumerate(transforms):
        blocks = -(-transform.lines // lines)
        steps.append(
            Launch.linear(f"_{number}", blocks, threads, _arguments(transform), part=number)
        )
    complex_type = "c128" if _element_bytes(instruction) == 16 else "c64"
    sizes: dict[int, int] = {}
    for transform in transforms:
        if transform.target.kind == "scratch":
            number = transform.target.number
            elements = transform.lines // transform.rows * transform.written
            sizes[number] = max(elements, sizes.get(number, 0))
    scratch = [ScratchBuffer(complex_type, sizes[number]) for number in sorted(sizes)]
    return KernelSpec(_NAME, tile, tuple(steps), tuple(scratch))


def _arguments(transform: AxisTransform) -> tuple[Argument, ...]:
    if transform.source == transform.target:
        return (Argument(transform.target, "update"),)
    role: ArgumentRole = "in"
    return (Argument(transform.source, role), Argument(transform.target, "out"))


def _efficiency(_: Site, __: KernelSpec) -> Efficiency:
    return Efficiency(0.8, 0.25, reason="lines in shared memory")


KERNELS = (
    Kernel(
        _NAME,
        "a few lines a block in shared memory, by a radix after the other; a launch for each dimension",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=_efficiency,
    ),
)

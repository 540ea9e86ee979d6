"""Discrete Fourier transforms on the native device, in double precision, one dimension a launch.

A task has some groups of lines that are transformed side by side.  A length with a large prime is a convolution
of a length without one.
"""

from __future__ import annotations

from itertools import count
from types import MappingProxyType
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernels.families.fft import AxisTransform, fft_problem, radices, whole_transforms
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, ScratchBuffer, Tile

__all__ = ["KERNELS", "LARGEST_RADIX", "Working", "working"]

_NAME = "native-fft"

LARGEST_RADIX: Final = 31
"""The largest prime radix of a pass (``kMostRadix``): as many multiplications an element."""

# Lines side by side fill a vector; the first-level cache does not hold as many longer ones, and a single one is
# quicker (measured: as quick from 64 to 256 elements, by a fifth at 512).
_SIDE_BY_SIDE: Final = 4
_LONG: Final = 256
# Elements of a task, some 50 us.  At most so many tasks have separate scratch memory.
_TASK_ELEMENTS: Final = 1 << 13
_MOST_TASKS: Final = 16


@dataclass(frozen=True, slots=True)
class Working:
    """The algorithm by which a dimension is transformed.

    pairs   whether neighbours of real lines are taken for complex numbers: half as many
    length  of the complex transform that this leaves
    passes  of the length that the passes have: the same, or that of a convolution
    wide    lines side by side
    """

    pairs: bool
    length: int
    passes: int
    wide: int

    @property
    def is_chirp(self) -> bool:
        """Whether the transform is a convolution of another length."""
        return self.passes != self.length

    @property
    def plane(self) -> int:
        """Real numbers of all lines side by side; one more element than there are, for half of a real line."""
        return (self.passes + 1) * self.wide


def working(transform: AxisTransform) -> Working:
    """The algorithm that transforms a dimension."""
    length = transform.length
    pairs = transform.kind in ("RFFT", "IRFFT") and length % 2 == 0
    if pairs:
        length //= 2
    passes = length
    if max(radices(length), default=1) > LARGEST_RADIX:
        passes = next(size for size in count(2 * length - 1) if size % 4 == 0 and _is_smooth(size))
    alone = transform.lines == 1 or (passes > _LONG and transform.inner == 1)
    return Working(pairs, length, passes, 1 if alone else _SIDE_BY_SIDE)


def _is_smooth(size: int) -> bool:
    for prime in (2, 3, 5):
        while size % prime == 0:
            size //= prime
    return size == 1


def _fits(site: Site) -> Verdict:
    if site.region.is_fusion:
        return NO(f"{site.region.instruction.name} is a fusion")
    if problem := fft_problem(site.region.instruction):
        return NO(problem)
    if 0 not in site.region.read:
        return NO("the operand is a constant of one element")
    lengths = site.region.instruction.attributes["fft_length"]
    return YES(f"lines of {', '.join(map(str, lengths))} elements")


def _wanted(_: Site) -> Verdict:
    return YES("a call of NumPy takes longer")


def _groups(transform: AxisTransform) -> int:
    return -(-transform.lines // working(transform).wide)


def _tile(site: Site) -> Tile:
    transforms = whole_transforms(site.region.instruction)
    most = max(_groups(transform) for transform in transforms)
    plane = max(working(transform).plane for transform in transforms)
    groups = max(-(-most // _MOST_TASKS), _TASK_ELEMENTS // plane, 1)
    return MappingProxyType({"groups": min(groups, most)})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    transforms = whole_transforms(site.region.instruction)
    groups = tile["groups"]
    most = max(_groups(transform) for transform in transforms)
    if groups > most:
        raise UsageError(f"{_NAME}: groups={groups}; there are {most}")
    room = max(
        -(-_groups(transform) // groups) * 4 * working(transform).plane for transform in transforms
    )
    between = [one.lines * one.written for one in transforms if one.target.kind == "scratch"]
    # The lines that an IRFFT leaves to its last dimension come first: see `whole_transforms`.
    scratch = [ScratchBuffer("c128", max(between))] if between else []
    own = LeafPlace("scratch", len(scratch))
    scratch.append(ScratchBuffer("f64", room))
    launches = []
    for number, transform in enumerate(transforms):
        in_place = transform.source == transform.target
        lines = [Argument(transform.target, "update" if in_place else "out")]
        if not in_place:
            lines.insert(0, Argument(transform.source, "in"))
        arguments = (*lines, Argument(own, "out", partial=True))
        blocks = -(-_groups(transform) // groups)
        launches.append(Launch.linear(f"_{number}", blocks, 1, arguments, part=number))
    return KernelSpec(_NAME, tile, tuple(launches), tuple(scratch))


KERNELS = (
    Kernel(
        _NAME,
        "lines side by side, by a radix after the other, in double precision",
        _fits,
        _wanted,
        _tile,
        _spec,
        device="native",
    ),
)

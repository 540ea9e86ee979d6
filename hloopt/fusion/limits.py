"""The limits of fusion strategies, with XLA's values."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any, Self

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.targets import Target

__all__ = ["CodeLimits", "KernelLimits", "Limits", "check_counts", "shared_memory_of"]

_UNLIMITED = sys.maxsize
_MAY_BE_OFF = frozenset({"fuel", "slice_overlap_bytes"})


def shared_memory_of(target: Target, given: int) -> int:
    """Bytes a block may use: those given, else what the device has; without limit where it has no blocks."""
    return given or target.shared_per_block or _UNLIMITED


def check_counts(options: Any) -> None:
    """Raise ``UsageError`` for a number below 0 among a pass's options, but for those that it turns off."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in _MAY_BE_OFF and isinstance(value, int | float) and value < 0:
            name = getattr(options, "name", type(options).__name__)
            raise UsageError(f"{name}: {field.name}={value}: less than 0")


@dataclass(frozen=True)
class KernelLimits:
    """What one kernel may hold.

    max_operands            operands and outputs of a fusion (up to 2023: 64)
    max_reductions          reductions with a tiled kernel of their own
    shared_memory           bytes a block may use
    row_bytes               of shared memory a row reduction needs for each byte of an element it reads
    column_bytes            the same for a column reduction (up to 2023: 2112)
    """

    max_operands: int = 96
    max_reductions: int = 8
    shared_memory: int = 49152
    row_bytes: int = 32
    column_bytes: int = 4128

    def __post_init__(self) -> None:
        check_counts(self)

    @classmethod
    def of(cls, options: Any, **given: int) -> Self:
        """The limits among a pass's options, but for those that are given."""
        names = [entry.name for entry in fields(cls) if entry.name not in given]
        return cls(**{name: getattr(options, name) for name in names}, **given)


@dataclass(frozen=True)
class CodeLimits(KernelLimits):
    """What one kernel may hold, and what may be written several times in a loop kernel.

    max_duplication         times the code of one instruction may be written in a loop kernel
    max_barrier_emissions   the same for concatenate, dot, dynamic-update-slice, pad, reduce and
                            reduce-window, whose index computations are not shared
    max_barrier_users       users such an instruction may have when it joins a fusion
    """

    max_duplication: int = 15
    max_barrier_emissions: int = 1
    max_barrier_users: int = 1


@dataclass(frozen=True)
class Limits(CodeLimits):
    """All limits of instruction fusion.

    repeat_ratio            elements read for each result from which on a serial reduce or a window is
                            not repeated
    """

    repeat_ratio: int = 10

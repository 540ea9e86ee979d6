"""The thresholds of kernel selection: every one an option of ``kernel-selection``, XLA's figure the default."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Thresholds, each with where its default comes from.

    loop_threads   threads a block of a loop kernel has (XLA: 4 warp schedulers of 32)
    loop_unroll    most elements a thread of a loop kernel computes in a row (XLA: 4)
    """

    loop_threads: int = 128
    loop_unroll: int = 4

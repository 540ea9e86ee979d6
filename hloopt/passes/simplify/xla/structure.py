"""Entries 123 to 144, reductions, scatter, gather, sort, dot, convolution, control flow."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()

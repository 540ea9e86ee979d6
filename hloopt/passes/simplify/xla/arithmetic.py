"""Entries 1 to 50, add to power."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()

"""Entries 102 to 122, slices, pads, concatenates, constants."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()

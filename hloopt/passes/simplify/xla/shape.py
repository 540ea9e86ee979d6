"""Entries 74 to 101, reshape, transpose, broadcast, bitcast, copy, reverse, convert."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()

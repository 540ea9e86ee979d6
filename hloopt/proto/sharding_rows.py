"""The attributes that hold shardings."""

from __future__ import annotations

import re

from hloopt.proto import sharding
from hloopt.proto.entry import Entry, Target
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row
from hloopt.proto.sharding_text import write_sharding
from hloopt.types import Verbatim

__all__ = ["DOMAIN", "SHARDING"]


def _sharding() -> Row:
    def read(entry: Entry) -> Verbatim | None:
        if not entry.proto.HasField("sharding"):
            return None
        return Verbatim(_text(entry, "sharding"))

    def write(target: Target, value: Verbatim) -> None:
        target.proto.sharding = target.writing.once(write_sharding, value.text)

    return Row("sharding", ("sharding",), read, write)


def _text(entry: Entry, field: str) -> str:
    try:
        found: str = entry.reading.once(sharding.read, getattr(entry.proto, field))
    except Problem as problem:
        raise problem.within(field) from None
    return found


_DOMAIN = re.compile(r"""\{\s*kind=(["']).*?\1\s*,\s*entry=(.*),\s*exit=(.*)\}""", re.DOTALL)


def _domain() -> Row:
    # XLA's proto calls entry what its text calls exit.
    fields = ("domain_exit_sharding", "domain_entry_sharding")

    def read(entry: Entry) -> Verbatim:
        before, after = (_text(entry, field) for field in fields)
        return Verbatim(f'{{kind="sharding", entry={before}, exit={after}}}')

    def write(target: Target, value: Verbatim) -> None:
        match = _DOMAIN.fullmatch(value.text)
        if match is None:
            raise Problem(f"domain={value.text} has no shardings")
        for field, part in zip(fields, match.groups()[1:], strict=True):
            setattr(target.proto, field, target.writing.once(write_sharding, part.strip()))

    return Row("domain", fields, read, write, always=True)


SHARDING = _sharding()
DOMAIN = _domain()

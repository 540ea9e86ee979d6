"""The attributes that hold shardings."""

from __future__ import annotations

from hloopt.proto import sharding
from hloopt.proto.entry import Entry, Target, said
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row
from hloopt.types import Domain, Sharding, Verbatim

__all__ = ["DOMAIN", "SHARDING"]


def _sharding() -> Row:
    def read(entry: Entry) -> Verbatim | None:
        if not entry.proto.HasField("sharding"):
            return None
        return Verbatim.of(_read(entry, "sharding"))

    def write(target: Target, value: Verbatim) -> None:
        found = said("sharding", value, Sharding)
        target.proto.sharding = target.writing.once(sharding.write_sharding, found)

    return Row("sharding", ("sharding",), read, write)


def _read(entry: Entry, field: str) -> Sharding:
    try:
        found: Sharding = entry.reading.once(sharding.read, getattr(entry.proto, field))
    except Problem as problem:
        raise problem.within(field) from None
    return found


def _domain() -> Row:
    # XLA's proto calls entry what its text calls exit.
    fields = ("domain_exit_sharding", "domain_entry_sharding")

    def read(entry: Entry) -> Verbatim:
        return Verbatim.of(Domain("sharding", *(_read(entry, field) for field in fields)))

    def write(target: Target, value: Verbatim) -> None:
        found = said("domain", value, Domain)
        for field, part in zip(fields, (found.entry, found.exit), strict=True):
            setattr(target.proto, field, target.writing.once(sharding.write_sharding, part))

    return Row("domain", fields, read, write, always=True)


SHARDING = _sharding()
DOMAIN = _domain()

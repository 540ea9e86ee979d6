"""What a pipeline is made of: passes, and groups of them that are repeated until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.rewrite import spec
from hloopt.rewrite.pass_ import Pass

__all__ = [
    "Entry",
    "Find",
    "Fix",
    "aimed",
    "each_pass",
    "entry_text",
    "make_entries",
    "select",
    "with_options",
]


@dataclass(frozen=True)
class Fix:
    """``fix(a,b)``: its entries again and again until none of them changes anything.

    ``limit`` is the number of rounds after which the runner gives up and says so.
    """

    entries: tuple[Entry, ...]
    limit: int = 25

    def __post_init__(self) -> None:
        if not self.entries:
            raise UsageError("fix() is empty: it needs at least one pass")
        if self.limit < 1:
            raise UsageError(
                f"fix{{limit={self.limit}}}: the limit counts rounds and is at least 1"
            )

    def __str__(self) -> str:
        inner = ",".join(map(entry_text, self.entries))
        return f"fix{spec.options_text(self, ('entries',))}({inner})"


Entry: TypeAlias = Pass | Fix

Find: TypeAlias = Callable[[str], type[Pass] | None]
"""Gives the pass of a name, None where there is none; looks up what is not built in."""


def entry_text(entry: Entry) -> str:
    """The text an entry can be read back from."""
    return str(entry) if isinstance(entry, Fix) else spec.pass_text(entry)


def each_pass(entries: tuple[Entry, ...]) -> Iterator[Pass]:
    """All passes, those inside groups included, in the order of the text."""
    for entry in entries:
        if isinstance(entry, Fix):
            yield from each_pass(entry.entries)
        else:
            yield entry


def select(entries: tuple[Entry, ...], keep: Callable[[Pass], Pass | None]) -> tuple[Entry, ...]:
    """The entries with each pass as ``keep`` gives it back, or without it; empty groups go."""
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Fix):
            inner = select(entry.entries, keep)
            if inner:
                kept.append(Fix(inner, entry.limit))
        elif (instance := keep(entry)) is not None:
            kept.append(instance)
    return tuple(kept)


def with_options(
    entries: tuple[Entry, ...], name: str, options: tuple[tuple[str, spec.OptionValue], ...]
) -> tuple[Entry, ...]:
    """The entries, each option given to every pass that has it; ``name`` is for messages.

    Raises ``UsageError`` for an option that none of the passes has, and for a value that does not fit.
    """
    had = {field.name for instance in each_pass(entries) for field in fields(instance)}  # type: ignore[arg-type]
    for key, _ in options:
        if key not in had:
            hint = spec.did_you_mean(key, had)
            raise UsageError(f"no pass of {name} has the option '{key}'{hint}")

    def give(instance: Pass) -> Pass:
        own = {field.name for field in fields(instance)}  # type: ignore[arg-type]
        mine = tuple((key, value) for key, value in options if key in own)
        found = spec.read_options(type(instance), name, mine)
        return replace(instance, **found) if found else instance  # type: ignore[type-var]

    return select(entries, give) if options else entries


_PRICING: Final = (
    "hloopt.fusion.",
    "hloopt.passes.dots.precision",
    "hloopt.linear_algebra",
    "hloopt.kernels.row_fusion",
    "hloopt.kernels.attention",
    "hloopt.kernels.loop_along_fusion",
    "hloopt.kernels.product_fusion",
)
"""How the names of the modules begin whose passes choose by prices, or by what a device has."""


def aimed(entries: tuple[Entry, ...], target: str) -> tuple[Entry, ...]:
    """The entries, those that choose by prices doing so for another device, where theirs is that by default."""

    def give(instance: Pass) -> Pass:
        known = {field.name: field.default for field in fields(instance)}  # type: ignore[arg-type]
        if "target" not in known or not type(instance).__module__.startswith(_PRICING):
            return instance
        own = getattr(instance, "target") == known["target"]  # noqa: B009 - not in the base class
        return replace(instance, target=target) if own else instance  # type: ignore[type-var]

    return select(entries, give)


@dataclass(frozen=True)
class _FixOptions:
    """The options of ``fix`` that have a text form of their own."""

    limit: int = Fix.limit


def make_entries(
    specs: tuple[spec.Spec, ...],
    find: Find,
    names: Callable[[], tuple[str, ...]],
    named: Mapping[str, str],
) -> Iterator[Entry]:
    """The entries that specs name; ``named`` are whole pipelines, ``names`` gives all passes for a hint.

    Raises ``UsageError`` for an unknown pass or option, with the nearest name.
    """
    for entry in specs:
        if isinstance(entry, spec.FixSpec):
            options = spec.read_options(_FixOptions, "fix", entry.options)
            yield Fix(tuple(make_entries(entry.entries, find, names, named)), **options)
        elif entry.name in named:
            inner = tuple(make_entries(spec.parse(named[entry.name]), find, names, named))
            yield from with_options(inner, entry.name, entry.options)
        else:
            kind = find(entry.name)
            if kind is None:
                hint = spec.did_you_mean(entry.name, [*names(), *named, "fix"])
                raise UsageError(f"no pass is called '{entry.name}'{hint}")
            yield spec.make_pass(entry, {entry.name: kind})

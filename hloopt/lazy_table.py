"""Tables whose rows are loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

__all__ = ["LazyTable", "attributes", "tables"]

Row = TypeVar("Row")


class LazyTable(Mapping[str, Row], Generic[Row]):
    """Rows under names: ``load`` makes one of its name and its place."""

    def __init__(self, places: Mapping[str, Any], load: Callable[[str, Any], Row]) -> None:
        self._places, self._load = places, load
        self._rows: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._load(name, self._places[name])
        return row

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def attributes(package: str, places: Mapping[str, str]) -> LazyTable[Any]:
    """What ``module.attribute`` of a package is, by the name that has this place."""

    def load(name: str, place: str) -> Any:
        module, _, attribute = place.rpartition(".")
        return getattr(import_module(f"{package}.{module}"), attribute)

    return LazyTable(places, load)


def tables(
    package: str,
    table: str,
    names: Mapping[str, Collection[str]],
    known: Mapping[str, Any] | None = None,
) -> LazyTable[Any]:
    """The tables of one name in several modules as one; ``names`` has the rows of each module's.

    ``known`` are rows that are there already, unless a module has them as well.
    """
    given = known or {}
    places = {name: module for module, rows in names.items() for name in sorted(rows)}

    def load(name: str, module: str | None) -> Any:
        if module is None:
            return given[name]
        return getattr(import_module(f"{package}.{module}"), table)[name]

    return LazyTable({**{name: None for name in given if name not in places}, **places}, load)

"""Device descriptions in TOML: a key for each field of ``Target``.

::

    title = "a card of mine"
    base = "h200"                 # every number that is not given is that device's
    source = "the data sheet"     # where the numbers below are from
    memory_bandwidth = 4_000_000_000_000

    [matrix_rates]
    f16 = { clock_ghz = 1.8, units = 4, ops = 512 }

    [sources]
    clock_ghz = "measured"        # where a single number is from, when not from ``source``

Without ``base`` every number of a GPU has to be there; of a TPU only those that it has.  ``calibrated`` is
false unless the file says otherwise.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from hloopt.errors import FileError
from hloopt.source import Source
from hloopt.spelling import nearest
from hloopt.targets.target import Rate, Target
from hloopt.toml_text import parse_toml
from hloopt.types import DTYPES

__all__ = ["read_toml"]

KINDS = ("cuda", "rocm", "tpu")
_TEXTS = ("title", "kind")
_TRIPLES = {"capability": 2, "grid_limit": 3, "block_limit": 3}
_REALS = ("clock_ghz", "memory_clock_ghz")
_RATES = ("scalar_rates", "matrix_rates")
_PEAKS = ("scalar_peaks", "matrix_peaks")
_FILE_ONLY = ("base", "source", "sources")
_FIELDS = tuple(entry.name for entry in dataclasses.fields(Target) if entry.name != "name")
_REQUIRED = tuple(
    entry.name
    for entry in dataclasses.fields(Target)
    if entry.default is entry.default_factory is dataclasses.MISSING and entry.name != "name"
)
_REQUIRED_OF_TPU = ("title", "kind", "cores", "memory_bandwidth", "memory_size")
_NONE: dict[str, Any] = {
    name: (0,) * _TRIPLES[name] if name in _TRIPLES else 0 for name in _REQUIRED
}
_HEADER = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")


def read_toml(source: Source, name: str, find: Callable[[str], Target]) -> Target:
    """The device a file describes.

    ``find`` resolves ``base`` and may raise ``UsageError``.  Raises ``FileError`` at malformed TOML, at
    unknown keys, wrong types and values, and at the end of the file for numbers that are missing.
    """
    return _Reader(source, parse_toml(source)).target(name, find)


class _Reader:
    def __init__(self, source: Source, table: dict[str, Any]) -> None:
        self.source = source
        self.table = table

    def fail(self, path: tuple[str, ...], message: str) -> FileError:
        offset, width = _find(self.source.text, path)
        return self.source.error(FileError, offset, message, width=width)

    def target(self, name: str, find: Callable[[str], Target]) -> Target:
        self.check_keys()
        base = self.table.get("base")
        if base is not None and not isinstance(base, str):
            raise self.fail(("base",), "the name of a device is expected")
        values: dict[str, Any] = {} if base is None else dict(vars(find(base)))
        for key, value in self.table.items():
            if key not in _FILE_ONLY:
                values[key] = self.value(key, value)
        values["calibrated"] = self.table.get("calibrated", False)
        values["sources"] = self.sources(values.get("sources", {}))
        kind = values.get("kind")
        if kind is not None and kind not in KINDS:
            raise self.fail(("kind",), f"a kind is one of {', '.join(KINDS)}, not '{kind}'")
        needed = _REQUIRED_OF_TPU if kind == "tpu" else _REQUIRED
        missing = [key for key in needed if key not in values]
        if missing:
            raise self.source.error(
                FileError, len(self.source.text), f"missing: {', '.join(missing)}"
            )
        return Target(**{**_NONE, **values, "name": name})

    def check_keys(self) -> None:
        valid = (*(key for key in _FIELDS if key != "sources"), *_FILE_ONLY)
        for key in self.table:
            if key not in valid:
                raise self.fail((key,), f"a device has no '{key}'{_hint(key, valid)}")

    def sources(self, before: Mapping[str, str]) -> dict[str, str]:
        """The base's sources, and over them those of this file for the numbers it gives."""
        default, own = self.table.get("source", ""), self.table.get("sources", {})
        if not isinstance(default, str):
            raise self.fail(("source",), "a text is expected")
        if not isinstance(own, dict):
            raise self.fail(("sources",), "a table is expected")
        found = dict(before)
        if before:
            found.update((key, default) for key in self.table if key not in _FILE_ONLY)
        else:
            found[""] = default
        for key, value in own.items():
            entries = value.items() if isinstance(value, dict) else [("", value)]
            for inner, text in entries:
                path = ("sources", key, inner) if inner else ("sources", key)
                if key not in _FIELDS:
                    raise self.fail(path, f"a device has no '{key}'{_hint(key, _FIELDS)}")
                if not isinstance(text, str):
                    raise self.fail(path, "a text is expected")
                found[f"{key}.{inner}" if inner else key] = text
        return found

    def value(self, key: str, value: Any) -> Any:
        path = (key,)
        if key in _TEXTS:
            if isinstance(value, str) and value:
                return value
            raise self.fail(path, "a text is expected")
        if key == "calibrated":
            if isinstance(value, bool):
                return value
            raise self.fail(path, "true or false is expected")
        if key in _TRIPLES:
            return self.numbers(path, value, _TRIPLES[key])
        if key in _RATES or key in _PEAKS:
            return self.rates(key, value)
        return self.number(path, value, is_real=key in _REALS)

    def number(self, path: tuple[str, ...], value: Any, *, is_real: bool = False) -> Any:
        wanted = (int, float) if is_real else int
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise self.fail(path, f"{'a number' if is_real else 'a whole number'} is expected")
        if not 0 <= value < float("inf"):
            raise self.fail(path, f"{value} is not a valid number for a device")
        return float(value) if is_real else value

    def numbers(self, path: tuple[str, ...], value: Any, count: int) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) != count:
            raise self.fail(path, f"a list of {count} whole numbers is expected")
        return tuple(self.number(path, entry) for entry in value)

    def rates(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail((key,), "a table with element types as keys is expected")
        for name in value:
            if name not in DTYPES:
                hint = _hint(name, DTYPES)
                raise self.fail((key, name), f"unknown element type '{name}'{hint}")
        if key in _PEAKS:
            return {
                name: self.number((key, name), entry, is_real=True) for name, entry in value.items()
            }
        return {name: self.rate((key, name), entry) for name, entry in value.items()}

    def rate(self, path: tuple[str, ...], value: Any) -> Rate:
        keys = {"clock_ghz", "units", "ops"}
        if not isinstance(value, dict) or value.keys() != keys:
            raise self.fail(path, "a rate is { clock_ghz = ..., units = ..., ops = ... }")
        return Rate(
            self.number(path, value["clock_ghz"], is_real=True),
            self.number(path, value["units"]),
            self.number(path, value["ops"]),
        )


def _hint(wrong: str, valid: Any) -> str:
    close = nearest(wrong, valid)
    return f"; did you mean '{close[0]}'?" if close else " (hloopt targets h200 lists the keys)"


def _find(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Where a key stands and how long it is; the nearest table's header where it stands nowhere by itself."""
    table, best, offset = "", (0, 1), 0
    *outer, last = path
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header is not None:
            table = header[1]
            if table == ".".join(path) or (outer and table == outer[0] and best == (0, 1)):
                best = (offset + header.start(1), len(table))
        else:
            prefix = f"{table}." if table else ""
            key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
            if key is not None:
                full = prefix + re.sub(r"[\"']", "", key[1])
                if full == ".".join(path):
                    return offset + key.start(1), len(key[1])
                if outer and full == ".".join(outer):
                    inner = re.search(rf"\b{re.escape(last)}\b", line[key.end() :])
                    best = (offset + key.start(1), len(key[1]))
                    if inner is not None:
                        best = (offset + key.end() + inner.start(), len(last))
        offset += len(line)
    return best

"""The devices that are known by name: ``devices.toml`` beside this file, and files of the same form.

A file of the user's holds one device: the keys of a table there, with ``name``.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hloopt.errors import UsageError
from hloopt.targets.target import Target

__all__ = ["find_target", "targets"]


@cache
def _common() -> Mapping[str, Any]:
    found: dict[str, Any] = _content()["common"]
    return MappingProxyType(found)


@cache
def _content() -> Mapping[str, Any]:
    text = files("hloopt.targets").joinpath("devices.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))


@cache
def targets() -> Mapping[str, Target]:
    """All known devices by name."""
    return MappingProxyType(
        {
            name: _target({**_common(), **row, "name": name}, "devices.toml")
            for name, row in _content().items()
            if name != "common"
        }
    )


def find_target(name: str) -> Target:
    """The device of a name, or of a TOML file.

    Raises ``UsageError`` with the nearest names where there is none, and for a file that does not describe one.
    """
    if name.endswith(".toml"):
        return _read(name)
    known = targets()
    if name not in known:
        raise UsageError(f"no target is called '{name}'" + _hint(name, known))
    return known[name]


def _hint(wrong: str, valid: Iterable[str]) -> str:
    names = list(valid)
    close = get_close_matches(wrong, names, 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"{hint} (valid: {', '.join(names)})"


def _read(path: str) -> Target:
    try:
        row = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    return _target({"name": Path(path).stem, **_common(), **row}, path)


def _target(row: Mapping[str, Any], where: str) -> Target:
    """A device of a table.  Raises ``UsageError`` naming the key that is missing, unknown or no number."""
    types = typing.get_type_hints(Target)
    names = [field.name for field in dataclasses.fields(Target)]
    for key in row:
        if key not in names:
            raise UsageError(f"{where}: '{key}' says nothing of a device{_hint(key, names)}")
    found: dict[str, Any] = {}
    for key in names:
        if key not in row:
            raise UsageError(f"{where}: {row['name']} does not say its {key}")
        found[key] = _converted(row[key], types[key], f"{where}: {key}")
    return Target(**found)


def _converted(value: Any, kind: Any, where: str) -> Any:
    inner = typing.get_args(kind)
    if inner:
        if isinstance(value, list) and len(value) == len(inner):
            return tuple(map(_converted, value, inner, [where] * len(inner)))
        raise UsageError(f"{where} is a list of {len(inner)} numbers")
    fits = isinstance(value, str) if kind is str else type(value) in (int, kind)
    if not fits:
        wanted = {str: "a text", int: "an integer", float: "a number"}[kind]
        raise UsageError(f"{where} is {wanted}, not {value!r}")
    if kind is not str and value < 0:
        raise UsageError(f"{where} is {value}, less than 0")
    return kind(value)

"""Pipelines in TOML files.

::

    pipeline = "simplify,fix(cse,dce)"

or entry by entry::

    pipeline = [
        "O1",
        { pass = "simplify", fast_math = true, disable = ["A + 0 => A"] },
        { fix = ["cse", "dce"], limit = 10 },
    ]

or as tables ``[[pipeline]]`` with the same keys.  A string is a pipeline text as in ``rewrite/spec.py``; the
other keys of a table are options.  Such a file is data: it names passes, and nothing in it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloopt.errors import UsageError
from hloopt.rewrite import spec
from hloopt.toml_text import read_toml_file

__all__ = ["read_entry", "read_toml"]

_MOST_ENTRIES_DEEP = 50


def read_toml(name: str) -> tuple[spec.Spec, ...]:
    """The entries of a file.

    Raises ``FileError`` where the text is not TOML, and ``UsageError`` with the entry that makes no sense.
    """
    found = read_toml_file(name)
    for key in found:
        if key != "pipeline":
            raise UsageError(f"{name}: '{key}' means nothing here (valid: pipeline)")
    if "pipeline" not in found:
        raise UsageError(f"{name}: there is no 'pipeline' in it")
    return _Reader(name).entries(found["pipeline"], "pipeline", 0)


def read_entry(value: Any) -> tuple[spec.Spec, ...]:
    """What one text or table of a pipeline says.  Raises ``UsageError``, its message without a place."""
    reader = _Reader("")
    if isinstance(value, dict):
        return (reader.table(value, "", 0),)
    return reader.entries(value, "", 0)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, where: str, message: str) -> UsageError:
        return UsageError(": ".join(filter(None, (self.name, where.lstrip("."), message))))

    def entries(self, value: Any, where: str, depth: int) -> tuple[spec.Spec, ...]:
        """The entries of a text, or of a list of texts and tables."""
        if depth > _MOST_ENTRIES_DEEP:
            raise self.fail(where, "groups are nested too deep")
        if isinstance(value, str):
            try:
                return spec.parse(value)
            except UsageError as error:
                raise self.fail(where, error.message) from error
        if not isinstance(value, list):
            raise self.fail(where, f"a text or a list is wanted, not {_kind(value)}")
        found: list[spec.Spec] = []
        for number, entry in enumerate(value):
            inner = f"{where}[{number}]"
            if isinstance(entry, str):
                found += self.entries(entry, inner, depth)
            elif isinstance(entry, dict):
                found.append(self.table(entry, inner, depth))
            else:
                raise self.fail(inner, f"a text or a table is wanted, not {_kind(entry)}")
        return tuple(found)

    def table(self, table: dict[str, Any], where: str, depth: int) -> spec.Spec:
        """A pass with its options, or a group."""
        kind = next((word for word in ("pass", "fix") if word in table), None)
        if kind is None:
            raise self.fail(where, "a table has the key 'pass', or 'fix' for a group")
        options = tuple(
            (key, self.value(value, f"{where}.{key}"))
            for key, value in table.items()
            if key != kind
        )
        if kind == "fix":
            return spec.FixSpec(self.entries(table["fix"], f"{where}.fix", depth + 1), options)
        if not isinstance(table["pass"], str):
            raise self.fail(f"{where}.pass", f"the name of a pass, not {_kind(table['pass'])}")
        return spec.PassSpec(table["pass"], options)

    def value(self, value: Any, where: str) -> spec.OptionValue:
        """An option as the text form has it."""
        plain = _SCALARS.get(type(value))
        if plain is not None:
            return plain(value)
        if isinstance(value, list):
            return tuple(self.value(entry, where) for entry in value)
        raise self.fail(where, f"no option is {_kind(value)}")


_SCALARS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: str(value).lower(),
    int: str,
    float: repr,
}


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "a text", bool: "true or false"}
    numbers = {int: "a number", float: "a number"}
    return {**names, **numbers}.get(type(value), "a date or a time")

"""SARIF 2.1.0, the form in which analysers give their results to editors and code hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

__all__ = ["physical_location", "sarif_log"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(
    version: str, rules: Iterable[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """One run of hloopt; ``version`` is hloopt's."""
    driver = {"name": "hloopt", "version": version, "rules": [*rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [*results],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def physical_location(file: str, line: int, column: int = 0) -> dict[str, Any]:
    """A place in a file, from 1; 0 where the line or the column is not known."""
    uri = quote(file, safe="/~!$&'()*+,;=@-._")
    found: dict[str, Any] = {
        "artifactLocation": {"uri": f"file://{uri}" if uri.startswith("/") else uri}
    }
    if line:
        found["region"] = {"startLine": line} | ({"startColumn": column} if column else {})
    return found

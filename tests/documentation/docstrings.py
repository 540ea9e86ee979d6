"""How docstrings of this house become Markdown: their tables of fields, and their examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

_FIELD = re.compile(r"(\w[\w, ]*?) {2,}(\S.*)")


class Docstrings(griffe.Extension):
    """The extension of griffe that ``mkdocs.yml`` names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """A docstring with its tables of fields (``name   meaning``) as lists, and ``::`` as a fenced block."""
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", docstring.rstrip())))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if not _FIELD.match(lines[0]):
        return re.sub(r"::$", ":", text)
    made: list[str] = []
    for line in lines:
        field = _FIELD.match(line)
        if field:
            made.append(f"- `{field[1]}`: {field[2]}")
        else:
            made.append(f"  {line.strip()}")
    return "\n".join(made)

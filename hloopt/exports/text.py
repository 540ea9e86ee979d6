"""Texts of the module and of generated code as parts of a file: nothing of them is read as code of the file."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from string import Template
from textwrap import indent, wrap

__all__ = [
    "c_bytes",
    "c_string",
    "commented",
    "filled",
    "printable",
    "python_string",
    "python_table",
]

_WIDTH = 116


def filled(template: str, **values: object) -> str:
    """A template of this room with a value for each ``$$name`` in it; values are not looked into."""
    text = files("hloopt.exports").joinpath("templates", template).read_text(encoding="utf-8")
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def printable(text: str) -> str:
    """A text in one line of characters that neither end a comment line nor go on in the next one."""
    line = "".join(char if char.isprintable() else " " for char in text)
    # A compiler of C reads ??/ as a backslash, and a backslash as the comment's continuation.
    return line.replace("??", "? ?").rstrip("\\ ")


def commented(lines: Iterable[str], mark: str) -> str:
    """Lines as comments, long ones cut."""
    shown = (line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines)
    return "\n".join(f"{mark} {printable(line)}".rstrip() for line in shown)


def python_string(text: str) -> str:
    """A literal of Python for a text of whole lines: as it stands where that is possible."""
    plain = text.replace("\n", "").isprintable() and "'''" not in text and text.endswith("\n")
    if plain and not text.endswith("\\\n"):
        return f"r'''\n{text}'''"
    return "(\n" + indent("\n".join(map(repr, text.splitlines(keepends=True))), "    ") + "\n)"


def python_table(rows: Iterable[object]) -> str:
    """A list of Python, a row a line."""
    return "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]"


def c_bytes(values: bytes) -> str:
    """The numbers of some bytes, as an initialiser of C has them; one 0 for none."""
    numbers = ", ".join(map(str, values or b"\0"))
    return "{\n" + indent("\n".join(wrap(numbers, _WIDTH - 4)), "    ") + "\n}"


def c_string(text: str) -> str:
    """A string literal of C."""
    return (
        '"'
        + "".join(
            char if char.isalnum() or char in " +-.,()_" else "?" for char in text if char.isascii()
        )
        + '"'
    )

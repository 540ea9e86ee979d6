"""What a wheel ships, and under which licences: our own files alone, and libraries whose licences allow it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

OWN = frozenset(
    {
        ".md",
        ".py",
        ".toml",
        ".txt",
        ".h",
        ".cu",
        ".cpp",
        ".js",
        ".css",
        ".html",
        ".json",
        ".lark",
        ".typed",
    }
)
"""Files that we write.  Fonts, pictures and archives are none of these: they would come from somebody else."""
NOTICE = re.compile(
    rb"copyright|\(c\) ?(?:19|20)\d\d|spdx|licen[cs]ed? under|all rights reserved", re.IGNORECASE
)
LONGEST = 1000
"""Characters of a line: a script that was minified elsewhere has longer ones."""
PERMISSIVE = re.compile(r"\b(?:MIT|BSD|Apache|PSF|ISC|Python Software Foundation)\b", re.IGNORECASE)


def foreign(folder: Path) -> Iterator[str]:
    """Files below a folder that look as though somebody else wrote them, and why."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        data = path.read_bytes()
        if path.suffix not in OWN and path.name != "LICENSE":
            yield f"{path.relative_to(folder)}: {path.suffix or 'no suffix'}"
        elif notice := NOTICE.search(data):
            yield f"{path.relative_to(folder)}: {notice[0].decode()}"
        elif (
            path.suffix in {".js", ".css"} and max(map(len, data.splitlines()), default=0) > LONGEST
        ):
            yield f"{path.relative_to(folder)}: minified"


def required(name: str = "hloopt") -> set[str]:
    """Names of the libraries that an installation without extras brings, with theirs."""
    found: set[str] = set()
    open_names = [name]
    while open_names:
        for line in metadata.requires(open_names.pop()) or ():
            library = re.match(r"[\w.-]+", line)
            if library is not None and "extra ==" not in line and library[0] not in found:
                found.add(library[0])
                open_names.append(library[0])
    return found


def licence(library: str) -> str:
    """What its metadata says: an expression, a text's first line, or classifiers."""
    about = metadata.metadata(library)
    classifiers = [row for row in about.get_all("Classifier") or () if row.startswith("License")]
    said = about.get("License-Expression") or about.get("License") or ""
    return " ".join([said.partition("\n")[0], *classifiers]).strip()

"""The hook of ``mkdocs.yml``: the pages that are not in ``docs/``, and links between all of them.

The reference is made from the code while the site is built.  Pages of the repository, and files that pages link to,
have the paths in the site that they have in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from shutil import rmtree
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tests.documentation import reference

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "samples/README.md",
    "samples/cartpole/README.md",
    "samples/loops/README.md",
)
DOCUMENTED = "build/documented"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Copy the modules that have what the pages document: reading all of the package takes half of the build."""
    rmtree(ROOT / DOCUMENTED, ignore_errors=True)
    for path in _documented():
        copy = ROOT / DOCUMENTED / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / path).read_bytes())
    return config


def _documented() -> set[str]:
    """The files of the modules that the pages name, and of those from which packages take their names."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    waiting = re.findall(r"^::: ([\w.]+)", pages, re.MULTILINE)
    found: set[str] = set()
    while waiting:
        parts = waiting.pop().split(".")
        for end in range(len(parts), 0, -1):
            stem = "/".join(parts[:end])
            for path in (f"{stem}/__init__.py", f"{stem}.py"):
                if (ROOT / path).is_file() and path not in found:
                    found.add(path)
                    if path.endswith("__init__.py"):
                        imported = re.findall(
                            r"^ *from (hloopt[\w.]*) import",
                            (ROOT / path).read_text(),
                            re.MULTILINE,
                        )
                        waiting += imported
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, the repository's pages, and the files that pages link to."""
    for name, page in reference.PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    for page in PAGES:
        files.append(File.generated(config, page, content=(ROOT / page).read_text()))
    for file in files.documentation_pages():
        for target in _targets(file.src_uri, file.content_string):
            path = ROOT / target
            if target not in files.src_uris and path.is_file():
                files.append(File.generated(config, target, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where the pages of the repository are in the site; what is not in the site is no link."""
    parts = _FENCE.split(markdown)
    place = page.file.src_uri
    parts[::2] = [_LINK.sub(lambda link: _moved(place, link), prose) for prose in parts[::2]]
    return "".join(parts)


def _targets(page: str, markdown: str) -> list[str]:
    """The paths in the site that a page links to."""
    prose = "".join(_FENCE.split(markdown)[::2])
    return [_place(page, link[1]) for link in _LINK.finditer(prose)]


def _place(page: str, link: str) -> str:
    """Where a link of a page leads, as a path in the site."""
    beside = page if page in PAGES else f"docs/{page}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(beside), link))
    return path.removeprefix("docs/")


def _moved(page: str, link: re.Match[str]) -> str:
    moved = posixpath.relpath(_place(page, link[1]), posixpath.dirname(page) or ".")
    return moved + (link[2] or "")

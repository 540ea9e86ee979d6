"""What MkDocs does not check of a built site: that it asks no other machine for anything, and that links into pages lead somewhere.

``python -m tests.documentation.site_check FOLDER``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

_LOADED = re.compile(
    r'<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)"'
)
_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]+)"')
_ANCHOR = re.compile(r'\bid="([^"]+)"')


def problems(site: Path) -> list[str]:
    """A line for each thing that is wrong."""
    texts = {path.resolve(): path.read_text() for path in site.rglob("*.html")}
    anchors = {path: set(_ANCHOR.findall(text)) for path, text in texts.items()}
    found = []
    for path, text in texts.items():
        found += [f"{path}: loads {url}" for url in _LOADED.findall(text)]
        for link in _LINK.findall(text):
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            place, anchor = urldefrag(unquote(link))
            target = (path.parent / place).resolve() if place else path
            if not target.exists():
                found.append(f"{path}: {link} leads nowhere")
            elif anchor and not anchor.startswith("__") and anchor not in anchors.get(target, ()):
                found.append(f"{path}: {link} has no such place")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))

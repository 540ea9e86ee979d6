"""The page as one HTML file that needs no network: data, styles and scripts are in it.

Text of a module is in the page as JSON only, which scripts make text nodes of; pictures are SVG whose text an
XML writer quoted.  The page's policy lets no other script run than its own, and nothing be loaded.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from hloopt.report.picture import COLOURS

__all__ = ["page_html"]

_HERE: Final = Path(__file__).parent
_SCRIPTS: Final = (
    "core.js",
    "charts.js",
    "graph.js",
    "sections.js",
    "program.js",
    "whatif.js",
    "marks.js",
    "page.js",
)


def page_html(overview: Mapping[str, Any], parts: Mapping[str, Any], *, live: bool = False) -> str:
    """The page; ``overview`` is shown at once, ``parts`` are unpacked when they are.

    With ``live`` it may ask the server that it came from.
    """
    script = _script()
    digest = b64encode(sha256(f"\n{script}".encode()).digest()).decode()
    data = [f'<script type="application/json" id="overview">{_json(overview)}</script>']
    data += [
        f'<script type="text/plain" id="part-{name}">{_packed(content)}</script>'
        for name, content in parts.items()
    ]
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        digest=f"sha256-{digest}",
        connect="; connect-src 'self'" if live else "",
        title=escape(str(overview["module"])),
        about=escape(str(overview["about"])),
        style=(_HERE / "page.css").read_text(encoding="utf-8") + _colours(),
        data="\n".join(data),
        script=script,
    )


def _json(value: Any) -> str:
    """JSON within HTML, where no tag may begin."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _packed(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def _script() -> str:
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)


def _colours() -> str:
    """The colours of boxes; on a dark page fills are mixed with its background, below light letters."""
    return "".join(
        f".hlo-{kind} rect {{ fill: {_on_dark(fill)}; stroke: {stroke}; }} "
        f".hlo-{kind} text {{ fill: light-dark({letters}, var(--ink)); }}\n"
        for kind, (fill, stroke, letters) in COLOURS.items()
    )


def _on_dark(fill: str) -> str:
    return (
        fill if fill == "none" else f"light-dark({fill}, color-mix(in oklab, {fill} 28%, #14171b))"
    )

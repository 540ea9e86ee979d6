"""What shows itself in a notebook and to rich: a base class, and the slot for the tables that lie above it.

Records are made in low rooms and their tables in ``report``.  The top of the package fills the slot,
so that no record imports upward, and nothing of the tables is loaded before something is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Displayed", "ReportSlot", "report"]


class ReportSlot:
    """Where the module is that has ``mimebundle`` and ``rich_lines``; ``load`` is set once, from above."""

    load: Callable[[], Any]


report = ReportSlot()
_WIDTH = 80


class Displayed:
    """A value that Jupyter, rich and a Python prompt show as its table."""

    __slots__ = ()

    def __repr__(self) -> str:
        text = "\n".join(line.plain for line in report.load().rich_lines(self, _WIDTH))
        return "\n".join(line.rstrip() for line in text.splitlines())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Texts by MIME type, as IPython asks for them."""
        found: dict[str, str] = report.load().mimebundle(self)
        return found

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        """What ``rich.print`` prints."""
        found: Iterable[Any] = report.load().rich_lines(self, options.max_width)
        return found

"""Texts that hold several modules one after another, as ``hloopt optimize DIR`` prints them."""

from __future__ import annotations

import re
from itertools import pairwise

from hloopt.dataclass import dataclass
from hloopt.text.logs import headers

__all__ = ["Part", "split_modules"]

# A line that may stand between two modules: blank, or a comment.
_BETWEEN = re.compile(r"[ \t]*+(?://[^\n]*+)?\n")


@dataclass(frozen=True, slots=True)
class Part:
    """One module of a text that holds several.

    module   its name
    heading  what the comment right before it says: the file that it was read from; empty without one
    text     the module alone
    line     the line of the whole text that ``text`` begins on, from 1
    """

    module: str
    heading: str
    text: str
    line: int

    def placed(self) -> str:
        """The module behind as many newlines as there are lines before it, so that its lines are those
        of the whole text.
        """
        return "\n" * (self.line - 1) + self.text


def split_modules(text: str) -> list[Part]:
    """The modules of a text that holds several; an empty list where it holds one or none."""
    found = headers(text) if text.count("HloModule") > 1 else []
    if len(found) < 2:
        return []
    leads = [_lead(text, stop, start) for (_, stop), (start, _) in pairwise([(0, 0), *found])]
    ends = [start - len(lead) for (start, _), lead in zip(found[1:], leads[1:], strict=True)]
    parts: list[Part] = []
    line, done = 1, 0
    for (start, stop), end, lead in zip(found, [*ends, len(text)], leads, strict=True):
        line += text.count("\n", done, start)
        done = start
        comment = lead.rstrip().rpartition("\n")[2].strip()
        heading = comment.removeprefix("//").strip() if comment.startswith("// ") else ""
        module = text[start:stop].partition("HloModule")[2].strip().removeprefix("%")
        parts.append(Part(module, heading, text[start:end], line))
    return parts


def _lead(text: str, begin: int, end: int) -> str:
    """The comments and blank lines right before ``end``, not beyond ``begin``."""
    at = end
    while at > begin:
        line = max(text.rfind("\n", begin, at - 1) + 1, begin)
        if not _BETWEEN.fullmatch(text, line, at):
            break
        at = line
    return text[at:end]

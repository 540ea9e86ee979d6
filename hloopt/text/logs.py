"""Modules within other text: logs, mails, web pages; and several modules one after another.

Whatever does not belong to the module is made blank, so that every place keeps its line and column.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from hloopt.dataclass import dataclass
from hloopt.text.parts import NAME, SKIP
from hloopt.text.problem import Problem

__all__ = ["Excerpt", "JoinedModule", "excerpt", "split_modules"]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\))")
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.,]*+(?:Z|[+-][0-9]{2}:?[0-9]{2})?+"
# What logs put before each line: absl and glog, TensorFlow, times, quotation marks of mails.
_PREFIX = re.compile(
    r"^(?:[ \t]*+(?:"
    r"[IWEF][0-9]{4,8}(?:[ ]++[0-9:.]++){2,3}[ ][^\s\]]++\]"
    rf"|\[?{_TIME}\]?:?(?:[ ][IWEF][ ][^\s\]]++\])?"
    r"|\[[0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.]*+\]"
    r"|>"
    r")[ ]?)+",
    re.MULTILINE,
)
_HEADER = re.compile(rf"^[ \t]*+HloModule[ \t]++{NAME}(?=[,:\s]|\Z)", re.MULTILINE)
# What is HLO and no prose: an instruction, the end of a computation.
_HLO = re.compile(
    rf"^[ \t]*+(?:(?:ROOT[ \t]++)?+{NAME}[ \t]++=[ \t]|\}}[}} \t\r]*+$)",
    re.MULTILINE,
)
# What may follow the end of a computation in the same module: another one.
_GOES_ON = re.compile(
    rf"{SKIP}(?:ENTRY\b|{NAME}[ \t]*+(?:\([^\n]*->[^\n]*)?\{{"
    # Cut off within its first line.
    rf"|(?=%){NAME}\s*+\Z|{NAME}[ \t]*+\((?:{NAME}(?::[^\n]*+)?+)?\s*+\Z)"
)
_ONLY_COMMENTS = re.compile(SKIP)
_MOST_LISTED = 10
_NOT_BLANK = re.compile(r"[^\n]")
# A line that may stand between two modules: blank, or a comment.
_BETWEEN = re.compile(r"[ \t]*+(?://[^\n]*+)?\n")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text of which only a module is left; ``start`` and ``end`` are where that begins and ends."""

    text: str
    start: int
    end: int

    def outside(self, text: str) -> int:
        """The offset of the first character that is not part of the module."""
        return next(at for at, kept in enumerate(self.text) if kept != text[at])


def excerpt(text: str) -> Excerpt | Problem | None:
    """The only module within a text that holds other things as well.

    None where there is none or nothing but a module, and where it cannot be separated from what surrounds it; a
    ``Problem`` where there are several.
    """
    plain = _plain(text)
    found = list(_HEADER.finditer(plain))
    if not found:
        return None
    if len(found) > 1:
        return _several(plain, [match.end() for match in found])
    start = plain.index("HloModule", found[0].start())
    end = _end(plain, start)
    if _HLO.search(plain, 0, start) or _HLO.search(plain, end):
        start, end = 0, len(plain)
    if plain == text and _ONLY_COMMENTS.fullmatch(f"{plain[:start]}\n{plain[end:]}"):
        return None
    cut = _blank(plain[:start]) + plain[start:end] + _blank(plain[end:])
    return None if cut == text else Excerpt(cut, start, end)


def _headers(text: str) -> list[tuple[int, int]]:
    """Where modules begin in a text: the start of the line and the end of the module's name."""
    return [match.span() for match in _HEADER.finditer(_plain(text))]


def _plain(text: str) -> str:
    """The text without escape sequences and what logs put before each line, every place as it was."""
    plain = _ESCAPES.sub(_blanks, text) if "\x1b" in text else text
    return _PREFIX.sub(_blanks, plain)


def _end(text: str, start: int) -> int:
    """Behind the last computation of the module that begins at ``start``."""
    indent = start - text.rfind("\n", 0, start) - 1
    ends = re.compile(rf"^[ \t]{{0,{indent}}}\}}[^\n]*+", re.MULTILINE)
    for match in ends.finditer(text, start):
        if not _GOES_ON.match(text, match.end()):
            return match.end()
    return len(text)


def _several(text: str, headers: list[int]) -> Problem:
    starts = [text.rindex("HloModule", 0, end) for end in headers]
    newlines = [match.start() for match in re.finditer("\n", text)]
    lines = [bisect_right(newlines, start) + 1 for start in starts]
    last = text.count("\n", 0, _end(text, starts[1])) + 1
    listed = ", ".join(map(str, lines[:_MOST_LISTED]))
    listed += ", ..." if len(lines) > _MOST_LISTED else ""
    return Problem(
        starts[1],
        f"a second module begins here: one of {len(starts)} in this text",
        "HloModule",
        notes=(
            f"modules begin on lines {listed}",
            f"this cuts the second one out: sed -n '{lines[1]},{last}p' FILE",
        ),
    )


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blank(text: str) -> str:
    return _NOT_BLANK.sub(" ", text)


@dataclass(frozen=True, slots=True)
class JoinedModule:
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


def split_modules(text: str) -> list[JoinedModule]:
    """The modules of a text that holds several; an empty list where it holds one or none."""
    found = _headers(text) if text.count("HloModule") > 1 else []
    if len(found) < 2:
        return []
    leads = [_lead(text, stop, start) for (_, stop), (start, _) in pairwise([(0, 0), *found])]
    ends = [start - len(lead) for (start, _), lead in zip(found[1:], leads[1:], strict=True)]
    parts: list[JoinedModule] = []
    line, done = 1, 0
    for (start, stop), end, lead in zip(found, [*ends, len(text)], leads, strict=True):
        line += text.count("\n", done, start)
        done = start
        comment = lead.rstrip().rpartition("\n")[2].strip()
        heading = comment.removeprefix("//").strip() if comment.startswith("// ") else ""
        module = text[start:stop].partition("HloModule")[2].strip().removeprefix("%")
        parts.append(JoinedModule(module, heading, text[start:end], line))
    return parts


def _lead(text: str, begin: int, end: int) -> str:
    """The comments and blank lines right before ``end``, back to ``begin`` at most."""
    at = end
    while at > begin:
        line = max(text.rfind("\n", begin, at - 1) + 1, begin)
        if not _BETWEEN.fullmatch(text, line, at):
            break
        at = line
    return text[at:end]

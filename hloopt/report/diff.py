"""What differs between two texts, line by line, in time proportional to them where they are alike.

Lines of HLO are nearly all different from each other.  So the lines that occur once in either text are
anchors (as many of them as keep their order: patience diff), and only what is between two anchors is
compared line by line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

__all__ = ["unified_diff"]

_CONTEXT = 3
_Block = tuple[str, int, int, int, int]
"""equal, or replace; and both texts' lines from and to."""


def unified_diff(before: str, after: str, context: int = _CONTEXT) -> list[str]:
    """The lines of a unified diff without its heading; empty for equal texts."""
    old, new = before.splitlines(), after.splitlines()
    lines: list[str] = []
    for group in _groups(_blocks(old, new), context):
        (_, start, _, other, _), (_, _, end, _, other_end) = group[0], group[-1]
        lines.append(f"@@ -{start + 1},{end - start} +{other + 1},{other_end - other} @@")
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[i1:i2]]
            else:
                lines += [f"-{line}" for line in old[i1:i2]]
                lines += [f"+{line}" for line in new[j1:j2]]
    return lines


def _blocks(old: list[str], new: list[str]) -> Iterator[_Block]:
    """The texts in turn: equal lines, then different ones, and so on."""
    at, other = 0, 0
    for i, j in [*_anchors(old, new), (len(old), len(new))]:
        if (at, other) != (i, j):
            matcher = SequenceMatcher(None, old[at:i], new[other:j], autojunk=False)
            for kind, i1, i2, j1, j2 in matcher.get_opcodes():
                kind = "equal" if kind == "equal" else "replace"
                yield kind, at + i1, at + i2, other + j1, other + j2
        if i < len(old):
            yield "equal", i, i + 1, j, j + 1
        at, other = i + 1, j + 1


def _anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Places of lines that occur once in either text: the longest run of them in order in both."""
    once, unique = Counter(old), Counter(new)
    place = {line: number for number, line in enumerate(new)}
    pairs = [
        (number, place[line])
        for number, line in enumerate(old)
        if once[line] == 1 and unique[line] == 1
    ]
    return _increasing(pairs)


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence in which the second numbers grow, by patience sorting."""
    tops: list[int] = []
    ends: list[int] = []
    previous = [-1] * len(pairs)
    for index, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        if pile:
            previous[index] = ends[pile - 1]
        tops[pile : pile + 1] = [value]
        ends[pile : pile + 1] = [index]
    found = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(pairs[index])
        index = previous[index]
    return found[::-1]


def _groups(blocks: Iterator[_Block], context: int) -> list[list[_Block]]:
    """Different lines with some equal ones around them; near ones together."""
    groups: list[list[_Block]] = []
    current: list[_Block] = []
    joined: list[_Block] = []
    for block in blocks:
        if joined and block[0] == joined[-1][0] == "equal":
            kind, start, _, other, _ = joined[-1]
            joined[-1] = (kind, start, block[2], other, block[4])
        else:
            joined.append(block)
    for number, (kind, i1, i2, j1, j2) in enumerate(joined):
        if kind != "equal":
            current.append((kind, i1, i2, j1, j2))
            continue
        last = number == len(joined) - 1
        if current and (i2 - i1 > 2 * context or last):
            tail = min(context, i2 - i1)
            groups.append([*current, (kind, i1, i1 + tail, j1, j1 + tail)])
            current = []
            i1, j1 = max(i1 + tail, i2 - context), max(j1 + tail, j2 - context)
        elif not current:
            i1, j1 = max(i1, i2 - context), max(j1, j2 - context)
        if not last:
            current.append((kind, i1, i2, j1, j2))
    if any(block[0] != "equal" for block in current):
        groups.append(current)
    return groups

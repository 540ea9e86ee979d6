"""Where one instruction of a broken text ends: brackets decide, or lines where they do not agree with them."""

from __future__ import annotations

import re

from hloopt.source import Source
from hloopt.text.parts import CUT_OFF, NAME, SKIP, Piece, TentativeProblem
from hloopt.text.problem import Problem
from hloopt.types import DTYPES

__all__ = [
    "AFTER_BODY",
    "INSTRUCTION",
    "LINE_OF_HEADING",
    "SCAN",
    "PieceScan",
    "boundary",
    "module_or_heading",
]

_BEGINS = rf"ROOT[ \t]++{NAME}[ \t]|{NAME}[ \t]++(?:=[ \t]|(?:{'|'.join(DTYPES)})\[)"
INSTRUCTION = re.compile(rf"\n[ \t]*+(?:{_BEGINS})")
LINE_OF_HEADING = re.compile(
    rf"^(?:ENTRY[ \t]++{NAME}|{NAME}[ \t]*+"
    rf"(?:\{{[ \t]*+(?:\r?+$|{_BEGINS})|\([^\n]*(?:->[^\n]*|\{{[ \t\r]*+)$))",
    re.MULTILINE,
)
_BODY = re.compile(rf"{SKIP}(?:ROOT[ \t\r\n]|{NAME}[ \t\r\n]++=[ \t\r\n]|\}})")
SCAN = re.compile(
    r"(?P<comment>/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+)"
    r"""|(?P<string>"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')"""
    r"""|(?P<open>/\*|["'])"""
    r"|(?P<line>\n)"
    r"|(?P<bracket>[(){}\[\]])",
    re.DOTALL,
)
AFTER_BODY = re.compile(
    rf"[ \t]*+(?:\r?$|,[ \t]*+{NAME}=|//|/\*|\}}|ENTRY\b|{NAME}[ \t]*+(?:\{{|\([^\n]*->))",
    re.MULTILINE,
)
_PAIRS = {")": "(", "}": "{", "]": "["}


def module_or_heading(text: str, at: int) -> bool:
    """Whether a line begins at an offset that looks like a module's or a computation's first."""
    if at and text[at - 1] != "\n":
        return False
    return bool(LINE_OF_HEADING.match(text, at) or text.startswith("HloModule ", at))


def boundary(text: str, newline: int) -> bool:
    """Whether an instruction or a computation begins on the line after ``newline``."""
    return INSTRUCTION.match(text, newline) is not None or module_or_heading(text, newline + 1)


def _alone(text: str, at: int) -> bool:
    """Whether an offset is the beginning of its line."""
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


class PieceScan:
    """Goes through the instruction that begins at an offset.

    brackets   those that are open: the character, its offset, whether it opens a computation's body
    unclosed   the first of them that is known not to be closed
    tentative  a bracket that was closed by what looks like the end of the computation
    """

    def __init__(self, source: Source, text: str, at: int) -> None:
        self.source = source
        self.text = text
        self.at = at
        self.position = at
        self.brackets: list[tuple[str, int, bool]] = []
        self.unclosed: Problem | None = None
        self.tentative: TentativeProblem | None = None

    def run(self) -> Piece:
        """The instruction, to where the next one begins or the body ends."""
        text = self.text
        visits = {"bracket": self._bracket, "line": self._line, "open": self._opened}
        while match := SCAN.search(text, self.position):
            self.position = match.end()
            kind = str(match.lastgroup)
            if kind == "string" and INSTRUCTION.search(text, match.start(), match.end()):
                kind = "open"
            piece = visits[kind](match) if kind in visits else None
            if piece is not None:
                return piece
        if self.brackets and self.unclosed is None:
            kind, start, _ = self.brackets[0]
            return self._cut(self._ends_within("brackets", f"the {kind!r}", start), start)
        return self._piece(len(text))

    def _piece(self, end: int) -> Piece:
        unclosed = self.unclosed
        return Piece(self.at, end, unclosed, unclosed.offset if unclosed else -1)

    def _cut(self, problem: Problem, opened: int) -> Piece:
        """The text ends within what was opened."""
        return Piece(self.at, len(self.text), problem, opened, cut=True)

    def _bracket(self, match: re.Match[str]) -> Piece | None:
        kind, start = match[0], match.start()
        if kind in "([{":
            body = kind == "{" and _BODY.match(self.text, self.position) is not None
            self.brackets.append((kind, start, body))
            return None
        ends, loose = self._closed(kind, start)
        if ends and self.unclosed is not None and not _alone(self.text, start):
            return None
        self.unclosed = self.unclosed or loose
        return self._piece(start) if ends else None

    def _line(self, match: re.Match[str]) -> Piece | None:
        start = match.start()
        if not boundary(self.text, start):
            return None
        loose = next((one for one in self.brackets if not one[2]), None)
        if loose is not None:
            self.unclosed = self.unclosed or _not_closed(*loose[:2])
        elif self.brackets and not module_or_heading(self.text, start + 1):
            return None
        return self._piece(start + 1)

    def _opened(self, match: re.Match[str]) -> Piece | None:
        """A comment or a string that does not end, or not on its line."""
        start = match.start()
        if match[0] == "/*":
            return self._cut(Problem(start, "the comment is not closed", width=2), start)
        line_end = self.text.find("\n", start)
        if line_end < 0:
            return self._cut(self._ends_within("a string", "the string", start), start)
        self.unclosed = self.unclosed or Problem(start, "the string is not closed")
        self.position = line_end
        # What is in brackets on this line cannot be distinguished from the string.
        self.brackets.clear()
        return None

    def _closed(self, kind: str, start: int) -> tuple[bool, Problem | None]:
        """Take a closing bracket: whether it ends the body, and which bracket it shows to be open."""
        wanted, brackets = _PAIRS[kind], self.brackets
        if brackets and brackets[-1][0] == wanted:
            opening, opened, body = brackets.pop()
            if kind == "}" and not body and self.text[start - 1 : start] == "\n":
                # It looks like the end of the computation; whether it is one shows at the end.
                suspicion = TentativeProblem(opened, opening, self.at, start)
                self.tentative = self.tentative or suspicion
            return False, None
        if kind == "}" and not any(one[0] == "{" for one in brackets):
            after_body = AFTER_BODY.match(self.text, start + 1)
            if not _alone(self.text, start) and (brackets or not after_body):
                return False, Problem(start, "this '}' closes nothing")
            return True, _not_closed(*brackets[0][:2]) if brackets else None
        if any(one[0] == wanted for one in brackets):
            loose = brackets[-1]
            while brackets.pop()[0] != wanted:
                pass
            return False, _not_closed(*loose[:2])
        return False, Problem(start, f"this {kind!r} closes nothing")

    def _ends_within(self, what: str, opened: str, start: int) -> Problem:
        column = start - self.text.rfind("\n", 0, start)
        place = f"{opened} begins on line {self.source.line(start)}, column {column}"
        return Problem(
            len(self.text.rstrip()), f"the text ends within {what}", notes=(place, CUT_OFF)
        )


def _not_closed(kind: str, start: int) -> Problem:
    return Problem(start, f"this {kind!r} is not closed")

"""Where the computations and instructions of a broken text begin and end.

A text that is read without a mistake never comes here.  In one with mistakes brackets and quotes cannot be
trusted; what programs and people do keep to is that an instruction begins on a new line and a
computation at the beginning of one.  Brackets decide where they agree with that, lines where they do not.
The text is traversed once.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from hloopt.source import Source
from hloopt.text.grammar import pattern
from hloopt.text.hints import found_at, odd_character
from hloopt.text.parts import (
    CUT_OFF,
    NAME,
    SKIP,
    TARGET,
    ComputationOutline,
    Outline,
    Piece,
    TentativeProblem,
    left_out,
    skip,
)
from hloopt.text.pieces import (
    AFTER_BODY,
    INSTRUCTION,
    LINE_OF_HEADING,
    SCAN,
    PieceScan,
    boundary,
    module_or_heading,
)
from hloopt.text.problem import Expected, Problem

__all__ = ["HEADER", "OPENING", "outline"]

_HEADING = re.compile(rf"(?:(ENTRY)\b{SKIP})?+(?:({NAME}){SKIP}(?=[({{]))?+")
OPENING = re.compile(rf"{SKIP}HloModule\b")
HEADER = re.compile(rf"{SKIP}HloModule{SKIP}{NAME}{SKIP}:?+")
_TABLES = re.compile(r"(?:FileNames|FunctionNames|FileLocations|StackFrames)\b")
_CONTINUED = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*+=|[,{(\[=]")
_ATTRIBUTES = re.compile(rf"{SKIP},[^\n]*+")
_BRACES = re.compile(r"[} \t]++")
_LAYOUT = re.compile(r"[ \t\r\n]*+[0-9:]")


def outline(source: Source, text: str, enough: int) -> Outline:
    """The parts of a text with the offsets of ``source``, and at most ``enough`` mistakes of their order."""
    return _Outliner(source, text, enough).run()


class _Outliner:
    """Goes through a text; ``found`` is what it has seen so far."""

    def __init__(self, source: Source, text: str, enough: int) -> None:
        self.source = source
        self.text = text
        self.enough = enough
        self.found = Outline()
        self.ordinary = pattern("LINE").match
        self.last = len(text.rstrip())
        self.headings: list[int] | None = None
        self.tentative: TentativeProblem | None = None

    # ---- the module ----

    def run(self) -> Outline:
        at = self.front()
        self.found.front = at
        while len(self.found.problems) < self.enough:
            at = skip(self.text, at)
            if at >= len(self.text):
                break
            at = self.next(at)
        return self.found

    def front(self) -> int:
        """Where the first computation begins."""
        text = self.text
        at = 0
        if OPENING.match(text):
            header = HEADER.match(text)
            if header is None:
                return self.heading_after(at)
            attributes = pattern("LINE_ATTRIBUTES").match(text, header.end())
            at = skip(text, attributes.end() if attributes else header.end())
            if _CONTINUED.match(text, at) and not self.heading_at(at):
                return self.heading_after(at)
        at = skip(text, at)
        return self.heading_after(at) if _TABLES.match(text, at) else at

    def next(self, at: int) -> int:
        """What stands at ``at`` between computations; where to go on."""
        text, found = self.text, self.found
        if self.instruction_at(at):
            return self.body(at, self.outside(at))
        heading = self.heading_at(at)
        if heading is not None:
            return self.computation(at, heading)
        if text[at] == "}":
            notes = tuple(
                f"computation {part.name!r} has been closed on line {self.source.line(part.close)}"
                for part in found.parts[-1:]
            )
            found.problems.append(Problem(at, "this '}' closes nothing", notes=notes))
            more = _BRACES.match(text, at)
            return more.end() if more else at + 1
        if text.startswith("HloModule", at) and not found.parts and not OPENING.match(text):
            return self.heading_after(at)
        if text.startswith("HloModule", at):
            message = "a second module begins here: a text holds one module"
            found.problems.append(Problem(at, message, "HloModule"))
            return len(text)
        if text.startswith(("...", "\u2026"), at):
            found.problems.append(left_out(at))
            found.lost = True
        elif (
            found.parts and (name := TARGET.match(text, at)) and skip(text, name.end()) == len(text)
        ):
            message = "the text ends within the heading of a computation"
            found.problems.append(Problem(self.last, message, notes=(CUT_OFF,)))
        else:
            word, width = found_at(text, at)
            what = "a computation" if found.parts else "'HloModule' or a computation"
            problem = odd_character(text, at) or Expected(at, what, word, width=width)
            found.problems.append(problem)
        return self.heading_after(at + 1)

    def outside(self, at: int) -> ComputationOutline:
        """The computation of an instruction behind the end of the last one: that one where its root has not
        come yet, else one without a heading.
        """
        match = TARGET.match(self.text, at)
        name = match[1].lstrip("%") if match else ""
        message = f"instruction {name!r} stands outside of a computation"
        notes: tuple[str, ...] = ()
        part = self.found.parts[-1] if self.found.parts else None
        if part is not None:
            notes = (
                f"this '}}' on line {self.source.line(part.close)} ends computation {part.name!r}",
            )
        if part is not None and not part.pieces:
            message = f"this '}}' ends computation {part.name!r} before its first instruction"
            self.found.problems.append(Problem(part.close, message))
            return part
        if part is None or self.has_root(part):
            self.found.lost = True
            part = ComputationOutline("", at, at, at, headless=True, lost=True)
            self.found.parts.append(part)
        width = match.end() - at if match else 1
        self.found.problems.append(Problem(at, message, width=width, notes=notes))
        return part

    def has_root(self, part: ComputationOutline) -> bool:
        last = part.pieces[-1]
        return self.text.startswith("ROOT", last if isinstance(last, int) else last.start)

    def instruction_at(self, at: int) -> bool:
        match = TARGET.match(self.text, at)
        if match is None:
            return False
        end = skip(self.text, match.end())
        if self.text.startswith(":", end):
            end = skip(self.text, end + 1)
        return self.text.startswith("=", end) and (end > match.end() or match[1][0] == "%")

    def heading_at(self, at: int) -> re.Match[str] | None:
        match = _HEADING.match(self.text, at)
        return match if match is not None and (match[1] or match[2]) else None

    def heading_after(self, at: int) -> int:
        """Where the next line begins that looks like that of a computation."""
        if self.headings is None:
            self.headings = [match.start() for match in LINE_OF_HEADING.finditer(self.text)]
        index = bisect_left(self.headings, at)
        return self.headings[index] if index < len(self.headings) else len(self.text)

    # ---- a computation ----

    def computation(self, at: int, heading: re.Match[str]) -> int:
        text = self.text
        name = heading[2] or ""
        name_at = heading.start(2) if name else heading.end()
        part = ComputationOutline(name.lstrip("%"), at, name_at + name.startswith("%"), -1)
        self.found.parts.append(part)
        opened, end = self.opening(heading.end())
        part.body = end
        if opened:
            return self.body(end + 1, part)
        if skip(text, end) >= len(text):
            part.headless = True
            message = f"the text ends within the heading of computation {part.name!r}"
            self.found.problems.append(Problem(self.last, message, notes=(CUT_OFF,)))
            return len(text)
        where = len(text[:end].rstrip())
        message = f"expected '{{' before the instructions of computation {part.name!r}"
        self.found.problems.append(Problem(where, message))
        return self.body(end, part)

    def opening(self, at: int) -> tuple[bool, int]:
        """The brace that opens a body after a heading; or there is none, and where the body begins."""
        text = self.text
        layout = False
        for match in SCAN.finditer(text, at):
            piece, start = match[0], match.start()
            if piece == "{":
                layout = _LAYOUT.match(text, match.end()) is not None
                if not layout:
                    return True, start
            elif piece == "}":
                if not layout:
                    return False, start
                layout = False
            elif piece == "\n" and boundary(text, start):
                return False, start + 1
        return False, len(text)

    def body(self, at: int, part: ComputationOutline) -> int:
        """The instructions from ``at`` to the brace that ends the body; where to go on."""
        text, pieces = self.text, part.pieces
        length = len(text)
        self.tentative = None
        while True:
            at = skip(text, at)
            if at >= length:
                self.cut(part)
                return length
            if text[at] == "}":
                part.close = at
                return self.after(at + 1, part)
            if module_or_heading(text, at):
                self.unended(part, at)
                return at
            line = self.ordinary(text, at)
            if line is not None and self.whole(at, line.end()):
                pieces.append(at)
                at = line.end()
                continue
            scan = PieceScan(self.source, text, at)
            piece = scan.run()
            self.tentative = self.tentative or scan.tentative
            pieces.append(piece)
            at = piece.end

    def whole(self, at: int, end: int) -> bool:
        """Whether what was matched as a line from ``at`` to ``end`` is an instruction and no more."""
        text = self.text
        if INSTRUCTION.search(text, at, end) or text.find("\n}", at, end) >= 0:
            return False
        following = skip(text, end)
        if following < len(text) and text[following] == "}":
            return AFTER_BODY.match(text, following + 1) is not None
        if following >= len(text) or self.instruction_at(following):
            return True
        return "\n" in text[end:following] and not _CONTINUED.match(text, following)

    def after(self, at: int, part: ComputationOutline) -> int:
        """Past the attributes of a computation."""
        match = pattern("LINE_ATTRIBUTES").match(self.text, at) or _ATTRIBUTES.match(self.text, at)
        part.after = match.end() if match else at
        return part.after

    def unended(self, part: ComputationOutline, at: int) -> None:
        notes = (f"computation {part.name!r} begins on line {self.source.line(part.start)}",)
        message = f"computation {part.name!r} is not closed: expected '}}' before this"
        self.found.problems.append(self.tentative or Problem(at, message, notes=notes))

    def cut(self, part: ComputationOutline) -> None:
        """The text ends within a body."""
        last = part.pieces[-1] if part.pieces else None
        if isinstance(last, Piece) and last.cut:
            return
        notes: tuple[str, ...] = (
            f"computation {part.name!r} begins on line {self.source.line(part.start)}",
            CUT_OFF,
        )
        message = f"the text ends within computation {part.name!r}: expected '}}'"
        if part.headless:
            message, notes = "the text ends within a computation: expected '}'", (CUT_OFF,)
        self.found.problems.append(self.tentative or Problem(self.last, message, notes=notes))

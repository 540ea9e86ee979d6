"""Error recovery of the parser: all mistakes of a text.

A text without a mistake is never read here.  The outline of the text is read piece by piece;
a piece that cannot be read is reported once, and a placeholder instruction keeps what depends on it
from being reported as well.  Nothing is read twice, so that many mistakes cost no more than one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from hloopt.ir import Computation, Instruction, edit
from hloopt.source import Source
from hloopt.text.attributes import Tail
from hloopt.text.body import BodyReader
from hloopt.text.grammar import pattern, read, shape_of
from hloopt.text.hints import PLAIN, Odd, first_unclosed, found_at
from hloopt.text.module import ModuleReader
from hloopt.text.names import ComputationNames
from hloopt.text.outline import HEADER, OPENING, outline
from hloopt.text.parts import CUT_OFF, ComputationOutline, Piece, TentativeProblem, left_out, skip
from hloopt.text.problem import Expected, Problem, Undefined
from hloopt.text.records import AttributeText, InstructionText, ModuleText, OperandText
from hloopt.text.scope import Head, TailPlaces, TextScope
from hloopt.types import Shape, TupleShape

__all__ = ["mistakes"]

_UNKNOWN = TupleShape(())
_EMPTY_BODY = "{ROOT _ = () tuple()}"
_EMPTY_COMPUTATION = f"\n_ {_EMPTY_BODY}"
_TRAILING_COMMA = re.compile(r",")
_WORDS = re.compile(r"%?[A-Za-z0-9_.-]+|[^ \t\r\n]")
_LONGEST_WORD = 200
_CONFLICT = re.compile(r"<{7} |={7}$|>{7} |\|{7} ", re.MULTILINE)
# What is reported once where it repeats: a word that does not exist.
_MOST_REPEATED = 1000
_REPEATED = re.compile(r"^unknown |\bhas no (?:attribute )?'")
_BEGINNING = re.compile(
    r"(ROOT[ \t\r\n]++)?+(%?+[A-Za-z_][A-Za-z0-9_.-]*+)[ \t\r\n]*+:?+[ \t\r\n]*+=?+[ \t\r\n]*+"
)


def mistakes(text: str, source: Source, strict: bool, most: int) -> tuple[list[Problem], bool]:
    """The mistakes of ``text`` in its order, at most ``most``, and whether there may be more.

    ``text`` has the offsets of ``source``.  None are found where the text is so broken that it has no parts.
    """
    reader = _Recovery(source, text, strict, most + 1)
    found = reader.look()
    odd = [problem for problem in found if isinstance(problem, Odd)]
    if odd:
        # One such character seldom comes alone; the text is read as if they were plain ones.
        count = sum(map(text.count, PLAIN))
        odd[0].notes = (
            (f"there are {count} characters of this sort in the text",) if count > 1 else ()
        )
        plain = text.translate({ord(key): value or " " for key, value in PLAIN.items()})
        again = _Recovery(source, plain, strict, most).look()
        found = sorted([odd[0], *again], key=lambda problem: problem.offset)
    return found[:most], len(found) > most or reader.repeated >= _MOST_REPEATED


class _Enough(Exception):  # noqa: N818 - no error: it ends the reading
    """As many mistakes as are wanted have been found."""


class _Consequence(Problem):
    """A mistake that would not be there but for another one."""


class _Recovery(BodyReader):
    """Reads what can be read of a text and keeps every mistake.

    ``part`` is the computation that is being read, ``standing`` what stands in for broken instructions of it;
    the shape of those of which none is known is ``_UNKNOWN``.
    """

    def __init__(self, source: Source, text: str, strict: bool, most: int) -> None:
        super().__init__(source, text, strict)
        self.module = ModuleReader(self)
        self.outline = outline(source, text, most)
        self.names = ComputationNames(source, text, self.outline)
        self.part = ComputationOutline("", 0, 0, 0)
        self.standing: set[Instruction] = set()
        self.most = most
        self.found: list[Problem] = []
        self.last = len(text.rstrip())
        self.repeated = 0
        self.entry: ComputationOutline | None = None
        # Whether an instruction of this computation is too broken to have a name.
        self.nameless = False

    def look(self) -> list[Problem]:
        with suppress(_Enough):
            self.front(self.outline.front)
            for part in self.outline.parts:
                self.computation_of(part)
        found = [*self.found, *filter(self.is_sure, self.outline.problems)]
        return sorted(found, key=lambda problem: problem.offset)[: self.most]

    def is_sure(self, problem: Problem) -> bool:
        """A suspicion is a mistake where nothing else is wrong."""
        return not isinstance(problem, TentativeProblem) or not any(
            problem.start <= other.offset < problem.end for other in self.found
        )

    def add(self, problem: Problem) -> None:
        """Keep a mistake that is not the consequence of another."""
        if isinstance(problem, Undefined):
            named = self.names.undefined(problem, self.part)
            if named is None:
                return
            problem = named
        elif isinstance(problem, _Consequence):
            return
        elif problem.message in self.reported:
            self.repeated += 1
            if self.repeated >= _MOST_REPEATED:
                raise _Enough
            return
        if _REPEATED.search(problem.message):
            self.reported.add(problem.message)
        self.found.append(problem)
        if len(self.found) >= self.most:
            raise _Enough

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Go on after what is done here when it finds a mistake."""
        try:
            yield
        except Problem as problem:
            self.add(problem)

    # ---- the module ----

    def front(self, end: int) -> None:
        """The header and the tables."""
        last = self.last
        ends = Problem(last, "the text ends before the first computation", notes=(CUT_OFF,))
        if OPENING.match(self.text) and not HEADER.match(self.text):
            at = skip(self.text, skip(self.text, 0) + len("HloModule"))
            found, width = found_at(self.text, at)
            self.add(Expected(at, "the name of the module", found, width=width))
            return
        try:
            syntax: ModuleText = read("module", self.text[:end] + _EMPTY_COMPUTATION)
        except Problem as problem:
            problem = self.placed(problem, 0, end)
            if problem.offset >= last or problem.offset >= len(self.text[:end].rstrip()):
                problem = first_unclosed(self.text[:end]) or problem
            self.add(problem if problem.offset + problem.width < last else ends)
            return
        if end >= len(self.text):
            self.add(ends)
        if syntax.name is not None:
            name = syntax.name.lstrip("%")
            with self.noting():
                self.check_word(name, syntax.name.begin + len(syntax.name) - len(name))
        for entry in syntax.attributes:
            with self.noting():
                self.module.header_attribute(entry)
        with self.noting():
            self.module.tables(syntax)

    def placed(self, problem: Problem, start: int, end: int) -> Problem:
        """The mistake in the text between ``start`` and ``end``, with what really follows there."""
        problem = problem.moved(start)
        last = start + len(self.text[start:end].rstrip())
        if problem.offset < last or not isinstance(problem, Expected):
            problem.offset = min(problem.offset, last)
            return problem
        comma = _TRAILING_COMMA.search(self.text, max(start, last - 1), last)
        if comma is not None:
            return Problem(comma.start(), "expected an attribute after this ','")
        following = skip(self.text, last)
        found, width = found_at(self.text, following)
        if "\n" in self.text[last:following] and following < len(self.text):
            return Problem(last, f"expected {problem.words} after {self.last_word(start, last)}")
        return Expected(following, problem.words, found, width=width)

    def last_word(self, start: int, end: int) -> str:
        *_, word = _WORDS.finditer(self.text, max(start, end - _LONGEST_WORD), end)
        return repr(word[0])

    # ---- a computation ----

    def computation_of(self, part: ComputationOutline) -> None:
        self.part, self.standing, self.nameless = part, set(), False
        declared = self.heading(part)
        computation = Computation(part.name, part.name_at)
        root = self.pieces(part, computation)
        root = root or self.declared_root(computation, declared)
        if not part.pieces and part.close >= 0:
            self.add(Expected(part.close, "an instruction", "'}'"))
        if root is not None:
            computation.root = root
            with self.noting():
                self.check_whole(part, computation, declared)
        with self.noting():
            self.attributes_of(part, computation)
        # Without a root it is as if there were no computation: a call of it says nothing.
        if root is not None and part.name and part.name not in self.computations:
            edit.add_computation(self.result, computation)
            self.computations[part.name] = computation

    def heading(self, part: ComputationOutline) -> Shape | None:
        """Check name and mark; the shape that is declared to be the result's."""
        name, text = part.name, self.text[part.start : part.body]
        first = self.names.first[name] if name else part
        if first is not part:
            note = f"the first is on line {self.source.line(first.start)}"
            message = f"computation {name!r} is defined twice"
            at = part.name_at - (self.text[part.name_at - 1] == "%")
            self.add(Problem(at, message, width=part.name_at + len(name) - at, notes=(note,)))
        elif name:
            with self.noting():
                self.check_word(name, part.name_at)
        if text.startswith("ENTRY"):
            if self.entry is not None:
                message = "a second computation is marked ENTRY"
                line = self.source.line(self.entry.start)
                notes = (f"the first is {self.entry.name!r} on line {line}",)
                self.add(Problem(part.start, message, "ENTRY", notes=notes))
            self.entry = self.entry or part
        if part.headless:
            return None
        try:
            syntax: ModuleText = read("module", text + _EMPTY_BODY)
        except Problem as problem:
            self.add(self.placed(problem, part.start, part.body))
            return None
        head = syntax.computations[0]
        if self.strict and head.parameters is not None:
            try:
                self.module.check_signature(head.parameters)
            except Problem as problem:
                self.add(problem.moved(part.start))
        return head.result

    def pieces(self, part: ComputationOutline, computation: Computation) -> Instruction | None:
        """Read the instructions; the root, or None where it is not known."""
        scope = TextScope(computation, [], 0, set(part.names(self.text)))
        root: Instruction | None = None
        marked = False
        for piece in part.pieces:
            for instruction, is_root in self.instructions(scope, piece):
                if is_root and marked and root is not None:
                    self.add(self.second_root(computation, root, instruction))
                elif is_root or not marked:
                    root = instruction
                    marked = marked or is_root
        known = marked or not (part.lost or self.nameless)
        return root if known and root is not None and root.shape is not _UNKNOWN else None

    def declared_root(self, computation: Computation, declared: Shape | None) -> Instruction | None:
        """A placeholder for the root: a call of the computation reads nothing but its shape."""
        if declared is None:
            return None
        return self.stand_in(computation, f"{computation.name}.root", declared, computation.offset)

    def check_whole(
        self, part: ComputationOutline, computation: Computation, declared: Shape | None
    ) -> None:
        """Check what can be checked of a computation as a whole."""
        if not (self.standing or self.nameless or part.lost or part.close < 0):
            self.check_parameters(computation)
            self.module.check_result(computation, declared)

    def attributes_of(self, part: ComputationOutline, computation: Computation) -> None:
        start = part.close + 1
        if part.close < 0 or part.after <= start:
            return
        try:
            entries = read("attributes", self.text[start : part.after])
        except Problem as problem:
            raise self.placed(problem, start, part.after) from None
        for entry in entries:
            with self.noting():
                self.module.computation_attribute(computation, entry.moved(start))

    # ---- an instruction ----

    def instructions(
        self, scope: TextScope, piece: int | Piece
    ) -> Iterator[tuple[Instruction, bool]]:
        """What a piece of a body defines; a broken instruction with a shape has a stand-in."""
        if isinstance(piece, int):
            match = self.parts(self.text, piece)
            assert match is not None, "the outline takes lines for such only when they match"
            yield self.one(scope, match, None, 0)
            return
        try:
            items = read("body", self.text[piece.start : piece.end])
        except Problem as problem:
            self.add(self.syntax(problem, piece))
            yield from self.guessed(scope, piece)
            return
        inner = replace(scope, items=items, base=piece.start)
        for item, more, start in self.items(inner):
            yield self.one(inner, item, more, start)

    def one(
        self,
        scope: TextScope,
        item: InstructionText | re.Match[str],
        more: list[AttributeText] | None,
        start: int,
    ) -> tuple[Instruction, bool]:
        self.depth = 0
        try:
            return self.item(scope, item, more, start)
        except Problem as problem:
            if isinstance(item, InstructionText):
                root, name, shape = item.root, str(item.name), item.shape
                at = scope.base + item.name.begin
            else:
                root, name = item["root"] is not None, item["target"]
                shape, at = _shape_at(item["head"]), start + item.start("target")
            self.add(problem)
            return self.instead(scope.computation, name, root, shape, at)

    def instead(
        self, computation: Computation, name: str, root: bool, shape: Shape | None, at: int
    ) -> tuple[Instruction, bool]:
        """What stands in for a broken instruction, unless another one has its name."""
        name = name.lstrip("%")
        known = computation.by_name.get(name)
        if known is not None:
            return known, False
        return self.stand_in(computation, name, shape or _UNKNOWN, at), root

    def stand_in(self, computation: Computation, name: str, shape: Shape, at: int) -> Instruction:
        instruction = Instruction(name, "custom-call", shape, (), {}, None, at)
        self.standing.add(instruction)
        return edit.append(computation, instruction)

    def operand(self, scope: TextScope, syntax: OperandText, at: int) -> Instruction | None:
        """Nothing is wrong with an operand of which no shape is known."""
        found = scope.computation.by_name.get(syntax.name.lstrip("%"))
        if syntax.arguments is None and found is not None and found.shape is _UNKNOWN:
            return found
        return super().operand(scope, syntax, at)

    def finish(
        self,
        scope: TextScope,
        instruction: Instruction,
        head: Head,
        tail: Tail,
        places: TailPlaces | None,
    ) -> None:
        """What is wrong with an instruction as a whole may be so because of an operand's shape."""
        standing = self.standing.intersection(instruction.operands)
        unknown = any(operand.shape is _UNKNOWN for operand in standing)
        try:
            super().finish(scope, instruction, head, tail, places)
        except Problem as problem:
            follows = unknown or (standing and head.shape is None)
            if problem.offset != instruction.offset or not follows:
                raise
            raise _Consequence(problem.offset, problem.message) from None
        if unknown and head.shape is None:
            instruction.shape = _UNKNOWN
            self.standing.add(instruction)

    def guessed(self, scope: TextScope, piece: Piece) -> Iterator[tuple[Instruction, bool]]:
        """The stand-in for a piece that is not even well formed: by the words it begins with."""
        match = _BEGINNING.match(self.text, piece.start, piece.end)
        if match is None:
            self.nameless = True
            return
        shape = _shape_at(self.text[match.end() : piece.end])
        root, name, at = match[1] is not None, match[2], match.start(2)
        yield self.instead(scope.computation, name, root, shape, at)

    def syntax(self, problem: Problem, piece: Piece) -> Problem:
        """The mistake in the form of a piece: what the grammar says, or a bracket that is not closed."""
        text = self.text
        if text.startswith(("...", "\u2026"), piece.start):
            self.part.lost = True
            return left_out(piece.start)
        if _CONFLICT.match(text, piece.start):
            return Problem(
                piece.start, "this is the mark of a conflict between two versions", width=7
            )
        problem = self.placed(problem, piece.start, piece.end)
        last = piece.start + len(text[piece.start : piece.end].rstrip())
        if piece.unclosed is not None and problem.offset == piece.opened:
            return piece.unclosed
        if piece.unclosed is not None and problem.offset > piece.opened:
            here = "\n" not in text[piece.opened : problem.offset] and problem.offset < last
            return problem if here and not piece.cut else piece.unclosed
        if problem.offset + problem.width >= last >= self.last:
            return _Consequence(last, "the outline reports that the text ends")
        return problem


def _shape_at(text: str) -> Shape | None:
    """The shape that a text begins with, where it is one."""
    match = pattern("SHAPE_TEXT").match(text)
    with suppress(Problem):
        return shape_of(match[0]) if match else None
    return None

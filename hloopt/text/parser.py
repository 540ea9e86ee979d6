"""HLO text to a module."""

from __future__ import annotations

import re

from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.ir.build import no_collection
from hloopt.source import Source
from hloopt.text.body import BodyReader
from hloopt.text.grammar import read
from hloopt.text.module import ModuleReader
from hloopt.text.problem import Problem

__all__ = ["parse_module"]

_MOST_ERRORS = 20

# A text that is one instruction begins with its name and "=", or with its shape; no computation does.
_SINGLE = re.compile(
    r"(?:[ \t\r\n]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+)*+"
    r"(?:(?:ROOT[ \t\r\n]++)?+%?+[A-Za-z_][A-Za-z0-9_.-]*+:?+[ \t\r\n]*+=|[a-z0-9]++\[|\()"
)
# What a text of one instruction does not have.
_COMPUTATION = re.compile(r"^(?:ENTRY\b|\})|\{[ \t\r]*$", re.MULTILINE)


def parse_module(text: str, name: str = "<text>", *, strict: bool = False) -> Module:
    """Read a whole HLO text.

    Raises ``ParseError`` with the line and column of the first mistake, and with further ones where it is
    safe to go on.  ``module.warnings`` lists (offset, message) pairs for what was read otherwise than
    XLA's own parser does: opcodes and attributes it does not know among others, which are kept as they
    are, and text around a module, which is passed over.  ``strict`` makes mistakes of all that XLA's
    parser refuses.
    """
    source = Source(text, name)
    with no_collection():
        try:
            return _read(source, text, strict)
        except Problem as problem:
            first = problem.with_traceback(None)  # what was made so far can go
        return _second_look(source, strict, first)


def _read(source: Source, text: str, strict: bool) -> Module:
    reader = ModuleReader(BodyReader(source, text, strict))
    if _SINGLE.match(text):
        return reader.single(read("single", text))
    return reader.module(read("module", text))


def _second_look(source: Source, strict: bool, first: Problem) -> Module:
    """The module within a text that is not one as a whole; ``first`` is what stopped its reading."""
    # What explains texts that cannot be read is loaded for these alone.
    from hloopt.text.foreign import foreign
    from hloopt.text.logs import excerpt

    text = source.text
    whole = foreign(text)
    part = excerpt(text)
    if part is None or isinstance(part, Problem):
        raise _error(source, text, strict, part or whole or first, part is None and whole is None)
    outside = part.outside(text)
    if strict:
        line = source.line(part.start)
        message = f"this is not part of the module, which begins on line {line}"
        problem = Problem(outside, message, notes=("it is passed over unless read strictly",))
        raise _error(source, text, strict, problem, False)
    try:
        module = _read(source, part.text, strict)
    except Problem as problem:
        first = problem.with_traceback(None)
    else:
        module.warnings.append((outside, "what surrounds the module is passed over"))
        return module
    raise _error(source, part.text, strict, first, True)


def _error(source: Source, text: str, strict: bool, first: Problem, has_parts: bool) -> ParseError:
    """The mistake, and the others where the text has parts that can be read on their own."""
    from hloopt.text.recovery import mistakes

    problems, more = [first], False
    if has_parts and (_COMPUTATION.search(text) or not _SINGLE.match(text)):
        found, more = mistakes(text, source, strict, _MOST_ERRORS)
        # A mistake of the whole shows in no part of it; that a text ends early shows at its end.
        is_seen = found and not first.offset < found[0].offset < len(text.rstrip())
        problems = found if is_seen else [first, *found[: _MOST_ERRORS - 1]]
    errors = [
        source.error(ParseError, one.offset, one.message, width=one.width, notes=one.notes)
        for one in problems
    ]
    errors[0].others, errors[0].more = tuple(errors[1:]), more
    return errors[0]

"""HLO text to a module."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.source import Source
from hloopt.text.foreign import foreign
from hloopt.text.grammar import read
from hloopt.text.module import ModuleReader
from hloopt.text.problem import Problem
from hloopt.text.recovery import mistakes

__all__ = ["parse_module"]

_MOST_ERRORS = 20

# A text that is one instruction begins with its name and "=", or with its shape; no computation does.
_SINGLE = re.compile(
    r"(?:[ \t\r\n]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+)*+"
    r"(?:(?:ROOT[ \t\r\n]++)?+%?+[A-Za-z_][A-Za-z0-9_.-]*+:?+[ \t\r\n]*+=|[a-z0-9]++\[|\()"
)


def parse_module(text: str, name: str = "<text>", *, strict: bool = False) -> Module:
    """Read a whole HLO text.

    Raises ``ParseError`` with the line and column of the first mistake, and with further ones where it is
    safe to go on.  ``module.warnings`` lists
    (offset, message) pairs for what was read otherwise than XLA's own parser does: opcodes and
    attributes it does not know among others, which are kept as they are.  ``strict`` makes mistakes
    of all that XLA's parser refuses.
    """
    source = Source(text, name)
    with _no_collection():
        try:
            return _read(source, strict)
        except Problem as problem:
            first = problem.with_traceback(None)  # what was made so far can go
        raise _error(source, strict, first)


def _read(source: Source, strict: bool) -> Module:
    reader = ModuleReader(source, strict)
    text = source.text
    if _SINGLE.match(text):
        return reader.single(read("single", text))
    return reader.module(read("module", text))


def _error(source: Source, strict: bool, first: Problem) -> ParseError:
    """The mistakes of a text; ``first`` is what stopped its reading."""
    text = source.text
    whole = foreign(text)
    problems, more = [whole or first], False
    if whole is None and not _SINGLE.match(text):
        found, more = mistakes(text, source, strict, _MOST_ERRORS)
        # What only the whole shows comes alone: the rest may follow from it.
        if found and found[0].offset <= first.offset:
            problems = found
    errors = [
        source.error(ParseError, one.offset, one.message, width=one.width, notes=one.notes)
        for one in problems
    ]
    errors[0].others, errors[0].more = tuple(errors[1:]), more
    return errors[0]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Everything made while reading stays alive: let the garbage collector not look through it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

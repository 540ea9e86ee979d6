"""HLO text to a module."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.source import Source
from hloopt.text.grammar import read
from hloopt.text.module import ModuleReader
from hloopt.text.problem import Problem

__all__ = ["parse_module"]

# A text that is one instruction begins with its name and "=", or with its shape; no computation does.
_SINGLE = re.compile(
    r"(?:[ \t\r\n]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+)*+"
    r"(?:(?:ROOT[ \t\r\n]++)?+%?+[A-Za-z_][A-Za-z0-9_.-]*+:?+[ \t\r\n]*+=|[a-z0-9]++\[|\()"
)


def parse_module(text: str, name: str = "<text>", *, strict: bool = False) -> Module:
    """Read a whole HLO text.

    Raises ``ParseError`` with the line and column of the first mistake.  ``module.warnings`` lists
    (offset, message) pairs for what was read otherwise than XLA's own parser does: opcodes and
    attributes it does not know among others, which are kept as they are.  ``strict`` makes mistakes
    of all that XLA's parser refuses.
    """
    source = Source(text, name)
    try:
        with _no_collection():
            reader = ModuleReader(source, strict)
            if _SINGLE.match(text):
                return reader.single(read("single", text))
            return reader.module(read("module", text))
    except Problem as problem:
        raise source.error(
            ParseError, problem.offset, problem.message, width=problem.width, notes=problem.notes
        ) from None


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

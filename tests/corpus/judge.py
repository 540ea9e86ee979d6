"""What must hold for any text at all, damaged or not."""

from __future__ import annotations

from graphs import graph_difference

import hloopt
from hloopt.errors import HlooptError, ParseError, VerifyError
from hloopt.ir import Module

__all__ = ["judge"]


def judge(text: str, optimize: bool, strict: bool = False) -> str:
    """How far a text comes: ``refused``, ``invalid``, ``valid`` or ``optimised``.

    Raises whatever is no answer to a user: an exception that is no ``ParseError`` from the parser, an
    ``AssertionError`` for a place outside the text or for a module that is another one when printed
    and read again, an exception that is no ``HlooptError`` from the verifier or from O2.
    """
    try:
        module = hloopt.parse(text, "text", strict=strict)
    except ParseError as error:
        for one in (error, *error.others):
            _check_place(text, one)
        return "refused"
    for offset, message in module.warnings:
        assert 0 <= offset <= len(text), f"a warning at offset {offset}: {message}"
    _round_trip(module)
    try:
        hloopt.verify(module)
    except VerifyError as error:
        _check_place(text, error)
        return "invalid"
    if not optimize:
        return "valid"
    try:
        better = hloopt.optimize(module, "O2")
    except HlooptError:
        return "valid"
    hloopt.verify(better)
    _round_trip(better)
    return "optimised"


def _round_trip(module: Module) -> None:
    printed = module.to_text()
    again = hloopt.parse(printed, "printed")
    difference = graph_difference(module, again)
    assert not difference, f"the printed text reads as another module: {difference}"
    assert again.to_text() == printed, "printing again gives another text"


def _check_place(text: str, error: ParseError | VerifyError) -> None:
    """A line of the text, and a column of that line or the one after its end."""
    lines = text.split("\n")
    place = f"{error.line}:{error.column} for {error.message!r}"
    assert 1 <= error.line <= len(lines), f"no line {place}"
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1, f"no column {place}"
    assert str(error).startswith(f"text:{error.line}:{error.column}: error: ")

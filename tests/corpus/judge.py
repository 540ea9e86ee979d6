"""What must hold for any text at all, damaged or not."""

from __future__ import annotations

from collections.abc import Callable

import hloopt
from hloopt.errors import HlooptError, ParseError, VerifyError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from tests.helpers.graphs import graph_difference

__all__ = ["check_place", "judge", "round_trip"]


def judge(
    text: str, optimize: bool, strict: bool = False, tick: Callable[[], object] = lambda: None
) -> str:
    """How far a text comes: ``refused``, ``invalid``, ``valid`` or ``optimised``.

    ``tick`` is called before everything that a user would wait for.

    Raises whatever is no answer to a user: an exception that is no ``ParseError`` from the parser, an
    ``AssertionError`` for a place outside the text or for a module that is another one when printed
    and read again, an exception that is no ``HlooptError`` from the verifier or from O2.
    """
    tick()
    try:
        module = hloopt.parse(text, "text", strict=strict)
    except ParseError as error:
        for one in (error, *error.others):
            check_place(text, one)
        return "refused"
    for offset, message in module.warnings:
        assert 0 <= offset <= len(text), f"a warning at offset {offset}: {message}"
    round_trip(module, tick)
    tick()
    try:
        hloopt.verify(module)
    except VerifyError as error:
        check_place(text, error)
        return "invalid"
    if not optimize:
        return "valid"
    tick()
    try:
        better = hloopt.optimize(module, "O2")
    except HlooptError:
        return "valid"
    tick()
    hloopt.verify(better)
    round_trip(better, tick)
    return "optimised"


def round_trip(module: Module, tick: Callable[[], object] = lambda: None) -> None:
    """Assert that printing and reading again give the same graph and text, the canonical form, too."""
    tick()
    text = module.to_text()
    tick()
    again = hloopt.parse(text, module.name)
    difference = graph_difference(module, again)
    assert not difference, f"the printed text reads as another module: {difference}"
    assert again.to_text() == text, "printing again gives another text"
    tick()
    canonical = module.to_text(canonical=True)
    tick()
    again = hloopt.parse(canonical, module.name)
    tick()
    same = fingerprint(again) == fingerprint(module)
    assert same, "the canonical text reads as another module"
    assert again.to_text(canonical=True) == canonical, "the canonical text is not canonical"


def check_place(text: str, error: ParseError | VerifyError) -> None:
    """Assert that it is a line of the text, and a column of that line or the one after its end."""
    lines = text.split("\n")
    place = f"{error.line}:{error.column} for {error.message!r}"
    assert 1 <= error.line <= len(lines), f"no line {place}"
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1, f"no column {place}"
    assert str(error).startswith(f"text:{error.line}:{error.column}: error: ")

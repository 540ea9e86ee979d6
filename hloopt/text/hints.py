"""Syntax errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from hloopt.text.problem import Problem

__all__ = ["did_you_mean", "explain"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no known word is close."""
    close = get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def explain(error: UnexpectedInput, text: str) -> Problem:
    """A ``Problem`` for what Lark found."""
    return Problem(error.pos_in_stream or 0, str(error))

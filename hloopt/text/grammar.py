"""The grammar's parser: reads a text, or parts of one."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

from hloopt.text.lalr import Parser, Unexpected
from hloopt.text.problem import Problem
from hloopt.text.syntax import Syntax
from hloopt.text.tables import grammar_folder, load_tables
from hloopt.types import Shape

__all__ = ["pattern", "read", "shape_of", "starts"]


@cache
def _syntax() -> Syntax:
    return Syntax(read)


@cache
def _parser() -> Parser:
    return Parser(load_tables(grammar_folder()), _syntax())


def starts() -> Collection[str]:
    """The rules that are read on their own: the module, and the parts that repeat in it."""
    return _parser().ends


def read(start: str, text: str, at: int = 0) -> Any:
    """Read ``text``, which begins ``at`` an offset, as ``start``, one of ``starts()``; raises ``Problem``."""
    try:
        return _parser().parse(text, start)
    except Problem as problem:
        raise problem.moved(at) from None
    except Unexpected as error:
        from hloopt.text.hints import explain  # a text that is in order needs none of it

        raise explain(error, text, start, _parser()).moved(at) from None


def shape_of(text: str, at: int = 0) -> Shape:
    """The shape of a SHAPE_TEXT, read once per distinct text; raises ``Problem`` as ``read`` does."""
    return _syntax().shape_of(text, at)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A terminal's regular expression, made once: ``Parser.pattern``."""
    return _parser().pattern(name)

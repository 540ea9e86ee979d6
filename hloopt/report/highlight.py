"""Colours for HLO text: which tokens there are, a lexer of Pygments, and a TextMate grammar for editors.

Names, numbers, strings and shapes are the terminals of the grammar (``grammar/*.lark``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Final

from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text, Whitespace
from rich.syntax import Syntax

from hloopt.report.console import product
from hloopt.text.grammar import pattern

__all__ = ["HloLexer", "print_hlo", "textmate_grammar"]

MOST_COLOURED: Final = 1 << 18
"""Characters; a longer text is printed plain, for colours would take longer than a second."""

_WORDS: Final = (
    "HloModule", "ENTRY", "ROOT", "FileNames", "FunctionNames", "FileLocations", "StackFrames",
)  # fmt: skip
_NOT_IN_A_WORD: Final = r"(?![A-Za-z0-9_.-])"


@cache
def _tokens() -> tuple[tuple[str, Any, str], ...]:
    """Pattern, Pygments' token and TextMate's scope; the first that matches counts."""
    word, name = pattern("WORD").pattern, pattern("NAME").pattern
    return (
        (r"[ \t\r\n]++", Whitespace, ""),
        (r"//[^\n]*+|/\*.*?(?:\*/|\Z)", Comment, "comment.hlo"),
        (pattern("STRING").pattern, String, "string.hlo"),
        (f"(?:{'|'.join(_WORDS)}){_NOT_IN_A_WORD}", Keyword, "keyword.other.hlo"),
        (f"(?:true|false){_NOT_IN_A_WORD}", Keyword.Constant, "constant.language.hlo"),
        (
            rf"{pattern('PLAIN_ARRAY').pattern}|[a-z][a-z0-9]*+(?=\[)",
            Keyword.Type,
            "storage.type.hlo",
        ),
        (f"{word}(?==)", Name.Attribute, "entity.other.attribute-name.hlo"),
        (rf"{word}(?=\()", Name.Function, "entity.name.function.hlo"),
        (pattern("NUMBER").pattern, Number, "constant.numeric.hlo"),
        (rf"%{word}|{word}(?=[ \t]*+[=:])", Name.Variable, "variable.other.hlo"),
        (name, Name, ""),
        (r"[=(){}\[\],:<>#*?-]", Punctuation, ""),
        (".", Text, ""),
    )


@cache
def _scanner() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<t{i}>{row[0]})" for i, row in enumerate(_tokens())), re.DOTALL)


class HloLexer(Lexer):
    """HLO text, for Pygments and all that use it: ``pygmentize -l hlo``, Sphinx, MkDocs, rich."""

    name = "HLO"
    aliases: ClassVar[list[str]] = ["hlo"]
    filenames: ClassVar[list[str]] = ["*.hlo"]
    mimetypes: ClassVar[list[str]] = ["text/x-hlo"]
    url = "https://openxla.org/xla"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Each token with its offset."""
        kinds = {f"t{i}": row[1] for i, row in enumerate(_tokens())}
        for found in _scanner().finditer(text):
            yield found.start(), kinds[str(found.lastgroup)], found[0]

    def analyse_text(text: str) -> float:  # noqa: N805  # Pygments calls it without an instance
        """How surely a text without a name is HLO, from 0 to 1."""
        return 1.0 if re.match(r"\s*HloModule\s", text) else 0.0


def print_hlo(text: str) -> None:
    """Print HLO on stdout: coloured on a terminal that has colours, unless ``NO_COLOR`` is set."""
    console = product()
    if not console.is_terminal or console.color_system is None or console.no_color:
        sys.stdout.write(text)
        return
    if len(text) > MOST_COLOURED:
        sys.stdout.write(text)
        return
    coloured = Syntax("", HloLexer(), theme="ansi_dark").highlight(text.removesuffix("\n"))
    console.print(coloured, soft_wrap=True)


def textmate_grammar() -> dict[str, Any]:
    """What editors colour HLO by, which ``grammar/hlo.tmLanguage.json`` holds; it sees one line at a time."""
    blocks: list[dict[str, Any]] = [
        {"begin": r"/\*", "end": r"\*/", "name": "comment.block.hlo"},
        {"match": "//.*$", "name": "comment.line.double-slash.hlo"},
    ]
    for quote, kind in (('"', "double"), ("'", "single")):
        escapes = [{"match": r"\\.", "name": "constant.character.escape.hlo"}]
        name = f"string.quoted.{kind}.hlo"
        blocks.append({"begin": quote, "end": quote, "name": name, "patterns": escapes})
    words = [
        {"match": _greedy(regex), "name": scope}
        for regex, token, scope in _tokens()
        if scope and token not in (Comment, String)
    ]
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "HLO",
        "scopeName": "source.hlo",
        "fileTypes": ["hlo"],
        "patterns": [*blocks, *words],
    }


def _greedy(regex: str) -> str:
    """Without possessive quantifiers, which not every editor's engine has, or reads otherwise."""
    return re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|([*+?}])\+", r"\1\2", regex)

"""The grammar: finds ``grammar/hlo.lark``, loads or makes the LALR parser, reads parts of a text with it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from hloopt.errors import HlooptError
from hloopt.text import tables
from hloopt.text.lalr import Parser, Unexpected
from hloopt.text.syntax import Syntax
from hloopt.types import Shape

__all__ = ["STARTS", "grammar_folder", "pattern", "read", "shape_of"]

# Every rule that is read on its own: the module, and the parts that repeat in it.
STARTS = (
    "module",
    "body",
    "single",
    "line",
    "head",
    "operands",
    "attributes",
    "shape",
    "literal",
    "integer",
    "float",
    "boolean",
    "word",
    "string",
    "integers",
    "groups",
    "slices",
    "window",
    "padding",
    "conv_dims",
    "called",
    "called_list",
    "shape_list",
    "shaped_literal",
    "names",
    "metadata",
    "backend_config",
    "frontend_attributes",
    "statistics",
    "parameter_replication",
    "origin",
    "sharding",
    "domain",
    "operand_precision",
    "result_accuracy",
    "sparsity_config",
    "output_to_operand_aliasing",
    "input_output_alias",
    "buffer_donor",
    "entry_computation_layout",
    "flags",
    "origin_recovery_table",
    "raw",
)


def grammar_folder() -> Path:
    """``hloopt/grammar`` of an installed package, or ``grammar`` beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "grammar", package.parent / "grammar"):
        if (folder / "hlo.lark").is_file():
            return folder
    raise HlooptError(f"the grammar of HLO text is missing: no grammar/hlo.lark beside {package}")


@cache
def _syntax() -> Syntax:
    return Syntax(read)


@cache
def _parser() -> Parser:
    name = tables.file_name(grammar_folder(), STARTS)
    found = tables.load(name)
    if found is None:
        from hloopt.text.lalr_build import build

        found = build(grammar_folder() / "hlo.lark", STARTS)
        tables.save(name, found)
    return Parser(found, _syntax())


def read(start: str, text: str) -> Any:
    """Read ``text`` as ``start``, one of ``STARTS``; raises ``Problem``."""
    try:
        return _parser().parse(text, start)
    except Unexpected as error:
        from hloopt.text.hints import explain  # a text that is in order needs none of it

        raise explain(error, text, start, _parser()) from None


def shape_of(text: str) -> Shape:
    """The shape of a SHAPE_TEXT, read once per distinct text; raises ``Problem``."""
    return _syntax().shape_of(text)


@cache
def pattern(*terminals: str) -> re.Pattern[str]:
    """The named terminals in a row, one group each; ``X?`` is optional, ``_X`` gets no group."""
    parts = []
    for name in terminals:
        optional = "?" if name.endswith("?") else ""
        expression = _terminal(name.rstrip("?"))
        parts.append(f"({'?:' if name.startswith('_') else ''}{expression}){optional}")
    return re.compile("".join(parts))


def _terminal(name: str) -> str:
    """A terminal's regular expression; one that a file imports has that file's name in front."""
    for terminal in _parser().terminals:
        if terminal.name == name or terminal.name.endswith(f"__{name}"):
            return terminal.expression
    raise KeyError(name)

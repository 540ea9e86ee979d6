"""The package's own modules as trees, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hloopt

__all__ = ["PACKAGE", "files", "statements", "tree"]

PACKAGE = Path(hloopt.__file__).parent


@cache
def files() -> list[Path]:
    """Every Python file of the package, in the order of their paths."""
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The tree of a file; it stays as it is, since all tests share it."""
    collecting = gc.isenabled()
    # Each collection would look at all trees there are, and nothing in them is garbage.
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements within a module or a statement, at any depth; expressions, most of a tree, are not visited."""
    pending = [node]
    while pending:
        for field in pending.pop().__dict__.values():
            if isinstance(field, list):
                found = [one for one in field if isinstance(one, _WITH_STATEMENTS)]
                yield from (one for one in found if isinstance(one, ast.stmt))
                pending += found


_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

"""The package's own modules as trees, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import hloopt

__all__ = ["PACKAGE", "files", "tree"]

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
        if collecting:
            gc.enable()

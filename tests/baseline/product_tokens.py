"""How large the product is: ``python -m tests.baseline.product_tokens [FOLDER]``.

Tokens of Python that say something (no comments, docstrings, imports, line ends or indentation), docstring lines,
public names, and the lines of whatever else is shipped.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

__all__ = ["python_figures", "size"]

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("hloopt", "grammar")
_SILENT = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
})  # fmt: skip
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def size(root: Path = ROOT) -> dict[str, int]:
    """Figures of everything that is shipped below ``root``, by what they count."""
    found = {"tokens": 0, "docstring lines": 0, "public names": 0, "lines that are not Python": 0}
    for path in sorted(path for folder in SHIPPED for path in (root / folder).rglob("*")):
        if path.suffix == ".py":
            for name, figure in python_figures(path.read_text()).items():
                found[name] += figure
        elif path.is_file() and path.suffix != ".pyc":
            found["lines that are not Python"] += len(path.read_text().splitlines())
    return found


def python_figures(text: str) -> dict[str, int]:
    """``tokens``, ``docstring lines`` and ``public names`` of one Python file."""
    tree = ast.parse(text)
    docstrings = set(_docstring_lines(tree))
    return {
        "tokens": sum(_counted(text, docstrings | set(_import_lines(tree)))),
        "docstring lines": len(docstrings),
        "public names": sum(_exported(tree)),
    }


def _counted(text: str, left_out: set[int]) -> Iterator[bool]:
    """Of each token whether it counts; an f-string is one, whether this Python takes it apart (3.12) or not."""
    start, end = (getattr(tokenize, f"FSTRING_{word}", None) for word in ("START", "END"))
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        yield not depth and token.type not in _SILENT and token.start[0] not in left_out
        depth += (token.type == start) - (token.type == end)


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            yield from _lines(node.body[0])


def _import_lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _lines(node)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _exported(tree: ast.Module) -> Iterator[int]:
    """How many names each ``__all__`` has."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("__all__")], ast.List(names) | ast.Tuple(names)):
                yield len(names)


def main() -> None:
    """Print the figures."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name, figure in size(root).items():
        print(f"{figure:>10,}  {name}")


if __name__ == "__main__":
    main()

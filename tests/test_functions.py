"""How long functions of the product are, and how many of them import: each limit may only fall."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.helpers.package_trees import PACKAGE, files, statements, tree

LONGEST = 60
"""Lines of a function, its docstring among them, its decorators not."""
MOST_IMPORTS = 166
"""Imports within functions; CONTRIBUTING.md says which reasons there are for one."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in statements(tree) if isinstance(node, Function))


def too_long(tree: ast.AST) -> list[str]:
    """The names of functions above the limit."""
    return [
        function.name
        for function in functions(tree)
        if (function.end_lineno or 0) - function.lineno + 1 > LONGEST
    ]


def inner_imports(tree: ast.AST) -> set[int]:
    """The lines of imports within functions."""
    return {
        node.lineno
        for function in functions(tree)
        for node in statements(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }


def trees() -> Iterator[tuple[str, ast.AST]]:
    return ((str(path.relative_to(PACKAGE)), tree(path)) for path in files())


def test_no_function_is_longer_than_a_screen() -> None:
    """What is longer does several things, or has options that are a record."""
    assert {name: long for name, found in trees() if (long := too_long(found))} == {}


def test_imports_within_functions_become_fewer() -> None:
    """A module's own needs are at its top; by file, to see which were added."""
    found = Counter({name: len(inner_imports(found)) for name, found in trees()})
    assert found.total() <= MOST_IMPORTS, found.most_common(20)


def test_the_tests_see_what_they_count() -> None:
    """A function of 61 lines; imports in functions and methods, once each, and none at the top."""
    body = "".join(f"    a{number} = {number}\n" for number in range(60))
    assert too_long(ast.parse(f"def f():\n{body}")) == ["f"]
    assert too_long(ast.parse(f"@d(\n  1)\ndef f():\n{body[:-13]}")) == []
    text = "import a\nclass C:\n def f(self):\n  import b\n  def g():\n   from c import d\n"
    assert inner_imports(ast.parse(text)) == {4, 6}

"""Names that two modules define, and files that hold little: both may only become fewer."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from hloopt.cli.main import COMMANDS
from tests.helpers.package_trees import PACKAGE, files, statements, tree

TWICE: dict[str, str] = {
    "Array": "memory of a kernel; values in the host's memory",
    "Copy": "a statement of kernel IR; a step of a plan",
    "Emission": "what a kernel of XLA writes; what is counted of code; what writes an element",
    "Function": "one of kernel IR; one of the NumPy executor",
    "Number": "a node of kernel IR; what stands for an operand",
    "Options": "of a library call; of a run",
    "ScalarArray": "arrays of one element, in executors",
    "Site": "of a kernel; of a rewrite",
    "Step": "of a plan of each room",
    "Target": "what a statement sets; a device",
    "Value": "of each room, what stands for a result",
}
"""Public classes and type aliases that several modules define, and what each means in its room."""
LITTLE = 40
"""Lines of code below which a file is a small one."""
MOST_SMALL = 43
"""Small files; an empty ``__init__.py`` is one."""
_BLANK = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
})  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[tuple[str, Path]]:
    """The name and the path of each file of the package."""
    return ((str(path.relative_to(PACKAGE)), path) for path in files())


def kinds(module: ast.Module) -> Iterator[str]:
    """The public classes and type aliases that a module defines."""
    body = module.body
    listed = next((set(found) for node in body if (found := exported(node)) is not None), None)
    for node in body:
        match node:
            case ast.ClassDef(name) | ast.AnnAssign(ast.Name(name), ast.Name("TypeAlias")):
                if not name.startswith("_") and (listed is None or name in listed):
                    yield name


def exported(node: ast.stmt) -> list[str] | None:
    """What ``__all__`` lists."""
    match node:
        case ast.Assign([ast.Name("__all__")], ast.List() | ast.Tuple() as names):
            found: list[str] = ast.literal_eval(names)
            return found
    return None


def code_lines(text: str, module: ast.Module, enough: int = sys.maxsize) -> int:
    """Lines that are neither blank nor comments nor docstrings; they are not counted past ``enough``."""
    silent: set[int] = set()
    for node in (module, *statements(module)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            silent.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BLANK:
            lines.update(set(range(token.start[0], token.end[0] + 1)) - silent)
        if len(lines) >= enough:
            break
    return len(lines)


def twice() -> dict[str, list[str]]:
    """The files of each name that several define."""
    found = defaultdict(list)
    for file, path in sources():
        for name in kinds(tree(path)):
            found[name].append(file)
    return {name: files for name, files in found.items() if len(files) > 1}


def test_a_class_has_a_name_of_its_own() -> None:
    """A name that several modules define is in the table, with its meanings."""
    found = twice()
    assert {name: files for name, files in found.items() if name not in TWICE} == {}
    assert found.keys() == TWICE.keys(), "a row of the table is out of date"


def test_few_files_hold_little() -> None:
    """What a few lines do belongs to what they serve; a package file marks a folder, whatever is in it.

    A command has a file for its options and one for what it does, which its help does not load.
    """
    halves = {
        f"cli/{folder}{name}.py" for name, _ in COMMANDS.values() for folder in ("", "actions/")
    }
    found = {
        file: lines
        for file, path in sources()
        if not file.endswith("__init__.py") and file not in halves
        if (lines := code_lines(path.read_text(), tree(path), LITTLE)) < LITTLE
    }
    assert len(found) <= MOST_SMALL, found


def test_the_tests_see_what_they_count() -> None:
    """Classes and aliases that are public; lines without words about them."""
    text = '"""Doc."""\n__all__ = ["A", "B"]\nB: TypeAlias = int\nclass A:\n    """Doc."""\n\n    # why\n    x = 1\nclass C: ...\n'
    module = ast.parse(text)
    assert list(kinds(module)) == ["B", "A"]
    assert code_lines(text, module) == 5
    assert code_lines(text, module, 2) == 2

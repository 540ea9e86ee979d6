"""What is known of opcodes is in the op table or in tables declared over its ops, and these are complete."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import pytest

import hloopt
from hloopt.ops import OPS
from hloopt.ops.traits import ALL, TABLES
from tests.helpers.package_trees import PACKAGE, tree

OPTIONAL = ("dask", "distributed", "jax", "torch", "torch_mlir", "z3")
"""Packages that an extra installs, and that the modules which stand on them import at their top."""
MOST = 3
"""So many opcodes may stand beside each other in code; more of them are a property that the table lacks."""


def opcodes(node: ast.AST) -> list[str]:
    """The opcodes that a collection, a choice or a call lists, if two thirds of what it lists are some.

    C's functions are no opcodes, although half of them are called like some.
    """
    words = list(listed(node))
    found = [word for word in words if word in OPS]
    return found if 3 * len(found) > 2 * len(words) else []


def listed(node: ast.AST) -> Iterator[str]:
    """The words a node lists; of a union those of its parts."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield from listed(part) if isinstance(part, ast.Starred | ast.Constant) else ()
        case ast.Starred(value=part):
            yield from listed(part)
        case ast.BinOp(left=left, op=ast.BitOr() | ast.Add(), right=right):
            yield from listed(left)
            yield from listed(right)
        case ast.Dict(keys=keys):
            for key in keys:
                yield from listed(key) if isinstance(key, ast.Constant) else ()
        case ast.Call(func=ast.Name("frozenset" | "set" | "tuple" | "list"), args=[part]):
            yield from listed(part)
        case ast.Call(args=parts):
            for part in parts:
                yield from listed(part) if isinstance(part, ast.Constant) else ()
        case ast.MatchOr(patterns=patterns):
            for pattern in patterns:
                yield from listed(pattern.value) if isinstance(pattern, ast.MatchValue) else ()
        case ast.BoolOp(values=values):
            for value in values:
                if isinstance(value, ast.Compare):
                    for side in (value.left, *value.comparators):
                        yield from listed(side)


def undeclared(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Lines where more opcodes than ``MOST`` stand beside each other, outside of tables declared as such."""
    pending = [tree]
    while pending:
        node = pending.pop()
        match node:
            case ast.Assign(targets=[ast.Name("__all__")]):
                continue
            case ast.Call(func=ast.Name("op_table"), args=[ast.Dict() as rows, *rest]):
                # The keys are the table's; what they are put together of is looked at.
                pending += [*rows.values, *rest]
                continue
            case ast.Constant(str(text)):
                found = [word for word in text.split() if word in OPS]
                found = found if 5 * len(found) > 4 * len(text.split()) else []
            case _:
                found = opcodes(node)
        if len(set(found)) > MOST:
            yield getattr(node, "lineno", 0), found
        else:
            pending += ast.iter_child_nodes(node)


ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")} - {"ops"})


@pytest.mark.parametrize("room", ROOMS)
def test_no_list_of_opcodes_stands_outside_of_the_table(room: str) -> None:
    """Say it of the ops: a column of ``OpDef`` and a set in ``ops/traits.py``, or an ``op_table``."""
    place = PACKAGE / room
    found = [
        f"{path}:{line}: {' '.join(ops)}"
        for path in sorted(place.rglob("*.py") if place.is_dir() else [place])
        for line, ops in undeclared(tree(path))
    ]
    assert not found


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("x = {'add', 'and', 'or', 'xor'}", 1),
        ("x = {'add', 'and', 'or'}", 0),
        ("x = frozenset({'add', 'and'}) | {'or', 'xor'}", 1),
        ("x = (*('add', 'and'), *('or', 'xor'))", 1),
        ("x = A - {'add', 'and'} | {'or', 'xor'}", 0),
        ("x = {'add': 1, 'and': 2, 'or': 3, 'xor': 4}", 1),
        ("x = op_table({'add': 1, 'and': 2, 'or': 3, 'xor': 4}, A)", 0),
        ("x = op_table({**dict.fromkeys(('add', 'and', 'or', 'xor'), 1)}, A)", 1),
        ("x = 'add and or xor'.split()", 1),
        ("x = 'add and or xor of two numbers and more'", 0),
        ("x = op('add', 'and', 'or', 'xor')", 1),
        ("x = o == 'add' or o == 'and' or 'or' == o or o == 'xor'", 1),
        ("match x:\n  case 'add' | 'and' | 'or' | 'xor': pass", 1),
        (
            "match x:\n  case 'add': pass\n  case 'and': pass\n  case 'or': pass\n  case 'xor': pass",
            0,
        ),
        ("__all__ = ['broadcast', 'concatenate', 'iota', 'pad']", 0),
    ],
)
def test_what_counts_as_a_list(code: str, count: int) -> None:
    assert len(list(undeclared(ast.parse(code)))) == count


@cache
def tables() -> dict[str, int]:
    """The names of all declared tables, with their places in ``TABLES``."""
    for module in walk_packages(hloopt.__path__, "hloopt."):
        if not module.name.endswith("__main__"):
            try:
                import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name not in OPTIONAL:
                    raise
    places = {id(rows): at for at, (rows, _, _) in enumerate(TABLES)}
    return {
        f"{module}.{name}": places[id(value)]
        for module, loaded in sys.modules.items()
        if module.startswith("hloopt.")
        for name, value in vars(loaded).items()
        if id(value) in places
    }


def test_every_declared_table_has_a_name() -> None:
    """One made inside of a function would be declared again whenever it is called."""
    assert set(tables().values()) == set(range(len(TABLES)))


@pytest.mark.parametrize("name", sorted(tables()))
def test_a_declared_table_is_complete(name: str) -> None:
    """A row for each op it is about, or a word on what the others are; and no row for any other."""
    rows, of, otherwise = TABLES[tables()[name]]
    assert of <= ALL
    assert not rows.keys() - of, f"{name} is not about {sorted(rows.keys() - of)}"
    missing = sorted(of - rows.keys())
    if otherwise:
        assert missing, f"{name} has a row for each op: nothing is {otherwise!r}"
    else:
        assert not missing, f"{name} has no row for {missing}"

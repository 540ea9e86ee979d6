"""Every node is known to whatever walks, prints, lists and verifies the tree."""

from __future__ import annotations

from typing import get_args

import pytest

from hloopt.kernel_ir import statements
from hloopt.kernel_ir.expressions import Expr, operands_of
from hloopt.kernel_ir.listing import listing
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import Function, bodies_of, expressions_of
from tests.kernel_ir.example_nodes import EXPRESSIONS, STATEMENTS, X


def nodes(base: type) -> set[type]:
    """All classes that derive from one, in this package."""
    found = set(base.__subclasses__())
    return {one for one in found if one.__module__.startswith("hloopt.kernel_ir")}


def test_every_expression_has_an_example() -> None:
    """A new node is put on the list above."""
    assert nodes(Expr) == set(EXPRESSIONS)


def test_every_statement_has_an_example() -> None:
    """A new statement is put on the list above."""
    names = {part.strip() for part in statements.Statement.split("|")}
    assert names == {one.__name__ for one in STATEMENTS}
    assert not get_args(statements.Statement)


@pytest.mark.parametrize("expr", EXPRESSIONS.values(), ids=lambda one: type(one).__name__)
def test_expressions_are_printed_and_walked(expr: Expr) -> None:
    """Each has a text, a type, and operands that are nodes where it has fields that are."""
    assert Printer().expression(expr)
    assert expr.type.name
    fields = [getattr(expr, name) for name in type(expr).__dataclass_fields__]  # type: ignore[attr-defined]
    direct = [one for one in fields if isinstance(one, Expr)]
    direct += [one for many in fields if isinstance(many, tuple) for one in many]
    assert [one for one in direct if isinstance(one, Expr)] == list(operands_of(expr))


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=lambda one: type(one).__name__)
def test_statements_are_printed_listed_and_walked(statement: statements.Statement) -> None:
    """Each has lines, a listing, and expressions and blocks where it has fields that are."""
    function = Function("k", (), (statement,), 32)
    assert len(list(Printer().function(function))) > 2
    assert len(list(listing(function))) > 1
    fields = [getattr(statement, name) for name in type(statement).__dataclass_fields__]
    direct = [one for one in fields if isinstance(one, Expr)]
    many = [tuple(one) for one in fields if isinstance(one, tuple)]
    direct += [one for found in many for one in found if isinstance(one, Expr)]
    own = set(expressions_of(statement))
    assert set(direct) - own <= {X}  # a variable that is declared is no expression
    bodies = [one for one in many if one and not isinstance(one[0], Expr)]
    assert set(bodies) <= set(bodies_of(statement))

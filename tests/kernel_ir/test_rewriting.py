"""Trees are changed where they are told to, and nowhere else."""

from __future__ import annotations

import pytest

from hloopt.analysis.index import Index, Symbol
from hloopt.kernel_ir.expressions import Expr, IndexValue, Member, Number, Var, as_expr
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.rewriting import expanded, mentioned, rewritten
from hloopt.kernel_ir.statements import (
    Body,
    Return,
    Set,
    Statement,
    bodies_of,
    expressions_of,
    mapped,
)
from hloopt.kernel_ir.types import FLOAT, INT
from tests.kernel_ir.example_nodes import EXPRESSIONS, STATEMENTS, P, X

Y = Var("y", INT)


def renamed(expr: Expr) -> Expr | None:
    return Y if expr == X else None


@pytest.mark.parametrize("expr", EXPRESSIONS.values(), ids=lambda one: type(one).__name__)
def test_every_expression_is_rewritten(expr: Expr) -> None:
    """All that stands for x below a node is replaced; a node that stays equals what it was."""
    assert rewritten(expr, lambda _: None) == expr
    changed = rewritten(expr, renamed)
    assert X not in mentioned(changed)
    assert list(mentioned(changed)) == [Y if one == X else one for one in mentioned(expr)]


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=lambda one: type(one).__name__)
def test_every_statement_is_mapped(statement: Statement) -> None:
    """Its expressions are changed in their order, and its blocks."""
    seen: list[Expr] = []
    blocks: list[Body] = []

    def change(expr: Expr) -> Expr:
        seen.append(expr)
        return expr

    def inside(body: Body) -> Body:
        blocks.append(body)
        return body

    assert mapped(statement, change, inside) == statement
    assert sorted(map(repr, seen)) == sorted(map(repr, expressions_of(statement)))
    assert blocks == list(bodies_of(statement))


def test_what_is_returned_and_a_member_at_a_place_are_changed() -> None:
    """Fields that are not always there."""
    assert mapped(Return(X), lambda _: Y, lambda body: body) == Return(Y)
    word = Member(X, "word", INT, X)
    assert rewritten(word, renamed) == Member(Y, "word", INT, Y)
    assert mapped(Set(P[X], X), lambda one: rewritten(one, renamed), tuple) == Set(P[Y], Y)


@pytest.mark.parametrize("number", range(6))
def test_an_expanded_index_says_the_same(number: int) -> None:
    """Operation by operation, for any values of its symbols."""
    a, b = Symbol("a", 0, 40).index, Symbol("b", 0, 9).index
    index = [
        a * 3 - b - 2,
        b * -4 + a // 7,
        (a * 5 + b + 3) % 11 * 2 + 1,
        Index(5),
        Index(0),
        (a // 3 + b) % 4 - a,
    ][number]
    for values in ({"a": 0, "b": 9}, {"a": 40, "b": 0}, {"a": 17, "b": 5}):
        tree = expanded(index, lambda one: as_expr(values[one.name]))  # noqa: B023
        text = expression_text(tree).replace("/", "//")
        assert eval(text) == eval(str(index).replace("/", "//"), dict(values)), text


def test_symbols_of_indices_are_mentioned() -> None:
    """As often as they stand there."""
    a = Symbol("a", 0, 40)
    at = IndexValue(a.index * 3 + a.index // 5)
    assert list(mentioned(P[at] + Number("1.0f", FLOAT, 1.0))) == [P, a, a]

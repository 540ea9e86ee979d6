"""Equality saturation of matrix expressions by egglog; imported only where that is installed.

Sizes are arguments of each node, so that a node says by itself what it costs: ``r`` rows, ``k`` what is summed, ``q``
columns.
"""

import time
from typing import Any

from egglog import (
    EGraph,
    Expr,
    Ruleset,
    String,
    StringLike,
    birewrite,
    function,
    get_callable_args,
    get_callable_fn,
    get_literal_value,
    greedy_dag_cost_model,
    i64,
    i64Like,
    rewrite,
    ruleset,
    vars_,
)

from tests.oracle.saturation import MatrixExpression, product_flops

ROUNDS = 9
MOST_SECONDS = 2.0
"""Of saturation, looked at between rounds."""
MOST_NODES = 3_000
"""Above which it ends: the extraction looks at each of them."""


class Matrix(Expr):
    """A matrix."""

    def __init__(self, name: StringLike) -> None: ...


@function
def diagonal(name: StringLike) -> Matrix: ...


@function
def product(a: Matrix, b: Matrix, r: i64Like, k: i64Like, q: i64Like) -> Matrix: ...


@function
def scaled(a: Matrix, d: Matrix, r: i64Like, q: i64Like) -> Matrix:
    """Rows or columns times the diagonal: which of them is no matter of its cost."""


@function
def total(a: Matrix, b: Matrix, r: i64Like, q: i64Like) -> Matrix: ...


@function
def transposed(a: Matrix) -> Matrix: ...


def _rules() -> Ruleset:
    a, b, c = vars_("a b c", Matrix)
    r, k, m, q = vars_("r k m q", i64)
    (name,) = vars_("name", String)
    d = diagonal(name)
    return ruleset(
        birewrite(product(product(a, b, r, k, m), c, r, m, q)).to(
            product(a, product(b, c, k, m, q), r, k, q)
        ),
        birewrite(total(product(a, b, r, k, q), product(a, c, r, k, q), r, q)).to(
            product(a, total(b, c, k, q), r, k, q)
        ),
        birewrite(total(product(a, c, r, k, q), product(b, c, r, k, q), r, q)).to(
            product(total(a, b, r, k), c, r, k, q)
        ),
        rewrite(transposed(product(a, b, r, k, q))).to(
            product(transposed(b), transposed(a), q, k, r)
        ),
        rewrite(product(transposed(b), transposed(a), q, k, r)).to(
            transposed(product(a, b, r, k, q))
        ),
        birewrite(transposed(total(a, b, r, q))).to(total(transposed(a), transposed(b), q, r)),
        rewrite(transposed(transposed(a))).to(a),
        rewrite(total(a, b, r, q)).to(total(b, a, r, q)),
        birewrite(total(total(a, b, r, q), c, r, q)).to(total(a, total(b, c, r, q), r, q)),
        rewrite(transposed(d)).to(d),
        rewrite(product(d, a, r, k, q)).to(scaled(a, d, r, q)),
        rewrite(product(a, d, r, k, q)).to(scaled(a, d, r, q)),
    )


def saturated(given: MatrixExpression) -> int:
    """Flops of the cheapest equal expression that is found, what is shared counted once."""
    graph = EGraph()
    root = graph.let("root", _written(given))
    rules, end = _rules(), time.monotonic() + MOST_SECONDS
    for _ in range(ROUNDS):
        nodes = sum(count for _, count in graph.all_function_sizes())
        if nodes > MOST_NODES or time.monotonic() > end or not graph.run(rules).updated:
            break
    try:
        found = graph.extract(root, cost_model=greedy_dag_cost_model(_with_parts))
    except BaseException as error:
        # egglog panics where what is shared makes a part cheaper than what it is part of.
        if type(error).__name__ != "PanicException":
            raise
        found = graph.extract(root, cost_model=_with_parts)
    return sum(_flops(node) for node in _nodes(found))


def _nodes(root: Matrix) -> list[Matrix]:
    """An expression's matrices, equal ones once."""
    found: dict[str, Matrix] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if str(node) not in found:
            found[str(node)] = node
            pending += [part for part in get_callable_args(node) if isinstance(part, Matrix)]
    return list(found.values())


def _written(given: MatrixExpression) -> Matrix:
    parts = [_written(part) for part in given.parts]
    if given.kind == "leaf":
        return Matrix(given.name)
    if given.kind == "diagonal":
        return diagonal(given.name)
    if given.kind == "transpose":
        return transposed(parts[0])
    if given.kind == "sum":
        return total(parts[0], parts[1], given.rows, given.cols)
    return product(parts[0], parts[1], given.rows, given.parts[0].cols, given.cols)


def _flops(node: Any) -> int:
    kind = get_callable_fn(node)
    if kind == product:
        _, _, *sizes = get_callable_args(node, product)
        return product_flops(*map(get_literal_value, sizes))
    if kind in (total, scaled):
        _, _, *sizes = get_callable_args(node, kind)
        rows, cols = map(get_literal_value, sizes)
        return int(rows * cols)
    return 0


def _with_parts(_: EGraph, node: Any, parts: list[int]) -> int:
    """Of a node with all below it; one more, for no cycle may be free."""
    return 1 + _flops(node) + sum(parts)

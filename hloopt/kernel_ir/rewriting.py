"""Changing trees: what expressions mention, and statements with other expressions in place of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hloopt.analysis.index import Index, Quotient, Symbol, symbols_of
from hloopt.kernel_ir.expressions import (
    Array,
    ArrayValue,
    Binary,
    Element,
    Expr,
    IndexValue,
    Var,
    as_expr,
    subexpressions,
    with_operands,
)

__all__ = ["expanded", "mentioned", "rewritten"]


def mentioned(expr: Expr) -> Iterator[Var | Array | Symbol]:
    """The variables, arrays and symbols of indices in an expression, each as often as it occurs."""
    for one in subexpressions(expr):
        match one:
            case Var():
                yield one
            case Element() | ArrayValue():
                yield one.array
            case IndexValue():
                yield from symbols_of((one.index,))


def expanded(index: Index, value: Callable[[Symbol], Expr]) -> Expr:
    """An index as operations on what replaces its symbols."""
    total: Expr | None = None
    for atom, count in index.terms:
        if isinstance(atom, Symbol):
            part = value(atom)
        else:
            sign = "/" if isinstance(atom, Quotient) else "%"
            part = Binary.of(sign, expanded(atom.dividend, value), atom.divisor)
        if abs(count) != 1:
            part = part * abs(count)
        if count < 0:
            total = -part if total is None else total - part
        else:
            total = part if total is None else total + part
    constant = index.constant
    if total is None or not constant:
        return total or as_expr(constant)
    return total + constant if constant > 0 else total - -constant


def rewritten(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """An expression with what ``change`` puts in place of its nodes, outermost first; None looks below."""
    found = change(expr)
    if found is not None:
        return found

    return with_operands(expr, lambda one: rewritten(one, change))

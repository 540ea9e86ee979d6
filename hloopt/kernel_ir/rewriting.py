"""Changing trees: what expressions mention, and statements with other expressions in place of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from hloopt.analysis.index import Index, Quotient, Symbol, symbols_of
from hloopt.kernel_ir.expressions import (
    Address,
    Array,
    ArrayValue,
    Binary,
    Call,
    Cast,
    Element,
    Expr,
    IndexValue,
    Make,
    Member,
    Select,
    Unary,
    Var,
    as_expr,
    subexpressions,
)
from hloopt.kernel_ir.statements import (
    Block,
    Body,
    Copy,
    Declare,
    Do,
    For,
    If,
    Let,
    Return,
    Set,
    Statement,
    While,
)

__all__ = ["expanded", "mapped", "mentioned", "rewritten"]

S = TypeVar("S", bound="Statement")


def mentioned(expr: Expr) -> Iterator[Var | Array | Symbol]:
    """The variables, arrays and symbols of indices in an expression, each as often as it stands there."""
    for one in subexpressions(expr):
        match one:
            case Var():
                yield one
            case Element() | ArrayValue():
                yield one.array
            case IndexValue():
                yield from symbols_of((one.index,))


def expanded(index: Index, value: Callable[[Symbol], Expr]) -> Expr:
    """An index as operations on what stands for its symbols."""
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

    def again(one: Expr) -> Expr:
        return rewritten(one, change)

    match expr:
        case Unary() | Cast():
            return replace(expr, operand=again(expr.operand))
        case Binary():
            return replace(expr, left=again(expr.left), right=again(expr.right))
        case Select():
            return Select(again(expr.test), again(expr.chosen), again(expr.other))
        case Call():
            return replace(expr, arguments=tuple(map(again, expr.arguments)))
        case Member():
            at = None if expr.at is None else again(expr.at)
            return replace(expr, operand=again(expr.operand), at=at)
        case Make():
            return replace(expr, parts=tuple(map(again, expr.parts)))
        case Element():
            return Element(expr.array, tuple(map(again, expr.at)))
        case Address():
            element = again(expr.element)
            assert isinstance(element, Element), "what has an address is in memory"
            return Address(element)
        case _:
            return expr


def mapped(statement: S, change: Callable[[Expr], Expr], inside: Callable[[Body], Body]) -> S:
    """A statement with its own expressions changed, and its blocks."""
    changed: dict[str, Any] = {}
    match statement:
        case Let():
            changed["value"] = change(statement.value)
        case Declare():
            changed["values"] = tuple(map(change, statement.values))
        case Set() | Copy():
            source = "value" if isinstance(statement, Set) else "source"
            changed = {name: change(getattr(statement, name)) for name in ("target", source)}
        case Do():
            changed["call"] = change(statement.call)
        case Return(value) if value is not None:
            changed["value"] = change(value)
        case For():
            ends = {name: change(getattr(statement, name)) for name in ("first", "stop", "step")}
            changed.update(ends, body=inside(statement.body))
        case While():
            changed.update(test=change(statement.test), body=inside(statement.body))
        case If():
            body, otherwise = inside(statement.body), inside(statement.otherwise)
            changed.update(test=change(statement.test), body=body, otherwise=otherwise)
        case Block():
            changed["body"] = inside(statement.body)
    return replace(statement, **changed) if changed else statement

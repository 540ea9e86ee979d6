"""The readable listing of kernel IR: one node a line, with types, memory and what loops may become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.kernel_ir.expressions import TRUE, Array, Expr, Var
from hloopt.kernel_ir.printer import Printer, expression_text
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Block,
    Break,
    Commit,
    Copy,
    Declare,
    Do,
    For,
    Function,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Parameter,
    Return,
    Set,
    Statement,
    Wait,
    While,
)

__all__ = ["listing"]

_INDENT: Final = "  "


def listing(function: Function) -> Iterator[str]:
    """The lines of a function: its parameters, then a line a statement, blocks indented."""
    threads = f"{function.threads} threads" if function.threads else "tasks"
    yield f"kernel {function.name} ({threads}, index {function.index_type})"
    yield from (f"{_INDENT}{_parameter(one)}" for one in function.parameters)
    yield from _body(function.body, 1)


def _parameter(parameter: Parameter) -> str:
    target = parameter.target
    if isinstance(target, Var):
        return f"scalar {target.name}: {target.type}"
    words = ["reads" if parameter.is_read else "writes"] + ["alone"] * parameter.is_alone
    return f"{_array(target)} {' '.join(words)}"


def _array(array: Array) -> str:
    return f"{array.space} {array.name}: {array.element}[{', '.join(map(str, array.dims))}]"


def _body(body: Sequence[Statement], depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    for statement in body:
        match statement:
            case For() | While() | Block():
                yield indent + _head(statement)
                yield from _body(statement.body, depth + 1)
            case If():
                yield f"{indent}if {expression_text(statement.test)}"
                yield from _body(statement.body, depth + 1)
                if statement.otherwise:
                    yield f"{indent}else"
                    yield from _body(statement.otherwise, depth + 1)
            case _:
                yield indent + _line(statement)


def _head(statement: For | While | Block) -> str:
    if isinstance(statement, Block):
        return "block"
    hint = "" if statement.unroll is None else f" unroll {statement.unroll or 'all'}"
    if isinstance(statement, While):
        return f"while {expression_text(statement.test)}{hint}"
    hint += " simd" * statement.is_simd
    step = expression_text(statement.step)
    change = "" if (statement.change, step) == ("+=", "1") else f" {statement.change} {step}"
    first, stop = expression_text(statement.first), expression_text(statement.stop)
    until = f"to {stop}" if statement.test == "<" else f"while {statement.test} {stop}"
    return f"for {statement.var.name}: {statement.var.type} from {first} {until}{change}{hint}"


def _line(statement: Statement) -> str:
    match statement:
        case Let():
            return f"let {_typed(statement.var)} = {expression_text(statement.value)}"
        case Declare():
            return _declared(statement)
        case Set(target=Var()):
            return f"set {_assigned(statement.target, statement)}"
        case Set():
            return f"store {_assigned(statement.target, statement)}"
        case Do():
            return f"do {expression_text(statement.call)}"
        case Barrier():
            return f"barrier {statement.scope}"
        case Agree():
            test = expression_text(statement.test)
            return f"let {_typed(statement.var)} = all of the block agree that {test}"
        case Copy():
            target, source = map(expression_text, (statement.target, statement.source))
            where = "" if statement.test == TRUE else f" where {expression_text(statement.test)}"
            return f"copy {statement.bytes} bytes {target} from {source}{where}"
        case Commit():
            return "commit copies"
        case Wait():
            return f"wait but for {statement.groups} groups of copies"
        case LoadMatrices():
            form = " transposed" * statement.is_transposed
            source = expression_text(statement.source)
            return f"load matrices {_listed(statement.registers)} from {source}{form}"
        case MultiplyMatrices():
            left, right = map(_listed, (statement.left, statement.right))
            return f"multiply {statement.step} {_listed(statement.sums)} += {left} * {right}"
        case Break():
            return "break"
        case Return():
            return "return"
    return "; ".join(Printer().lines(statement))


def _listed(registers: Sequence[Expr]) -> str:
    return f"({', '.join(map(expression_text, registers))})"


def _typed(var: Var) -> str:
    return f"{var.name}: {var.type}"


def _assigned(target: Expr, statement: Set) -> str:
    return f"{expression_text(target)} {statement.sign}= {expression_text(statement.value)}"


def _declared(statement: Declare) -> str:
    target = statement.target
    values = ", ".join(map(expression_text, statement.values))
    if isinstance(target, Var):
        return f"var {_typed(target)} = {values}" if values else f"var {_typed(target)}"
    words = [f"align {statement.align}"] if statement.align else []
    if statement.offset is not None:
        words.append(f"at {statement.offset} of what the launch gives")
    text = " ".join(["array", _array(target), *words])
    return f"{text} = {values}" if values else text

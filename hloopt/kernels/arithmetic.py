"""Small expressions over integers, as files of kernels have them: ``min(1024, round_up(columns, 32))``.

Read by Python's parser and computed here; nothing is executed.  There are ``+ - * // %``, brackets, names, and
the functions below.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Final

from hloopt.errors import UsageError
from hloopt.rewrite.spec import did_you_mean

__all__ = ["FUNCTIONS", "evaluate"]

_LONGEST = 200
_GREATEST = 1 << 62


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _round_up(value: int, multiple: int) -> int:
    return _ceil_div(value, multiple) * multiple


def _power_of_two(value: int) -> int:
    """The least power of two that is not below it."""
    return 1 << max(0, value - 1).bit_length()


FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {
    "min": min,
    "max": max,
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "power_of_two": _power_of_two,
}
_ARITY = {
    "min": (1, 9),
    "max": (1, 9),
    "ceil_div": (2, 2),
    "round_up": (2, 2),
    "power_of_two": (1, 1),
}
_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """The value of an expression.  Raises ``UsageError`` that quotes what it does not understand."""
    if len(text) > _LONGEST:
        raise UsageError(f"an expression has at most {_LONGEST} characters: '{text[:20]}...'")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"'{text}' is not an expression") from error
    except ZeroDivisionError as error:
        raise UsageError(f"'{text}' divides by zero") from error
    except UsageError as error:
        raise UsageError(f"'{text}': {error.message}") from error


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    found = _plain(node, names)
    if abs(found) > _GREATEST:
        raise UsageError("the value does not fit into 63 bits")
    return found


def _plain(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise UsageError(f"nothing is called '{node.id}'{did_you_mean(node.id, names)}")
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, names), _value(node.right, names)
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node, names)
    raise UsageError(f"'{ast.unparse(node)}' is not understood; there are + - * // % and functions")


def _call(name: str, node: ast.Call, names: Mapping[str, int]) -> int:
    if name not in FUNCTIONS:
        raise UsageError(f"no function is called '{name}'{did_you_mean(name, FUNCTIONS)}")
    low, high = _ARITY[name]
    if node.keywords or not low <= len(node.args) <= high:
        raise UsageError(f"{name} takes {low if low == high else 'one or more'} numbers")
    return FUNCTIONS[name](*(_value(argument, names) for argument in node.args))

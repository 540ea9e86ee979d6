"""What is known of the values of integers in a function."""

from __future__ import annotations

from hloopt.kernel_ir.expressions import (
    Binary,
    Cast,
    Expr,
    IndexValue,
    Number,
    Select,
    Var,
)

__all__ = ["Ranges"]


class Ranges:
    """``ranges`` has the least and the greatest value of variables that never change."""

    def __init__(self) -> None:
        self.ranges: dict[str, tuple[int, int]] = {}

    def never(self, test: Expr) -> bool:
        """Whether a test holds for no value of its variables."""
        if not isinstance(test, Binary):
            return isinstance(test, Number) and not test.value
        sides = (test.left, test.right)
        if test.sign in ("&&", "||"):
            return (any if test.sign == "&&" else all)(map(self.never, sides))
        one, two = map(self.range, sides)
        if one is None or two is None:
            return False
        more, less = one[0] - two[1], one[1] - two[0]
        return {
            "<": more >= 0,
            "<=": more > 0,
            ">": less <= 0,
            ">=": less < 0,
            "==": more > 0 or less < 0,
        }.get(test.sign, False)

    def bound(self, var: Var, found: tuple[int, int] | None) -> None:
        if found is not None:
            self.ranges[var.name] = found

    def range(self, expr: Expr) -> tuple[int, int] | None:
        """The least and the greatest value of an integer, where they are known."""
        match expr:
            case IndexValue(index):
                return index.low, index.high
            case Number(_, kind, int(value)) if kind.is_integer:
                return value, value
            case Var(name):
                return self.ranges.get(name)
            case Cast(kind, operand) if kind.is_integer and kind.bits >= 32:
                return self.range(operand)
            case Select(_, chosen, other):
                one, two = self.range(chosen), self.range(other)
                return (min(one[0], two[0]), max(one[1], two[1])) if one and two else None
            case Binary(sign, left, right):
                one, two = self.range(left), self.range(right)
                return _combined(sign, one, two) if one and two else None
        return None


def _combined(sign: str, one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int] | None:
    if sign == "+":
        return one[0] + two[0], one[1] + two[1]
    if sign == "-":
        return one[0] - two[1], one[1] - two[0]
    if sign == "*":
        ends = [x * y for x in one for y in two]
        return min(ends), max(ends)
    if one[0] < 0 or two[0] <= 0:
        return None
    if sign == "/":
        return one[0] // two[1], one[1] // two[0]
    if sign == "%":
        return 0, min(one[1], two[1] - 1)
    return None

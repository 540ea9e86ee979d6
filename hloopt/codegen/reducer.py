"""Reducers: how accumulators begin, take in elements, and become results.

A sum, product, maximum or minimum of a narrow float type is accumulated in f32 and rounded once at the end,
nearer to the interpreter (which sums in double) than a rounding a step; every other reducer is written out as
it stands.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At
from hloopt.codegen.scalars import convert, scalar_op
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernel_ir.statements import Target
from hloopt.ops.traits import ASSOCIATIVE
from hloopt.types import DType, dtype

__all__ = ["ReducerCode"]

_WIDENED = frozenset({"add", "multiply"})


@dataclass(frozen=True)
class ReducerCode:
    """The reducer of a reduce, reduce-window, scan or scatter over ``dtypes``."""

    computation: Computation
    dtypes: tuple[DType, ...]

    @property
    def plain(self) -> str:
        """The opcode of a reducer that is one op of its two parameters, else empty."""
        root = self.computation.root
        if (
            len(self.dtypes) != 1
            or root.opcode not in ASSOCIATIVE
            or root.array.dtype is not self.dtypes[0]
        ):
            return ""
        parameters = set(self.computation.parameters)
        return root.opcode if set(root.operands) == parameters and len(parameters) == 2 else ""

    @property
    def accumulators(self) -> tuple[DType, ...]:
        """The types of the accumulators."""
        kind = self.dtypes[0]
        if self.plain in _WIDENED and kind.is_narrow_float:
            return (dtype("f32"),)
        return self.dtypes

    def lift(self, e: Elements, values: Sequence[Expr]) -> list[Expr]:
        """Elements as accumulators."""
        return [
            convert(value, kind, wide, e.uses)
            for value, kind, wide in zip(values, self.dtypes, self.accumulators, strict=True)
        ]

    def lower(self, e: Elements, values: Sequence[Expr]) -> list[Expr]:
        """Accumulators as results."""
        return [
            e.declare(kind, convert(value, wide, kind, e.uses), "rounded")
            if kind is not wide
            else value
            for value, kind, wide in zip(values, self.dtypes, self.accumulators, strict=True)
        ]

    def combine(
        self, e: Elements, left: Sequence[Expr], right: Sequence[Expr]
    ) -> Generator[At, Expr, list[Expr]]:
        """The reducer of two lists of accumulators, the earlier one first."""
        plain = self.plain
        if plain:
            return [scalar_op(plain, self.accumulators[0], [left[0], right[0]], e.uses)]
        return (yield from e.call(self.computation, [*left, *right]))

    def combined(self, e: Elements, left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        """As ``combine``, outside of emitters."""
        return e.run(self.combine(e, left, right))

    def assign(self, e: Elements, targets: Sequence[Target], right: Sequence[Expr]) -> None:
        """``targets = reducer(targets, right)``."""
        self.write(e, targets, self.combined(e, targets, right))

    def write(self, e: Elements, targets: Sequence[Target], values: Sequence[Expr]) -> None:
        """Set targets to combined values."""
        # All are computed before any is written: a result may read what another one changes.
        if len(targets) > 1:
            values = [
                value if value not in targets else e.declare(kind, value, "next")
                for value, kind in zip(values, self.accumulators, strict=True)
            ]
        for target, value in zip(targets, values, strict=True):
            e.scope.set(target, value)

    @staticmethod
    def of(instruction: Instruction) -> ReducerCode:
        """The reducer of an instruction with ``to_apply`` and half of its operands inits."""
        count = len(instruction.operands) // 2
        return ReducerCode(
            instruction.attributes["to_apply"],
            tuple(operand.array.dtype for operand in instruction.operands[:count]),
        )

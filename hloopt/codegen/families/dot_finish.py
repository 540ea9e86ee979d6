"""What calls of cuBLAS and cuDNN do with sums: scaling, adding, activations; rounded once at the end."""

from __future__ import annotations

import ml_dtypes

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.contraction_calls import Addend, CallFinish, call_finish
from hloopt.analysis.index import Index, Indices
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr, Select

__all__ = ["finished"]

# sqrt(2 / pi) and the factor of the cube: GELU approximated by tanh.
_GELU_SCALE, _GELU_CUBE = 0.7978845608028654, 0.044715


def finished(
    f: FunctionWriter, contraction: Contraction, place: Indices, total: Expr
) -> list[Expr]:
    """The results of a call at one place, in their types, from the sum there."""
    finish = call_finish(contraction.hero)
    writer = _Finisher(f, contraction, finish)
    if finish.alpha != 1:
        total = writer.op("multiply", total, writer.number(finish.alpha))
    for number in finish.factors:
        total = writer.op("multiply", total, writer.operand(number, ()))
    for addend in finish.addends:
        total = writer.op("add", total, writer.addend(addend, place))
    kept = total
    if finish.activation:
        total = writer.activated(total)
    if finish.last is not None:
        total = writer.op("multiply", total, writer.operand(finish.last, ()))
    values = [total, kept] if finish.keeps else [total]
    return [writer.stored(value, leaf) for leaf, value in enumerate(values)]


class _Finisher:
    """Arithmetic in the type of the sums."""

    def __init__(self, f: FunctionWriter, contraction: Contraction, finish: CallFinish) -> None:
        self.f = f
        self.contraction = contraction
        self.finish = finish
        self.kind = contraction.accumulator

    def number(self, value: complex) -> Expr:
        """A constant."""
        return literal(value, self.kind)

    def op(self, opcode: str, *operands: Expr) -> Expr:
        """The result of an op, named."""
        value = scalar_op(opcode, self.kind, list(operands), self.f.uses)
        return self.f.elements.scope.declare(self.f.uses.type(self.kind), value, "value")

    def operand(self, number: int, index: Indices) -> Expr:
        """An element of an operand, rounded to the type of the products."""
        e, instruction = self.f.elements, self.contraction.hero.operands[number]
        value = e.value(instruction, index)
        kind = self.contraction.kind
        if instruction.array.dtype is not kind:
            value = convert(value, instruction.array.dtype, kind, self.f.uses)
            value = e.scope.declare(self.f.uses.type(kind), value, "factor")
        if kind is self.kind:
            return value
        value = convert(value, kind, self.kind, self.f.uses)
        return e.scope.declare(self.f.uses.type(self.kind), value, "wide")

    def addend(self, addend: Addend, place: Indices) -> Expr:
        """What is added at a place."""
        index = tuple(Index(0) if at is None else place[at] for at in addend.along)
        value = self.operand(addend.operand, index)
        if addend.scale_operand is not None:
            value = self.op("multiply", value, self.operand(addend.scale_operand, ()))
        return value if addend.scale == 1 else self.op("multiply", value, self.number(addend.scale))

    def activated(self, x: Expr) -> Expr:
        """The activation of a value."""
        one = self.number(1)
        name = self.finish.activation
        if name == "GELU":
            cube = self.op("multiply", self.op("multiply", x, x), x)
            inner = self.op("add", x, self.op("multiply", self.number(_GELU_CUBE), cube))
            tanh = self.op("tanh", self.op("multiply", self.number(_GELU_SCALE), inner))
            half = self.op("multiply", self.number(0.5), x)
            return self.op("multiply", half, self.op("add", one, tanh))
        if name in ("SILU", "LOGISTIC"):
            power = self.op("exponential", self.op("negate", x))
            return self.op("divide", x if name == "SILU" else one, self.op("add", one, power))
        if name == "TANH":
            return self.op("tanh", x)
        if name == "RELU":
            return self.op("maximum", x, self.number(0))
        if name == "RELU6":
            return self.op("minimum", self.op("maximum", x, self.number(0)), self.number(6))
        below = {
            "ELU": lambda: self.op("exponential-minus-one", x),
            "LEAKY_RELU": lambda: self.op("multiply", self.number(self.finish.slope), x),
        }[name]()
        choice = Select.of(x > self.number(0), x, below)
        return self.f.elements.scope.declare(self.f.uses.type(self.kind), choice, "value")

    def stored(self, value: Expr, leaf: int) -> Expr:
        """A value as an element of result number ``leaf``."""
        kind = self.f.region.results[leaf].shape.dtype
        if self.finish.saturates and not leaf and kind.is_float and kind.bits <= 8:
            most = float(ml_dtypes.finfo(kind.numpy).max)  # type: ignore[no-untyped-call]
            value = self.op("minimum", value, self.number(most))
            value = self.op("maximum", value, self.number(-most))
        value = convert(value, self.kind, kind, self.f.uses)
        return self.f.elements.scope.declare(self.f.uses.type(kind), value, "result")

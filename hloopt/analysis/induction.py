"""Induction variables: elements of a loop's state that are ``first + t * step`` in iteration t.

1. Every integer of the body is written as ``constant + sum of coefficients * state elements``, right in its
   lowest bits (``LinearForm``): add, subtract, multiply by a known number, negate and convert keep that.
2. An element whose next value is itself plus known numbers is an induction variable; so is one that follows
   another of them one iteration late.
3. Arithmetic wraps around as the type does.  A converted variable stays one of the narrower type, ``inner``.

Left out: coefficients that are not known numbers, and steps that change (``i += j`` where j changes).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.analysis.loop_reader import CallFrame, StateSlot, WhileLoop
from hloopt.analysis.loop_values import (
    Answers,
    KnownValues,
    ScalarArray,
    constant_value,
    is_counted,
    wrapped,
)
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import DType, of_numpy

__all__ = ["Affine", "Inductions", "LinearForm"]

_NONE: Final = MappingProxyType[StateSlot, int]({})


@dataclass(frozen=True, slots=True)
class Affine:
    """``first + t * step`` in iteration t, modulo the range of ``inner``, converted to ``dtype``."""

    dtype: DType
    inner: DType
    first: int
    step: int

    def at(self, iteration: int) -> int:
        """The value in an iteration, counted from 0."""
        return wrapped(wrapped(self.first + iteration * self.step, self.inner), self.dtype)


@dataclass(frozen=True)
class LinearForm:
    """``constant + sum of terms``, modulo the range of ``inner``.

    ``exact``: the value is that number of type ``inner``, converted to ``dtype`` without a change; otherwise
    only the lowest ``inner.bits`` bits of the value are known.
    """

    dtype: DType
    inner: DType
    exact: bool
    constant: int
    terms: MappingProxyType[StateSlot, int]

    @property
    def number(self) -> int | None:
        """The value, where no state element has a part in it."""
        if self.terms or not self.exact:
            return None
        return wrapped(wrapped(self.constant, self.inner), self.dtype)


class Inductions(Answers[LinearForm]):
    """The induction variables of one loop, found on demand.

    The answer for an instruction is its form by the state elements at the start of its iteration.
    """

    def __init__(self, loop: WhileLoop) -> None:
        super().__init__(loop.inside)
        self.loop = loop
        self._initial: dict[StateSlot, int | None] = {}
        self._slots: dict[StateSlot, Affine | None] = {}
        self._values = KnownValues(loop.inside, {})

    def initial_value(self, slot: StateSlot) -> ScalarArray | None:
        """The integer or pred in all elements of a state element before the loop."""
        place = self.loop.initial(slot)
        return None if place is None else KnownValues(self.loop.outside, {}).of(*place)

    def variable(self, slot: StateSlot) -> Affine | None:
        """The state element as an induction variable of a known first value (the step may be 0)."""
        if slot not in self._slots:
            self._slots[slot] = None
            self._slots[slot] = self._variable(slot)
        return self._slots[slot]

    def step(self, slot: StateSlot) -> int | None:
        """What one iteration adds to a state element, whatever its first value is."""
        shape, form = self.loop.shape(slot), self._next(slot)
        if shape is None or form is None or form.inner.bits != shape.dtype.bits:
            return None
        rest = self._without(form, slot)
        return None if rest is None else _signed(rest, shape.dtype)

    def affine(self, instruction: Instruction, frame: CallFrame | None = None) -> Affine | None:
        """An instruction of condition or body as a number of the iteration."""
        form = self.of(instruction, frame)
        return None if form is None or not form.exact else self._resolved(form)

    def _variable(self, slot: StateSlot) -> Affine | None:
        shape, value = self.loop.shape(slot), self.initial_value(slot)
        if shape is None or value is None or not shape.dtype.is_integer:
            return None
        kind, first = shape.dtype, int(value)
        step = self.step(slot)
        if step is not None:
            return Affine(kind, kind, first, step)
        form = self._next(slot)
        late = None if form is None or slot in form.terms else self._resolved(form)
        if late is None or late.inner.bits != kind.bits:
            return None
        return (
            Affine(kind, kind, first, late.step)
            if late.at(-1) == wrapped(first, late.inner)
            else None
        )

    def _next(self, slot: StateSlot) -> LinearForm | None:
        return self.at(self.loop.following(slot))

    def _without(self, form: LinearForm, slot: StateSlot) -> int | None:
        """What a form adds to a state element: known numbers only."""
        if form.terms.get(slot) != 1:
            return None
        total = form.constant
        for other, coefficient in form.terms.items():
            if other != slot:
                value = self._steady(other)
                if value is None:
                    return None
                total += coefficient * value
        return total

    def _steady(self, slot: StateSlot) -> int | None:
        """The value of an element that the body passes through unchanged."""
        if slot not in self._initial:
            value = self.initial_value(slot) if self.loop.is_passed_on(slot) else None
            self._initial[slot] = None if value is None else int(value)
        return self._initial[slot]

    def _resolved(self, form: LinearForm) -> Affine | None:
        """A form with all state elements replaced by what they are in iteration t."""
        first, step = form.constant, 0
        for slot, coefficient in form.terms.items():
            variable = self.variable(slot)
            if variable is None:
                return None
            first += coefficient * variable.first
            step += coefficient * variable.step
        inner = form.inner
        return Affine(form.dtype, inner, wrapped(first, inner), _signed(step, inner))

    def _of_slot(self, slot: StateSlot) -> LinearForm | None:
        shape = self.loop.shape(slot)
        if shape is None or not shape.dtype.is_integer or shape.is_dynamic or not shape.elements:
            return None
        return LinearForm(shape.dtype, shape.dtype, True, 0, MappingProxyType({slot: 1}))

    def _compute(
        self, instruction: Instruction, frame: CallFrame | None, depth: int
    ) -> LinearForm | None:
        if not is_counted(instruction) or not instruction.array.dtype.is_integer:
            return None
        if instruction.opcode == "constant":
            return _number(constant_value(instruction))
        is_same_bits = instruction.opcode == "bitcast-convert"
        if not instruction.is_understood or (instruction.op.numpy is None and not is_same_bits):
            return None
        value = self._values.of(instruction, frame)
        if value is not None:
            return _number(value)
        operands: list[LinearForm] = []
        for operand in instruction.operands:
            form = self.of(operand, frame, depth) if is_counted(operand) else None
            if form is None:
                return None
            operands.append(form)
        return _combined(instruction, operands)


def _signed(step: int, kind: DType) -> int:
    """The step of least size that is congruent: 255 is -1 in u8; of two, the one that counts up."""
    step &= (1 << kind.bits) - 1
    return step - (1 << kind.bits) if step > 1 << (kind.bits - 1) else step


def _number(value: ScalarArray | None) -> LinearForm | None:
    if value is None or value.dtype.kind == "b":
        return None
    kind = of_numpy(value.dtype)
    return LinearForm(kind, kind, True, int(value), _NONE)


def _combined(instruction: Instruction, operands: list[LinearForm]) -> LinearForm | None:
    kind = instruction.array.dtype
    opcode, first = instruction.opcode, operands[0]
    if opcode == "convert" or (opcode == "bitcast-convert" and first.dtype.bits == kind.bits):
        return _converted(first, kind)
    if opcode == "negate":
        return _sum(kind, first, first, -1, 0)
    if opcode in ("add", "subtract"):
        return _sum(kind, first, operands[1], 1, 1 if opcode == "add" else -1)
    if opcode == "multiply":
        left, right = first.number, operands[1].number
        if right is not None:
            return _sum(kind, first, first, right, 0)
        if left is not None:
            return _sum(kind, operands[1], operands[1], left, 0)
    if opcode == "shift-left" and operands[1].number is not None:
        amount = operands[1].number
        return _sum(kind, first, first, 1 << amount if 0 <= amount < kind.bits else 0, 0)
    return None


def _sum(
    kind: DType, left: LinearForm, right: LinearForm, by_left: int, by_right: int
) -> LinearForm:
    """``by_left * left + by_right * right``, right in the bits that both are right in."""
    narrow = min(left.inner, right.inner, key=lambda inner: inner.bits)
    whole = narrow.bits == kind.bits
    terms: dict[StateSlot, int] = {}
    for form, factor in ((left, by_left), (right, by_right)):
        for slot, coefficient in form.terms.items():
            terms[slot] = terms.get(slot, 0) + factor * coefficient
    modulus = 1 << narrow.bits
    kept = {slot: value for slot, one in terms.items() if (value := one % modulus)}
    constant = by_left * left.constant + by_right * right.constant
    inner = kind if whole else narrow
    return LinearForm(kind, inner, whole, wrapped(constant, inner), MappingProxyType(kept))


def _converted(form: LinearForm, target: DType) -> LinearForm | None:
    """To another integer type: narrower keeps the lowest bits, wider the value, if it is all known."""
    inner = form.inner
    if target.bits <= inner.bits:
        terms = {
            slot: value for slot, one in form.terms.items() if (value := one % (1 << target.bits))
        }
        return LinearForm(
            target, target, True, wrapped(form.constant, target), MappingProxyType(terms)
        )
    # -1 of s8 is 65535 in u16 and keeps that value in s32: it is no longer a converted s8.
    turned = inner.bits < form.dtype.bits and (inner.kind, form.dtype.kind) == (
        "signed",
        "unsigned",
    )
    return LinearForm(target, inner, form.exact and not turned, form.constant, form.terms)

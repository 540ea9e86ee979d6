"""Terms: equal terms are equal values, whatever computes them.

A term stands for an array by what it holds at each position; a ``broadcast`` of a number is that number.  Under
**facts** (that a pred is true or false, and what follows) more terms are equal.  Only what holds bit by bit is
used.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ops.traits import MIRRORED
from hloopt.types import Array, DType, dtype

__all__ = ["Contradiction", "ScalarArray", "TermForm", "TermId", "Terms"]

TermId: TypeAlias = int
ScalarArray: TypeAlias = Array
"""A 0-d array of the element type's storage."""

_PRED: Final = dtype("pred")


class Contradiction(Exception):  # noqa: N818 - not an error: what it is about never happens
    """Facts that cannot hold together."""


class TermForm(NamedTuple):
    """What a term is: an op, what else it depends on, operands."""

    op: str
    detail: Hashable = None
    parts: tuple[TermId, ...] = ()


@dataclass
class Terms:
    """All terms, each once.

    values  of those that are numbers
    facts   terms that are known to be numbers
    bounds  least and greatest values of integers
    """

    forms: list[TermForm] = field(default_factory=list)
    values: dict[TermId, ScalarArray] = field(default_factory=dict)
    facts: dict[TermId, TermId] = field(default_factory=dict)
    bounds: dict[TermId, tuple[int, int]] = field(default_factory=dict)
    _found: dict[TermForm, TermId] = field(default_factory=dict)
    _reads: dict[TermId, frozenset[int] | None] = field(default_factory=dict)

    # ---- making -------------------------------------------------------------------------------------

    def make(self, op: str, detail: Hashable = None, parts: tuple[TermId, ...] = ()) -> TermId:
        """The term of a form, as the facts have it."""
        form = TermForm(op, detail, parts)
        term = self._found.get(form)
        if term is None:
            term = self._found[form] = len(self.forms)
            self.forms.append(form)
        return self.facts.get(term, term)

    def constant(self, value: ScalarArray, kind: DType) -> TermId:
        """A number."""
        term = self.make("constant", (kind.name, value.tobytes()))
        self.values.setdefault(term, value)
        return term

    def integer(self, value: int, kind: DType) -> TermId:
        """A number of an integer type."""
        return self.constant(np.array(value).astype(kind.numpy), kind)

    def truth(self, value: bool) -> TermId:
        """A pred."""
        return self.constant(np.array(value), _PRED)

    def opposite(self, term: TermId) -> TermId:
        """``not`` of a pred."""
        if term in self.values:
            return self.truth(not self.values[term])
        form = self.forms[term]
        if form.op == "not":
            return self.facts.get(form.parts[0], form.parts[0])
        return self.make("not", "pred", (term,))

    def compare(self, direction: str, left: TermId, right: TermId, kind: DType) -> TermId:
        """A comparison of values of one type, as ``EQ`` or ``GT`` or the opposite of one of these."""
        if left in self.values and right not in self.values:
            left, right, direction = right, left, MIRRORED[direction]
        if direction == "NE":
            return self.opposite(self.compare("EQ", left, right, kind))
        if kind.is_integer:
            return self._compare_integers(direction, left, right, kind)
        if left == right and kind.is_pred:
            return self.truth(direction in ("EQ", "LE", "GE"))
        return self._compared(direction, left, right, kind)

    def _compare_integers(self, direction: str, left: TermId, right: TermId, kind: DType) -> TermId:
        if left == right:
            return self.truth(direction in ("EQ", "LE", "GE"))
        number = self.values.get(right)
        if number is not None and direction in ("LT", "GE"):
            if int(number) == kind.limits[0]:
                return self.truth(direction == "GE")
            right = self.integer(int(number) - 1, kind)
            direction = "LE" if direction == "LT" else "GT"
        if direction == "LE":
            return self.opposite(self._compare_integers("GT", left, right, kind))
        if direction == "GE":
            return self.opposite(self._compare_integers("GT", right, left, kind))
        found = self._bounded(direction, left, right)
        return self._compared(direction, left, right, kind) if found is None else self.truth(found)

    def _compared(self, direction: str, left: TermId, right: TermId, kind: DType) -> TermId:
        if direction in ("LT", "LE"):
            left, right, direction = right, left, MIRRORED[direction]
        if direction == "EQ" and left not in self.values and right not in self.values:
            left, right = min(left, right), max(left, right)
        return self.make("compare", (direction, kind.name), (left, right))

    def _bounded(self, direction: str, left: TermId, right: TermId) -> bool | None:
        """What bounds say of ``EQ`` or ``GT`` of integers, of which the right one is a number."""
        number = self.values.get(right)
        if number is None or direction not in ("EQ", "GT"):
            return None
        if left in self.values:
            low = high = int(self.values[left])
        elif left in self.bounds:
            low, high = self.bounds[left]
        else:
            return None
        if direction == "GT":
            return True if low > number else False if high <= number else None
        return True if low == high == number else None if low <= number <= high else False

    # ---- facts --------------------------------------------------------------------------------------

    def learn(self, term: TermId, value: bool) -> None:
        """That a pred is true or false everywhere, and what follows.  Raises ``Contradiction``."""
        term = self.facts.get(term, term)
        if term in self.values:
            if bool(self.values[term]) != value:
                raise Contradiction
            return
        form = self.forms[term]
        self.facts[term] = self.truth(value)
        if form.op == "not":
            self.learn(form.parts[0], not value)
        elif (form.op == "and" and value) or (form.op == "or" and not value):
            for part in form.parts:
                self.learn(part, value)
        elif form.op == "compare":
            self._learn_comparison(form, value)

    def _learn_comparison(self, form: TermForm, value: bool) -> None:
        assert isinstance(form.detail, tuple)
        direction, kind = form.detail[0], dtype(form.detail[1])
        left, right = form.parts
        number = self.values.get(right)
        if number is None:
            return
        if direction == "EQ":
            # Of floats, 0 is also -0.
            if value and (kind.is_integer or (kind.is_float and number != 0)):
                self._settle(left, right)
        elif kind.is_integer:
            low, high = self.bounds.get(left, kind.limits)
            bound = int(number)
            low, high = (max(low, bound + 1), high) if value else (low, min(high, bound))
            if low > high:
                raise Contradiction
            self.bounds[left] = low, high
            if low == high:
                self._settle(left, self.integer(low, kind))

    def _settle(self, term: TermId, number: TermId) -> None:
        known = self.facts.setdefault(term, number)
        if known != number:
            raise Contradiction

    def reads(self, term: TermId) -> frozenset[int] | None:
        """The elements of the state that a term depends on; None where that may be any."""
        pending = [term]
        while pending:
            top = pending[-1]
            waiting = [part for part in self.forms[top].parts if part not in self._reads]
            if waiting:
                pending += waiting
            else:
                self._reads[top] = self._read_by(self.forms[top])
                pending.pop()
        return self._reads[term]

    def _read_by(self, form: TermForm) -> frozenset[int] | None:
        if form.op == "opaque":
            return None
        if form.op == "state":
            assert isinstance(form.detail, int)
            return frozenset((form.detail,))
        found: set[int] = set()
        for part in form.parts:
            read = self._reads[part]
            if read is None:
                return None
            found |= read
        return frozenset(found)

"""Asking z3 whether two elements can differ.  Importing this module needs z3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import z3

from hloopt.dataclass import dataclass
from hloopt.ops import OPS
from hloopt.prover.equivalence.meaning import EASY, MEANINGS, constant, sort_of
from hloopt.prover.equivalence.terms import ElementTerm, ElementTerms
from hloopt.types import DType

__all__ = ["Solver", "SolverAnswer", "python_value"]

_MOST_ARGS: Final = 64
_COMMUTATIVE: Final = frozenset(name for name, row in OPS.items() if row.commutative)
_MOST_NODES: Final = 1 << 20
_FIRST: Final = 10
"""The part of the steps for an attempt without arithmetic."""

Parameters = dict[Any, Any]
"""The values of elements of inputs, by the number of the input and the element's."""


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """Of two elements: ``equal``, or None where z3 does not know.

    values  of parameters' elements, for which the two may differ
    pair    the two that are not equal, or were not decided; None where there is no room for them
    """

    equal: bool | None
    values: Parameters | None = None
    pair: tuple[int, int] | None = None


class Solver:
    """Decides pairs of terms, each kind of pair once.

    ``steps`` is how much z3 may do in all, by its own count, so that answers do not depend on the machine.
    """

    def __init__(self, terms: ElementTerms, steps: int) -> None:
        self._terms, self._left = terms, steps
        self._nodes = 0
        # Without arithmetic, and with it.
        self._made: tuple[dict[int, Any], dict[int, Any]] = {}, {}
        self._swaps: dict[int, Any] = {}
        self._decided: set[tuple[object, ...]] = set()

    def decide(self, pairs: Iterable[tuple[int, int]]) -> SolverAnswer:
        """Whether all pairs are equal; else the first that is not, or that is not known to be."""
        for left, right in pairs:
            key = self._key(left, right)
            if key in self._decided:
                continue
            self._nodes += len(key)
            if self._nodes > _MOST_NODES:
                return SolverAnswer(None)
            found, model = self._asked(left, right)
            if found == z3.sat:
                return SolverAnswer(False, self._values(model, (left, right)), (left, right))
            if found != z3.unsat:
                return SolverAnswer(None, pair=(left, right))
            self._decided.add(key)
        return SolverAnswer(True)

    def _asked(self, left: int, right: int) -> tuple[Any, Any]:
        """What z3 says of a difference, and its model: what needs no arithmetic is soon refuted without."""
        found = z3.unknown
        for exact in (False, True):
            if self._left <= 0:
                break
            solver = z3.Solver()
            solver.set("rlimit", self._left if exact else self._left // _FIRST)
            ends = [self._expression(end, exact=exact) for end in (left, right)]
            wanted = [ends[0] != ends[1]]
            if not exact:
                below = self._terms.below((left, right))
                wanted += [self._swaps[at] for at in below if at in self._swaps]
            solver.add(*wanted)
            before = _steps(solver)
            found = solver.check()
            self._left -= _steps(solver) - before
            if found == z3.unsat or exact:
                return found, solver.model() if found == z3.sat else None
        return z3.unknown, None

    def _key(self, left: int, right: int) -> tuple[object, ...]:
        """What pairs have in common that are the same but for which parameters' elements they are about."""
        numbers: dict[int, int] = {}
        lines: list[object] = []
        for number in self._terms.below((left, right)):
            term = self._terms[number]
            numbers[number] = len(numbers)
            data = None if term.op == "parameter" else term.data
            lines.append((term.op, term.kind, tuple(numbers[arg] for arg in term.args), data))
        return (*lines, numbers[left], numbers[right])

    def _expression(self, root: int, *, exact: bool) -> Any:
        made = self._made[exact]
        for number in self._terms.below((root,)):
            if number not in made:
                made[number] = self._translated(number, made, exact=exact)
        return made[root]

    def _translated(self, number: int, made: dict[int, Any], *, exact: bool) -> Any:
        term = self._terms[number]
        kind, value = term.kind, self._terms.value(number)
        if value is not None and kind is not None and not kind.is_complex:
            return constant(value, kind)
        args = [made[arg] for arg in term.args]
        kinds = [found for arg in term.args if (found := self._terms[arg].kind) is not None]
        meaning = MEANINGS.get(term.op)
        if meaning is not None and kind is not None and (exact or _is_easy(term, kinds)):
            found = meaning(kind, kinds, term.data, args)
            if found is not None:
                return found
        # Operands that are equal here may differ on other participants.
        if not args or len(args) > _MOST_ARGS or term.op == "exchange":
            return z3.Const(f"{term.op} {number}", sort_of(kind))
        sorts = [arg.sort() for arg in args]
        function = z3.Function(f"{term.op} {term.data} {kind} {sorts}", *sorts, sort_of(kind))
        found = function(*args)
        if not exact and len(args) == 2 and term.op in _COMMUTATIVE:
            self._swaps[number] = found == function(args[1], args[0])
        return found

    def _values(self, model: Any, roots: Sequence[int]) -> Parameters:
        found: Parameters = {}
        for number in self._terms.below(roots):
            term = self._terms[number]
            if term.op == "parameter" and term.kind is not None:
                value = model.eval(self._made[True][number], model_completion=True)
                found[term.data] = python_value(value, term.kind)
        return found


def _steps(solver: Any) -> int:
    """How many steps z3 has made since it was loaded."""
    return int(solver.statistics().get_key_value("rlimit count"))


def _is_easy(term: ElementTerm, kinds: Sequence[DType]) -> bool:
    """Whether an op is one on integers that z3 decides at any width, or merely chooses."""
    if term.op == "select":
        return True
    assert term.kind is not None
    return term.op in EASY and not any(kind.is_float for kind in (term.kind, *kinds))


def python_value(value: Any, kind: DType) -> Any:
    """A value of z3's as one of the storage type."""
    if kind.is_pred:
        return np.bool_(z3.is_true(value))
    if kind.is_integer:
        number = value.as_signed_long() if kind.kind == "signed" else value.as_long()
        return np.asarray(number).astype(kind.numpy)[()]
    if not z3.is_fp_value(value):
        return kind.numpy.type(0)
    if value.isNaN():
        return np.asarray(np.nan).astype(kind.numpy)[()]
    bits = z3.simplify(z3.fpToIEEEBV(value)).as_long()
    return np.array([bits], f"u{kind.numpy.itemsize}").view(kind.numpy)[0]

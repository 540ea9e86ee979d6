"""Arrays of few elements as that many scalars.

A ufunc takes as long for two elements as for fifty, ten times as long as an operator on NumPy's scalars
(``scalars``), which gives the same bits.  Steps that use one another's small arrays are rewritten
together: as scalars they have to read incoming arrays, and to make the arrays that other steps use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import SCALARS, Code, Line, Step
from hloopt.backends.numpy.scalars import scalar_code
from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.types import Array

__all__ = ["by_elements"]

_MOST: Final = 8  # elements

# Nanoseconds (NumPy 2.4, Zen 5).
_UFUNC: Final = 350  # of a small array, or of a scalar
_VIEW: Final = 120
_ARRAY: Final = 150  # to make an array, without its elements
_ELEMENT: Final = 55  # to read one, or to write it
_INTEGER: Final = 35  # an operator on integers
_FLOAT: Final = 50  # the same on floats
_BUFFERED: Final = 150  # what goes through an array without dimensions
# Of the time as arrays: what is written scalar by scalar takes longer to compile.
_PART: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Plan:
    """A step element by element.

    codes   one an element of the out; None for one that is moved
    places  for each element of the out its operands, as a slot and the number of its element
    """

    codes: tuple[Code | None, ...]
    places: tuple[tuple[tuple[int, int], ...], ...]


def by_elements(line: Line) -> None:
    """Compute steps on few elements scalar by scalar, where a group of them takes less time so."""
    if not any(_is_few(line, slot) for step in line.steps for slot in step.outs):
        return
    plans = {
        number: plan
        for number, step in enumerate(line.steps)
        if (plan := _planned(line, step)) is not None
    }
    chosen = _worth_while(line, plans)
    if chosen:
        line.steps = _Rewritten(line, {number: plans[number] for number in chosen}).steps
        line.drop_unused()


def _is_few(line: Line, slot: int) -> bool:
    dims = line.dims[slot]
    return bool(dims) and 0 < prod(dims) <= _MOST and line.kinds[slot] in SCALARS


def _planned(line: Line, step: Step) -> _Plan | None:
    """None for a step that has no form element by element."""
    if step.several or step.keep:
        return None
    (out,) = step.outs
    ins = step.ins if step.moves else step.operands
    if not ins or not all(_is_few(line, slot) or line.is_scalar(slot) for slot in (*ins, out)):
        return None
    if not any(line.dims[slot] for slot in (*ins, out)):
        return None
    return _moved(line, step, out) if step.moves else _computed(line, step, out)


def _moved(line: Line, step: Step, out: int) -> _Plan:
    """Where each element comes from: found by applying the step to element numbers."""
    sizes = [prod(line.dims[slot]) for slot in step.ins]
    numbers, start = [], 0
    for slot, size in zip(step.ins, sizes, strict=True):
        numbers.append(np.arange(start, start + size).reshape(line.dims[slot]))
        start += size
    owners = [(slot, at) for slot, size in zip(step.ins, sizes, strict=True) for at in range(size)]
    assert step.function is not None
    found = np.broadcast_to(step.function(*numbers), line.dims[out]).reshape(-1)
    places = tuple((owners[number],) for number in found.tolist())
    return _Plan((None,) * len(places), places)


def _computed(line: Line, step: Step, out: int) -> _Plan | None:
    instruction = step.made
    if instruction is None or not instruction.op.is_elementwise:
        return None
    dims = line.dims[out]
    columns = []
    for slot in step.operands:
        own = line.dims[slot]
        numbers = np.arange(prod(own)).reshape(own)
        columns.append([(slot, at) for at in np.broadcast_to(numbers, dims).reshape(-1).tolist()])
    places = tuple(zip(*columns, strict=True))
    codes = []
    for operands in places:
        known = [_known(line, slot, at) for slot, at in operands]
        code = scalar_code(instruction, known)
        if code is None:
            return None
        codes.append(code)
    return _Plan(tuple(codes), places)


def _known(line: Line, slot: int, at: int) -> Array | None:
    array = line.constants.get(slot)
    return None if array is None else np.asarray(array.reshape(-1)[at])


def _worth_while(line: Line, plans: dict[int, _Plan]) -> set[int]:
    """The steps of groups that take less time as scalars."""
    groups = _Groups(line, plans)
    wanted = {slot for slot in line.results if _is_few(line, slot)}
    for number, step in enumerate(line.steps):
        if number not in plans:
            wanted.update(slot for slot in step.ins if _is_few(line, slot))
    whole: dict[int, int] = {}
    parts: dict[int, int] = {}
    read: set[tuple[int, int]] = set()
    for number, plan in plans.items():
        step, group = line.steps[number], groups.find(number)
        (out,) = step.outs
        whole[group] = whole.get(group, 0) + _as_array(line, step)
        operator = _FLOAT if line.kinds[out].kind == "f" else _INTEGER
        cost = sum(_as_scalar(code, operator) for code in plan.codes)
        if out in wanted:
            cost += _ARRAY + _ELEMENT * len(plan.codes)
        for place in {place for operands in plan.places for place in operands}:
            slot, _ = place
            outside = slot not in groups.makers and slot not in line.constants
            if outside and line.dims[slot] and place not in read:
                read.add(place)
                cost += _ELEMENT
        parts[group] = parts.get(group, 0) + cost
    worth = {group for group in whole if parts[group] < whole[group] * _PART}
    return {number for number in plans if groups.find(number) in worth}


def _as_array(line: Line, step: Step) -> int:
    (out,) = step.outs
    if not step.moves:
        return _UFUNC
    if not line.dims[out]:
        return _ELEMENT
    return _VIEW if step.view else _ARRAY + _ELEMENT * len(step.ins)


def _as_scalar(code: Code | None, operator: int) -> int:
    if code is None:
        return 0
    if any(isinstance(value, np.ufunc) for value in code.bound.values()):
        return _UFUNC
    return operator if code.buffer is None else _BUFFERED


class _Groups(UnionFind[int]):
    """Steps that share small arrays, made by one of them or given to several."""

    def __init__(self, line: Line, plans: dict[int, _Plan]) -> None:
        self.makers = {line.steps[number].outs[0]: number for number in plans}
        super().__init__()
        first: dict[int, int] = {}
        for number in plans:
            step = line.steps[number]
            for slot in step.ins if step.moves else step.operands:
                if slot not in line.constants and line.dims[slot]:
                    other = self.makers.get(slot, first.setdefault(slot, number))
                    self.join(other, number)


class _Rewritten:
    """A line's steps, those of ``plans`` element by element."""

    def __init__(self, line: Line, plans: dict[int, _Plan]) -> None:
        self._line = line
        self._scalars: dict[tuple[int, int], int] = {}
        self.steps: list[Step] = []
        for number, step in enumerate(line.steps):
            plan = plans.get(number)
            if plan is None:
                self.steps.append(step)
            else:
                first = len(self.steps)
                self._write(step, plan)
                for made in self.steps[first:]:
                    made.owners = step.owners

    def _write(self, step: Step, plan: _Plan) -> None:
        line, (out,) = self._line, step.outs
        for at, (code, places) in enumerate(zip(plan.codes, plan.places, strict=True)):
            ins = tuple(self._scalar(*place) for place in places)
            if code is None:
                self._scalars[out, at] = ins[0]
                continue
            slot = line.slot(line.kinds[out], ())
            self.steps.append(Step(None, ins, (slot,), code=code))
            self._scalars[out, at] = slot
        made = tuple(self._scalars[out, at] for at in range(len(plan.codes)))
        self.steps.append(Step(None, made, (out,), code=self._whole(out)))

    def _scalar(self, slot: int, at: int) -> int:
        """A slot for one element of a slot."""
        line, dims = self._line, self._line.dims[slot]
        known = self._scalars.get((slot, at))
        if known is not None or not dims:
            return slot if known is None else known
        one = self._scalars[slot, at] = line.slot(line.kinds[slot], ())
        array = line.constants.get(slot)
        if array is not None:
            line.constants[one] = np.asarray(array.reshape(-1)[at])
            return one
        index = _index(dims, at)
        code = Code("{r} = {0}[{index}]", scalar=True, bound={"index": index})
        self.steps.append(Step(None, (slot,), (one,), code=code))
        return one

    def _whole(self, out: int) -> Code:
        """What makes an array of its elements, or of one without dimensions another name."""
        dims, kind = self._line.dims[out], self._line.kinds[out]
        if not dims:
            return Code("{r} = {0}", frozenset({0}), scalar=True)
        text = ["{r} = {empty}({dims}, {kind})"]
        bound: dict[str, Any] = {"dims": dims, "empty": np.empty, "kind": kind}
        for at in range(prod(dims)):
            index = ", ".join(map(str, _index(dims, at)))
            text.append(f"{{r}}[{index}] = {{{at}}}")
        return Code("\n".join(text), frozenset(range(prod(dims))), bound=bound)


def _index(dims: Sequence[int], at: int) -> tuple[int, ...]:
    return tuple(int(number) for number in np.unravel_index(at, tuple(dims)))

"""What differs between two modules that are nearly the same: instruction by instruction.

Two modules without a difference have the same fingerprint, and the other way round: names, metadata and the
order of independent instructions do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from hloopt.analysis.pairing import Pairing, pair_modules
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ir.canonical import fingerprint
from hloopt.ir.encode import encoded
from hloopt.ir.normal import normal_attributes, normal_header, normal_shape, normal_thread
from hloopt.text.numbers import array_text, literal_text
from hloopt.text.printer import header_text, value_text
from hloopt.types import ArrayShape, Literal

__all__ = ["Difference", "differences", "literal_texts"]

_MOST_OPERANDS: Final = 4
_LONGEST: Final = 120
_FEW: Final = 5
"""Elements of a literal that are shown all together."""
_MOST_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two modules.

    what           ``opcode``, ``shape``, ``operands`` (of many ``operand 7``; of the entry's tuple
                   ``results``), ``control-predecessors``, the name of an attribute (``literal``,
                   ``parameter_number``, ``slice`` ...); ``instruction`` for one that only one module
                   has; ``root`` and ``order`` of a computation, ``computation`` for one that only one
                   has; the name of a header's attribute, of the entry's layout with what it is of
    before, after  the instructions; None in the header, and where there is none
    computation    where it is; empty in the header
    old, new       what either has, as text; empty where it has nothing
    """

    what: str
    before: Instruction | None
    after: Instruction | None
    computation: str
    old: str
    new: str


def differences(before: Module, after: Module) -> list[Difference]:
    """All that differs, what both have before what only one has; empty for equal modules.

    Where parameters were reordered, they are matched by name, unless few differences remain by number.
    """
    if fingerprint(before) == fingerprint(after):
        return []
    found = _Comparison(before, after, pair_modules(before, after)).all()
    renumbered = _renumbered(before, after)
    if renumbered:
        named = _Comparison(before, after, pair_modules(before, after, by_name=True)).all()
        found = named if len(named) <= len(found) + renumbered else found
    return found


def _renumbered(before: Module, after: Module) -> int:
    """How many parameters of the entries have other numbers; 0 where their names are not the same."""
    first, second = (
        {entry.name: entry.parameter_number for entry in module.entry.parameters}
        for module in (before, after)
    )
    if first.keys() != second.keys():
        return 0
    return sum(number != second[name] for name, number in first.items())


class _Comparison:
    """Two modules whose instructions are paired."""

    def __init__(self, before: Module, after: Module, pairing: Pairing) -> None:
        self.before, self.after, self.pairing = before, after, pairing
        self._strict = False

    def all(self) -> list[Difference]:
        """Everything; the order of instructions and sharing of computations only where nothing else differs."""
        found = [*self._header(), *self._computations(), *self._only()]
        if found:
            return found
        self._strict = True
        return [*self._computations(), *self._orders()]

    def _header(self) -> Iterator[Difference]:
        first, second = normal_header(self.before), normal_header(self.after)
        for name in sorted(first.keys() | second.keys()):
            if name == "entry_computation_layout":
                yield from self._layouts(first[name], second[name])
            elif first.get(name) != second.get(name):
                old, new = (
                    header_text(name, header[name]) if name in header else ""
                    for header in (first, second)
                )
                yield Difference(name, None, None, "", _brief(old), _brief(new))

    def _layouts(self, first: Any, second: Any) -> Iterator[Difference]:
        """The entry's layout, where its parameters and results themselves have the same shapes."""
        word = "entry_computation_layout"
        sides = [[*found[0], found[1]] for found in (first, second)]
        if len(sides[0]) != len(sides[1]):
            old, new = (f"{len(side) - 1} parameters" for side in sides)
            yield Difference(word, None, None, "", old, new)
            return
        last = len(sides[0]) - 1
        for number, (old, new) in enumerate(zip(*sides, strict=True)):
            if old != new:
                of = "result" if number == last else f"parameter {number}"
                yield Difference(
                    f"{word}, {of}", None, None, "", _brief(str(old)), _brief(str(new))
                )

    def _computations(self) -> Iterator[Difference]:
        for first, second in self.pairing.computations.items():
            threads = normal_thread(first), normal_thread(second)
            if threads[0] != threads[1]:
                old, new = (thread or "main" for thread in threads)
                yield Difference("execution_thread", None, None, first.name, old, new)
            if not self._same(first.root, second.root) and self._has_partner(first, second):
                old, new = _called_text(first.root), _called_text(second.root)
                yield Difference("root", first.root, second.root, first.name, old, new)
            for entry in first:
                partner = self.pairing.after.get(entry)
                if partner is not None:
                    yield from self._pair(entry, partner, first.name)

    def _has_partner(self, first: Computation, second: Computation) -> bool:
        return first.root in self.pairing.after or second.root in self.pairing.before

    def _same(self, one: Instruction, other: Instruction) -> bool:
        """Whether two instructions are partners, or equivalent."""
        classes = self.pairing.classes
        same = self.pairing.after.get(one) is other
        return same or (not self._strict and classes[one] == classes[other])

    def _pair(self, one: Instruction, other: Instruction, where: str) -> Iterator[Difference]:
        def found(what: str, old: str, new: str) -> Difference:
            return Difference(what, one, other, where, _brief(old), _brief(new))

        if one.opcode != other.opcode:
            yield found("opcode", one.opcode, other.opcode)
        shapes = str(normal_shape(one.shape)), str(normal_shape(other.shape))
        if shapes[0] != shapes[1]:
            yield found("shape", *shapes)
        yield from (found(*row) for row in self._operands(one, other))
        controls = [sorted(entry.control_predecessors, key=_name) for entry in (one, other)]
        if len(controls[0]) != len(controls[1]) or not all(
            any(self._same(left, right) for right in controls[1]) for left in controls[0]
        ):
            yield found("control-predecessors", _names(controls[0]), _names(controls[1]))
        first, second = normal_attributes(one), normal_attributes(other)
        same_op = one.opcode == other.opcode
        for name in sorted(
            first.keys() | second.keys() if same_op else first.keys() & second.keys()
        ):
            old, new = first.get(name), second.get(name)
            if not self._same_value(old, new):
                yield found(name, *_values(name, old, new))

    def _operands(self, one: Instruction, other: Instruction) -> Iterator[tuple[str, str, str]]:
        first, second = one.operands, other.operands
        results = one.opcode == "tuple" and one.is_root and one.computation is self.before.entry
        word = "result" if results else "operand"
        if len(first) != len(second):
            yield f"{word}s", _names(first), _names(second)
            return
        moved = [
            number
            for number, (left, right) in enumerate(zip(first, second, strict=True))
            if not self._same(left, right)
        ]
        if moved and len(first) <= _MOST_OPERANDS:
            yield f"{word}s", _names(first), _names(second)
            return
        for number in moved:
            yield f"{word} {number}", f"%{first[number].name}", f"%{second[number].name}"

    def _same_value(self, old: Any, new: Any) -> bool:
        if old is None or new is None:
            return old is new
        if _is_call(old) and _is_call(new):
            groups = [value if isinstance(value, tuple) else (value,) for value in (old, new)]
            return len(groups[0]) == len(groups[1]) and all(
                map(self._same_computation, groups[0], groups[1])
            )
        if type(old) is not type(new) or _is_call(old):
            return False
        bodies: Mapping[Computation, str] = self.pairing.bodies
        return encoded(old, bodies) == encoded(new, bodies) and (
            not isinstance(old, Literal) or str(old.shape) == str(new.shape)
        )

    def _same_computation(self, one: Computation, other: Computation) -> bool:
        """Whether two computations are paired, so that differences are reported inside them, or are equal."""
        bodies = self.pairing.bodies
        return self.pairing.computations.get(one) is other or bodies[one] == bodies[other]

    def _only(self) -> Iterator[Difference]:
        """What has no partner: of a computation that has none itself, nothing but that."""
        partners = set(self.pairing.computations.values())
        for module, paired, computations, is_before in (
            (self.before, self.pairing.after, self.pairing.computations.keys(), True),
            (self.after, self.pairing.before, partners, False),
        ):
            for computation in walk.callees_first(module):
                if computation in computations:
                    for entry in computation:
                        if entry not in paired:
                            yield _only(
                                "instruction", entry, computation, _written(entry), is_before
                            )
            yield from self._unused(module, computations, is_before)

    def _unused(
        self, module: Module, paired: Iterable[Computation], is_before: bool
    ) -> Iterator[Difference]:
        """Uncalled computations that the other module lacks."""
        known = set(paired)
        other = self.after if is_before else self.before
        bodies = self.pairing.bodies
        there = {bodies[entry] for entry in other if not entry.callers}
        for computation in module:
            free = not computation.callers and computation not in known
            if free and bodies[computation] not in there:
                yield _only("computation", None, computation, f"%{computation.name}", is_before)

    def _orders(self) -> Iterator[Difference]:
        """The first instructions in another order, of each computation."""
        for first, second in self.pairing.computations.items():
            for one, other in zip(first, second, strict=False):
                if self.pairing.after.get(one) is not other:
                    old, new = f"%{one.name} first", f"%{other.name} first"
                    yield Difference("order", one, other, first.name, old, new)
                    break


def _only(
    what: str, entry: Instruction | None, home: Computation, text: str, is_before: bool
) -> Difference:
    if is_before:
        return Difference(what, entry, None, home.name, text, "")
    return Difference(what, None, entry, home.name, "", text)


def _written(entry: Instruction) -> str:
    return _brief(f"{entry.opcode}{_names(entry.operands)}")


def _is_call(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and isinstance(value[0], Computation)
    return isinstance(value, Computation)


def _values(name: str, old: Any, new: Any) -> tuple[str, str]:
    """Both values of an attribute; of large literals the first element that differs."""
    if isinstance(old, Literal) and isinstance(new, Literal):
        return literal_texts(old, new)
    first, second = ("" if value is None else value_text(value) for value in (old, new))
    return first, second


def literal_texts(old: Literal, new: Literal) -> tuple[str, str]:
    """Both values as texts; of large arrays of one shape the first element that differs, and how many do."""
    first, second = old.array, new.array
    if first is None or second is None:
        return _whole(old), _whole(new)
    if old.shape != new.shape or first.size < _FEW:
        return _whole(old), _whole(new)
    flat = [np.ascontiguousarray(value).reshape(-1) for value in (first, second)]
    raw = [value.view(np.uint8).reshape(value.size, -1) for value in flat]
    places = np.flatnonzero((raw[0] != raw[1]).any(axis=1))
    at = int(places[0])
    index = ",".join(map(str, np.unravel_index(at, first.shape)))
    assert isinstance(old.shape, ArrayShape), "an array has an array shape"
    texts = [array_text(old.shape.dtype, value[at : at + 1].reshape(())) for value in flat]
    return f"{texts[0]} at [{index}]", f"{texts[1]}; {places.size} of {first.size} elements differ"


def _whole(literal: Literal) -> str:
    """A literal as text, a large one as its shape."""
    large = literal.array is not None and literal.array.size > _MOST_SHOWN
    return str(literal.shape) if large else literal_text(literal)


def _name(entry: Instruction) -> str:
    return entry.name


def _called_text(entry: Instruction) -> str:
    return f"%{entry.name}"


def _names(entries: Iterable[Instruction]) -> str:
    return f"({', '.join(f'%{entry.name}' for entry in entries)})"


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

"""Which instruction of one module is which of another, where the two are nearly the same.

Instructions that compute the same from the same parameters pair off first.  From pairs the rest is found along
operands and users: the same name, then the same place in the user's program, then the same op and shape.  What
is left goes by op and place in the whole computation, and in the end an operand whose op has changed goes with
the one in its place.  Costs are linear in instructions and operands.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ir.encode import row
from hloopt.ir.normal import normal_shape

__all__ = ["Pairing", "pair_modules"]

_Key: TypeAlias = Callable[[Instruction], Hashable]


class Pairing:
    """The matching of two modules.

    after, before   the partner of an instruction of the first module, and of one of the second
    computations    the partner of a computation of the first module
    classes         equal numbers for instructions of either module that compute the same
    """

    def __init__(
        self, classes: Mapping[Instruction, int], bodies: Mapping[Computation, str]
    ) -> None:
        self.after: dict[Instruction, Instruction] = {}
        self.before: dict[Instruction, Instruction] = {}
        self.computations: dict[Computation, Computation] = {}
        self.classes = classes
        self.bodies = bodies
        self._grown: deque[tuple[Instruction, Instruction]] = deque()
        self._taken: set[Computation] = set()

    def pair(self, first: Computation, second: Computation) -> None:
        """Pair two computations and, from there on, all that their pairs call."""
        pending = deque([(first, second)])
        while pending:
            one, other = pending.popleft()
            if one in self.computations or other in self._taken:
                continue
            self.computations[one] = other
            self._taken.add(other)
            self._inside(one, other)
            for entry in one:
                if entry in self.after:
                    pending += _called(entry, self.after[entry])

    def _inside(self, first: Computation, second: Computation) -> None:
        for one, other in zip(first.parameters, second.parameters, strict=False):
            if self.classes[one] == self.classes[other]:
                self._add(one, other)
        self._match(
            first,
            second,
            (lambda entry: (self.classes[entry], entry.name), self.classes.__getitem__),
        )
        if first.root.opcode == second.root.opcode:
            self._pair_roots(first, second)
        self._grow()
        for keys in (_WIDE, _ANYWHERE):
            self._match(first, second, keys)
            self._grow()
            self._pair_roots(first, second)
            self._in_place(first)
        self._match(first.parameters, second.parameters, (lambda entry: entry.parameter_number,))

    def _pair_roots(self, first: Computation, second: Computation) -> None:
        if self._is_free(first.root, second.root):
            self._add(first.root, second.root)
            self._grow()

    def _is_free(self, one: Instruction, other: Instruction) -> bool:
        return one not in self.after and other not in self.before

    def _add(self, one: Instruction, other: Instruction) -> None:
        self.after[one] = other
        self.before[other] = one
        self._grown.append((one, other))

    def _match(
        self, first: Iterable[Instruction], second: Iterable[Instruction], keys: Sequence[_Key]
    ) -> None:
        """Pair, in order, what has the same first key, then what has the same second one, and so on."""
        left = [entry for entry in dict.fromkeys(first) if entry not in self.after]
        right = [entry for entry in dict.fromkeys(second) if entry not in self.before]
        for key in keys:
            if not left or not right:
                return
            waiting: dict[Hashable, deque[Instruction]] = defaultdict(deque)
            for entry in right:
                waiting[key(entry)].append(entry)
            for entry in left:
                partners = waiting.get(key(entry))
                if partners:
                    self._add(entry, partners.popleft())
            left = [entry for entry in left if entry not in self.after]
            right = [entry for entry in right if entry not in self.before]

    def _grow(self) -> None:
        """Pair operands and users of what is paired."""
        while self._grown:
            one, other = self._grown.popleft()
            self._match(one.operands, other.operands, _NEAR)
            for left, right in zip(one.operands, other.operands, strict=False):
                if left.opcode == right.opcode and self._is_free(left, right):
                    self._add(left, right)
            self._match(one.users, other.users, _NEAR)

    def _in_place(self, first: Computation) -> None:
        """Pair operands in the same place whose ops differ, and what is found from there."""
        for entry in reversed(first):
            if entry not in self.after:
                continue
            for left, right in zip(entry.operands, self.after[entry].operands, strict=False):
                if self._is_free(left, right) and left.shape == right.shape:
                    self._add(left, right)
                    self._grow()


def _named(entry: Instruction) -> Hashable:
    return entry.opcode, normal_shape(entry.shape), entry.name


def _of_program(entry: Instruction) -> Hashable:
    return entry.opcode, normal_shape(entry.shape), _op_name(entry) or entry.name


def _shaped(entry: Instruction) -> Hashable:
    return entry.opcode, normal_shape(entry.shape)


def _op_named(entry: Instruction) -> Hashable:
    return entry.opcode, _op_name(entry) or entry.name


def _op_name(entry: Instruction) -> str:
    return str(entry.metadata.fields.get("op_name", "")) if entry.metadata is not None else ""


_NEAR: Final = (_named, _of_program, _shaped)
_WIDE: Final = (_of_program, _op_named)
_ANYWHERE: Final = (_shaped,)


def _called(one: Instruction, other: Instruction) -> Iterable[tuple[Computation, Computation]]:
    called = walk.calls_by_attribute(other)
    for name, group in walk.calls_by_attribute(one).items():
        yield from zip(group, called.get(name, ()), strict=False)


class _Classes:
    """Numbers of what instructions compute, the same in all modules that are added."""

    def __init__(self, parameter: _Key) -> None:
        self.of: dict[Instruction, int] = {}
        self.bodies: dict[Computation, str] = {}
        self._numbers: dict[Hashable, int] = {}
        self._parameter = parameter

    def add(self, module: Module) -> None:
        for computation in walk.callees_first(module):
            for entry in walk.post_order(computation):
                key: Hashable = row(entry, self.of.__getitem__, self.bodies)
                if entry.opcode == "parameter" and computation is module.entry:
                    key = (normal_shape(entry.shape), self._parameter(entry))
                self.of[entry] = self._number(key)
            members = tuple(sorted([self.of[entry] for entry in computation]))
            self.bodies[computation] = str(self._number((self.of[computation.root], members)))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def pair_modules(before: Module, after: Module, *, by_name: bool = False) -> Pairing:
    """Pair the instructions of two modules.

    Parameters of the entry belong together by their numbers, or ``by_name``.
    """
    classes = _Classes(lambda entry: entry.name if by_name else entry.parameter_number)
    classes.add(before)
    classes.add(after)
    pairing = Pairing(classes.of, classes.bodies)
    pairing.pair(before.entry, after.entry)
    return pairing

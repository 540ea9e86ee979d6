"""Modules whose parameters or results are the same, but not in the same places.

A frontend leaves out parameters that nothing reads, and hands in or out others in another order: such modules
are compared all the same, and what was done to compare them is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.signatures import drop_parameters
from hloopt.prover.trials import Arrays
from hloopt.runtime.comparison import Allowance, compared
from hloopt.runtime.inputs import positions
from hloopt.runtime.tolerance import Tolerance
from hloopt.types import Array

__all__ = ["Reordered", "adapted", "fitted", "parameter_orders", "result_order", "with_parameters"]

_PAIRS: Final = 15
"""Pairs of parameters that are swapped where names say nothing."""

_Types: TypeAlias = "list[tuple[str, tuple[int, ...]]]"


@dataclass(frozen=True)
class Reordered:
    """An order in which two modules agree.

    what     ``results`` or ``parameters``
    order    of each of the second module the place in the first
    guessed  no name speaks for it: another error may look the same
    """

    what: str
    order: tuple[int, ...]
    guessed: bool = False

    def __str__(self) -> str:
        """As a sentence."""
        moved = [at for at, place in enumerate(self.order) if at != place]
        if len(moved) == 2:
            return f"{self.what} {moved[0]} and {moved[1]} are swapped"
        after, before = (
            ", ".join(str(number) for number in numbers)
            for numbers in (moved, [self.order[at] for at in moved])
        )
        return f"{self.what} {after} after are {before} before"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"what": self.what, "order": list(self.order), "guessed": self.guessed}


def fitted(
    before: Module, after: Module, names: tuple[str, str]
) -> tuple[Module, Module, tuple[str, ...]]:
    """Two modules with the same parameters, as far as only unused ones are missing or names tell the order.

    The modules themselves where they need no change, else copies; and what was done, in words.
    """
    kinds = [[_types(one) for one in module.entry.parameters] for module in (before, after)]
    if kinds[0] == kinds[1]:
        return before, after, ()
    for whole, part, own in ((before, after, names), (after, before, names[::-1])):
        order = _places(whole, part)
        if order is not None:
            changed = with_parameters(part, whole.entry.parameters, order)
            done = (*_lacking(whole, order, own), *_by_name(order, own[1]))
            return (changed, after, done) if part is before else (before, changed, done)
    changed, done = adapted(after, before, names[::-1])
    return before, changed, done


def adapted(
    other: Module, module: Module, names: tuple[str, str]
) -> tuple[Module, tuple[str, ...]]:
    """``other`` as a module that takes the parameters of ``module``, and what was done, in words.

    ``other`` itself where its parameters are those, and where they differ in more than unused ones and order.
    """
    own, wanted = other.entry.parameters, module.entry.parameters
    if [_types(one) for one in own] == [_types(one) for one in wanted]:
        return other, ()
    used = _used(other)
    order = _places(module, used)
    if order is None:
        return other, ()
    sides = [
        {_named_type(one): one.parameter_number for one in entries} for entries in (own, wanted)
    ]
    both = sides[0].keys() & sides[1].keys()
    kept = [one.parameter_number for one in own if _is_used(one) or _named_type(one) in both]
    known = [*order, *(sides[1][each] for each in both)]
    done = (
        *_lacking(other, kept, names),
        *_lacking(module, known, names[::-1]),
        *_by_name(order, names[0]),
    )
    return with_parameters(used, wanted, order), done


def _lacking(whole: Module, order: Sequence[int], names: tuple[str, str]) -> Iterator[str]:
    left = [one for one in whole.entry.parameters if one.parameter_number not in order]
    for one in left:
        number = one.parameter_number
        yield f"{names[1]} lacks parameter {number} (%{one.name}), which {names[0]} does not use"


def _by_name(order: Sequence[int], name: str) -> Iterator[str]:
    if list(order) != sorted(order):
        yield f"the parameters of {name} are matched by name: they are in another order"


def _used(module: Module) -> Module:
    """A copy without the parameters that nothing uses."""
    copy = _open(module)
    unused = [one.parameter_number for one in copy.entry.parameters if not _is_used(one)]
    drop_parameters(copy.entry, unused)
    return copy


def _open(module: Module) -> Module:
    """A copy that says nothing about its parameters."""
    copy = build.clone_module(module)
    copy.attributes = {
        name: value
        for name, value in copy.attributes.items()
        if name not in ("entry_computation_layout", "input_output_alias", "buffer_donor")
    }
    return copy


def _is_used(one: Instruction) -> bool:
    return bool(one.users) or one.is_root


def _named_type(one: Instruction) -> tuple[str, str]:
    return one.name, str(_types(one))


def _types(one: Instruction) -> _Types:
    return [(shape.dtype.name, shape.dims) for _, shape in positions(one.shape)]


def _places(whole: Module, part: Module) -> list[int] | None:
    """The number in ``whole`` of each parameter of ``part``; None where others than unused ones are left."""
    own, others = whole.entry.parameters, part.entry.parameters
    used = [one for one in own if _is_used(one)]
    for found in (used, _named(own, others)):
        if [_types(one) for one in found] == [_types(one) for one in others]:
            left = set(own) - set(found)
            if not any(map(_is_used, left)):
                return [one.parameter_number for one in found]
    return None


def _named(own: Sequence[Instruction], others: Sequence[Instruction]) -> list[Instruction]:
    """Those of ``own`` that have the names of the others; none where not all have."""
    names = {one.name: one for one in own}
    found = [names[other.name] for other in others if other.name in names]
    return found if len(set(found)) == len(others) else []


def with_parameters(
    module: Module, parameters: Sequence[Instruction], places: Sequence[int]
) -> Module:
    """A copy that takes ``parameters``: its own have ``places`` among them, the others are not used."""
    copy = _open(module)
    entry = copy.entry
    position = next(iter(entry))
    numbers = list(places)
    for one in parameters:
        number = one.parameter_number
        if number not in places:
            attributes = {"parameter_number": len(numbers)}
            build.make(
                position, "parameter", (), attributes, shape=one.shape, name=f"unused.{number}"
            )
            numbers.append(number)
    edit.permute_parameters(entry, [numbers.index(at) for at in range(len(numbers))])
    return copy


def parameter_orders(before: Module, after: Module) -> Iterator[tuple[list[int], bool]]:
    """Other orders that the parameters of ``after`` may have, and whether they are guessed.

    That is by name, then with two of one type swapped.
    """
    own, others = before.entry.parameters, after.entry.parameters
    named = _named(own, others)
    plain = list(range(len(own)))
    if [_types(one) for one in named] == [_types(one) for one in others]:
        order = [one.parameter_number for one in named]
        if order != plain:
            yield order, False
    alike = [pair for pair in combinations(own, 2) if _types(pair[0]) == _types(pair[1])]
    for one, other in alike if len(alike) <= _PAIRS else ():
        order = plain.copy()
        order[one.parameter_number], order[other.parameter_number] = (
            other.parameter_number,
            one.parameter_number,
        )
        yield order, True


def result_order(want: Arrays, got: Arrays, tolerance: Tolerance) -> list[int] | None:
    """Of each result of ``got`` its place in ``want``, for all participants; None where there is none."""
    same = _alike(want, got, tolerance)
    count = len(want[0])
    free = [at for at in range(count) if not same(at, at)]
    order = list(range(count))
    for at in list(free):
        place = next((place for place in free if same(place, at)), None)
        if place is None:
            return None
        order[at] = place
        free.remove(place)
    return order


def _alike(want: Arrays, got: Arrays, tolerance: Tolerance) -> Callable[[int, int], bool]:
    """Whether a result of ``want`` is one of ``got``, by its own magnitude."""

    def equal(one: Array, other: Array) -> bool:
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and compared(other, one, tolerance, Allowance())[0].passed
        )

    def same(place: int, at: int) -> bool:
        return all(equal(own[place], theirs[at]) for own, theirs in zip(want, got, strict=True))

    return same

"""What differs between the parameters of two compilations: their number, order, types, placement, donation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from hloopt.analysis.recompilation.reason import Reason, argument_name, user_line_near
from hloopt.ir import Instruction, Module
from hloopt.ir.normal import normal_attributes, normal_header
from hloopt.text.printer import value_text
from hloopt.types import ArrayShape, FrontendAttributes, Shape, without_layout

__all__ = ["ParameterPair", "pair_parameters", "parameter_reasons"]

ParameterPair: TypeAlias = tuple[Instruction | None, Instruction | None]
"""A parameter in either module; None in the one that lacks it."""

_Shapes: TypeAlias = tuple[Shape, ...]
_SDY: Final = "xla.sdy.sharding"


def pair_parameters(before: Module, after: Module) -> list[ParameterPair]:
    """The parameters of both entries: by the arguments' names where these are distinct, else by number."""
    sides = before.entry.parameters, after.entry.parameters
    names = [Counter(map(argument_name, side)) for side in sides]
    second = {argument_name(one): one for one in sides[1]}
    both = names[0].keys() & names[1].keys()
    if len(names[0]) < len(sides[0]) or len(names[1]) < len(sides[1]) or not both:
        second, both = {}, set()
    pairs: list[ParameterPair] = [
        (one, second[argument_name(one)]) for one in sides[0] if argument_name(one) in both
    ]
    left, right = ([one for one in side if argument_name(one) not in both] for side in sides)
    if len(left) == len(right) or not both:  # renamed, or without names
        common = min(len(left), len(right))
        pairs += zip(left[:common], right[:common], strict=True)
        left, right = left[common:], right[common:]
    return [*pairs, *((one, None) for one in left), *((None, one) for one in right)]


def parameter_reasons(
    before: Module, after: Module, pairs: list[ParameterPair]
) -> Iterator[Reason]:
    """One reason for each thing that differs of each parameter."""
    shapes = _shapes(before), _shapes(after)
    donated = _donated(before), _donated(after)
    for one, other in pairs:
        if one is None or other is None:
            yield _missing(one, other, shapes)
            continue
        numbers = one.parameter_number, other.parameter_number
        types = shapes[0][numbers[0]], shapes[1][numbers[1]]
        name, line = argument_name(other), user_line_near(other) or user_line_near(one)
        yield from _types(name, line, *types)
        placed = _placement(one), _placement(other)
        if placed[0] != placed[1]:
            old, new = (text or "left open" for text in placed)
            yield Reason("sharding", name, old, new, line)
        given = (donated[0].get(numbers[0], ""), donated[1].get(numbers[1], ""))
        if given[0] != given[1]:
            yield Reason("donation", name, given[0] or "kept", given[1] or "kept", line)
    yield from _reordered([pair for pair in pairs if None not in pair])


def _missing(
    one: Instruction | None, other: Instruction | None, shapes: tuple[_Shapes, _Shapes]
) -> Reason:
    """The reason that only one of the modules has a parameter."""
    if other is not None:
        new = str(without_layout(shapes[1][other.parameter_number]))
        return Reason("parameters", argument_name(other), "", new, user_line_near(other))
    assert one is not None, "a pair has a side"
    old = str(without_layout(shapes[0][one.parameter_number]))
    return Reason("parameters", argument_name(one), old, "", user_line_near(one))


def _types(name: str, line: str, old: Shape, new: Shape) -> Iterator[Reason]:
    if old == new:
        return
    first, second = without_layout(old), without_layout(new)
    texts = str(first), str(second)
    if not isinstance(first, ArrayShape) or not isinstance(second, ArrayShape):
        yield Reason("shape" if first != second else "layout", name, str(old), str(new), line)
        return
    if first.dtype != second.dtype:
        yield Reason("dtype", name, *texts, line)
    if first.dims != second.dims:
        yield Reason("shape", name, *texts, line, _dimensions(first, second))
    elif first.dynamic != second.dynamic and (first.is_dynamic or second.is_dynamic):
        yield Reason("dynamic", name, *texts, line)
    if first == second:
        yield Reason("layout", name, str(old), str(new), line)


def _dimensions(first: ArrayShape, second: ArrayShape) -> str:
    if first.rank != second.rank:
        return f"{first.rank} dimensions before, {second.rank} after"
    pairs = zip(first.dims, second.dims, strict=True)
    moved = [str(number) for number, (old, new) in enumerate(pairs) if old != new]
    return f"dimension{'s' if len(moved) > 1 else ''} {', '.join(moved)}"


def _shapes(module: Module) -> _Shapes:
    """The parameters' shapes with the layouts that callers must use."""
    shapes: _Shapes = normal_header(module)["entry_computation_layout"][0]
    return shapes


def _placement(parameter: Instruction) -> str:
    """The sharding, in Shardy's words where the module has those; empty where it is left open."""
    written = FrontendAttributes.of(parameter.attributes).get(_SDY)
    if written is not None:
        return written.removeprefix("#sdy.sharding")
    value = normal_attributes(parameter).get("sharding")
    return "" if value is None else value_text(value)


def _donated(module: Module) -> dict[int, str]:
    """What becomes of the memory of each parameter that the caller gives away."""
    header = normal_header(module)
    found: dict[int, list[str]] = {}
    for entry in header.get("input_output_alias", ()):
        where = ",".join(map(str, entry.output_index))
        of = f" part {_index(entry.parameter_index)} is" if entry.parameter_index else ""
        must = ", must alias" if entry.kind == "must-alias" else ""
        result = f"result {where}" if where else "the result"
        found.setdefault(entry.parameter, []).append(f"donated,{of} {result}{must}")
    for number, index in header.get("buffer_donor", ()):
        part = f", part {_index(index)}" if index else ""
        found.setdefault(number, []).append(f"donated{part}")
    return {number: "; ".join(parts) for number, parts in found.items()}


def _index(index: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, index))}}}"


def _reordered(pairs: list[ParameterPair]) -> Iterator[Reason]:
    """The parameters that have other places among those that both modules have."""

    def number(side: int) -> Callable[[ParameterPair], int]:
        def of(pair: ParameterPair) -> int:
            entry = pair[side]
            assert entry is not None, "both modules have it"
            return entry.parameter_number

        return of

    places = {pair: place for place, pair in enumerate(sorted(pairs, key=number(1)))}
    for place, pair in enumerate(sorted(pairs, key=number(0))):
        if places[pair] != place and pair[1] is not None:
            old, new = (f"parameter {number(side)(pair)}" for side in (0, 1))
            yield Reason("order", argument_name(pair[1]), old, new, user_line_near(pair[1]))

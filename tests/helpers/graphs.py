"""Whether two modules are the same graph, names and all: what printing and reading again must not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hloopt.ir import Computation, Instruction, Module, StackTables
from hloopt.ir.walk import callees_first
from hloopt.types import Literal

__all__ = ["graph_difference"]


def graph_difference(left: Module, right: Module) -> str:
    """The first difference of two modules, or an empty string.

    Compared are names, orders, shapes with their layouts as written, operands, control edges, users,
    callers, attributes, literals by their bytes (elided ones count as equal), metadata, stack tables, the
    header.  Not compared are the order of attributes, places in the source, and warnings.
    """
    return next(_differences(left, right), "")


def _differences(left: Module, right: Module) -> Iterator[str]:
    yield from _differ("module", "name", left.name, right.name)
    yield from _attributes("module", left.attributes, right.attributes)
    for table in StackTables.__slots__:
        yield from _differ(
            "module", table, getattr(left.stack_tables, table), getattr(right.stack_tables, table)
        )
    yield from _differ("module", "entry", left.entry.name, right.entry.name)
    computations = callees_first(left), callees_first(right)
    yield from _differ("module", "computations", *map(_names, computations))
    for one, other in zip(*computations, strict=True):
        yield from _computations(one, other)


def _computations(left: Computation, right: Computation) -> Iterator[str]:
    place = left.name
    yield from _differ(place, "thread", left.execution_thread, right.execution_thread)
    yield from _differ(place, "instructions", _names(left), _names(right))
    yield from _differ(place, "parameters", _names(left.parameters), _names(right.parameters))
    yield from _differ(place, "root", left.root.name, right.root.name)
    yield from _differ(place, "callers", _callers(left), _callers(right))
    for one, other in zip(left, right, strict=True):
        yield from _instructions(f"{place}: {one.name}", one, other)


def _instructions(place: str, left: Instruction, right: Instruction) -> Iterator[str]:
    for what in ("opcode", "shape", "metadata"):
        yield from _differ(place, what, getattr(left, what), getattr(right, what))
    for what in ("operands", "control_predecessors"):
        yield from _differ(place, what, _names(getattr(left, what)), _names(getattr(right, what)))
    for what in ("users", "control_successors"):
        yield from _differ(
            place, what, set(_names(getattr(left, what))), set(_names(getattr(right, what)))
        )
    yield from _attributes(place, left.attributes, right.attributes)


def _attributes(place: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[str]:
    yield from _differ(place, "attributes", sorted(left), sorted(right))
    for name, value in left.items():
        yield from _differ(place, name, _comparable(value), _comparable(right[name]))


def _comparable(value: Any) -> Any:
    if isinstance(value, Computation):
        return value.name
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, Literal):
        return value.shape, "elided" if value.elided else value.key
    return type(value), value


def _differ(place: str, what: str, left: object, right: object) -> Iterator[str]:
    if left != right:
        yield f"{place}: {what}: {_short(left)}, not {_short(right)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:200]}..."


def _names(entries: Any) -> list[str]:
    return [entry.name for entry in entries]


def _callers(computation: Computation) -> set[tuple[str, str, int]]:
    return {
        (caller.computation.name if caller.computation else "", caller.name, count)
        for caller, count in computation.callers.items()
    }

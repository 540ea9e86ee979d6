"""What a changed copy of a module has that the module has not: what is to be verified again."""

from __future__ import annotations

from typing import Any

from hloopt.ir import Computation, Instruction, Module

__all__ = ["differing"]


def differing(module: Module, like: Module) -> list[Computation]:
    """The computations that ``like`` does not have under the same name, and those that call one of these.

    Names, order, operands, control edges, shapes and attributes count, metadata does not.
    """
    fresh = {one for one in module if not _is_same(one, like.computations.get(one.name))}
    calling = {
        caller.computation
        for called in fresh
        for caller in called.callers
        if caller.computation is not None
    }
    return [one for one in module if one in fresh or one in calling]


def _is_same(one: Computation, other: Computation | None) -> bool:
    return (
        other is not None
        and len(one) == len(other)
        and getattr(one, "root", None) is not None
        and one.root.name == other.root.name
        and all(map(_are_alike, one, other))
    )


def _are_alike(one: Instruction, other: Instruction) -> bool:
    return (
        one.name == other.name
        and one.opcode == other.opcode
        and one.shape == other.shape
        and _names(one.operands) == _names(other.operands)
        and _names(one.control_predecessors) == _names(other.control_predecessors)
        and one.attributes.keys() == other.attributes.keys()
        and all(_is_equal(value, other.attributes[name]) for name, value in one.attributes.items())
    )


def _names(instructions: tuple[Instruction, ...]) -> list[str]:
    return [one.name for one in instructions]


def _is_equal(value: Any, other: Any) -> bool:
    """Of attributes; computations by their names."""
    if isinstance(value, Computation):
        return isinstance(other, Computation) and value.name == other.name
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return (
            isinstance(other, tuple)
            and len(value) == len(other)
            and all(map(_is_equal, value, other))
        )
    return value is other or bool(value == other)

"""Several modules made one, so that a compiler is started once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.types import TupleShape

__all__ = ["joined"]


def joined(modules: Sequence[Module]) -> Module:
    """A module that calls the entry of each: their parameters and their results, one module's after the other's."""
    whole = Module("joined")
    copies: dict[Computation, Computation] = {}
    entry = Computation("joined_main")
    calls: list[Instruction] = []
    number = 0
    for module in modules:
        for computation in _called_first(module.entry, copies):
            cloned = build.clone_computation(computation, None, copies)
            copies[computation] = edit.add_computation(whole, cloned)
    edit.add_computation(whole, entry)
    for module in modules:
        given = []
        for parameter in module.entry.parameters:
            attributes = {"parameter_number": number}
            given.append(build.make(entry, "parameter", (), attributes, shape=parameter.shape))
            number += 1
        called = {"to_apply": copies[module.entry]}
        calls.append(build.make(entry, "call", tuple(given), called, shape=module.entry.root.shape))
    entry.root = build.make(
        entry, "tuple", tuple(calls), shape=TupleShape(tuple(call.shape for call in calls))
    )
    whole.entry = entry
    return whole


def _called_first(
    computation: Computation, known: dict[Computation, Computation]
) -> Sequence[Computation]:
    found: dict[Computation, None] = {}

    def visit(one: Computation) -> None:
        if one in found or one in known:
            return
        for instruction in one:
            for called in walk.called_computations(instruction):
                visit(called)
        found[one] = None

    visit(computation)
    return list(found)

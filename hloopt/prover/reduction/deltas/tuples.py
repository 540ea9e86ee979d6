"""Tuples that nothing needs: of one argument or result of a computation, of what the entry gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.signatures import tied
from hloopt.ir.walk import called_computations
from hloopt.prover.reduction.case import Case, CaseDraft, open_tuple
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import Shape, TupleShape

__all__ = ["TUPLES"]

_CALLS: Final = ("call", "conditional")


def _sites(case: Case) -> list[Site]:
    """Parameters of the entry; results and arguments of calls and branches (of loops: see their states)."""
    module = case.module
    found: list[Site] = [("entry", one.name, 0) for one in module.entry.parameters if one.is_tuple]
    for home in module:
        if not home.callers or any(caller.opcode not in _CALLS for caller in home.callers):
            continue
        if _has_one(home.root.shape):
            found.append(("result", home.name, 0))
        found += [
            ("argument", home.name, number)
            for number, one in enumerate(home.parameters)
            if _has_one(one.shape)
        ]
    return found


def _has_one(shape: Shape) -> bool:
    return isinstance(shape, TupleShape) and len(shape.elements) == 1


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for what, name, number in sites:
        if what == "entry":
            one = draft.entry.by_name.get(name)
            if one is not None and one in draft.arrays:
                draft.replace(one, draft.given(one, draft.arrays[one]))
            continue
        home = draft.module.computations.get(name)
        if home is None:
            continue
        if what == "argument":
            _open_argument(draft, home, number)
        elif all(caller.opcode in _CALLS for each in tied(home) for caller in each.callers):
            _open_result(draft, home)


def _open_argument(draft: CaseDraft, home: Computation, number: int) -> None:
    """Give a computation the element itself."""
    parameter = home.parameters[number]
    if not _has_one(parameter.shape):
        return
    _wrap(draft, parameter)
    for caller in home.callers:
        for place, operand in enumerate(caller.operands):
            if _takes(caller, place, home, number):
                (element,) = build.elements(caller, operand)
                edit.set_operand(caller, place, element)
                draft.drop(operand)


def _takes(caller: Instruction, place: int, home: Computation, number: int) -> bool:
    """Whether an operand is what a parameter of a computation stands for."""
    if caller.opcode != "conditional":
        return place == number
    return place > 0 and list(called_computations(caller))[place - 1] is home


def _open_result(draft: CaseDraft, home: Computation) -> None:
    """Let a computation, and the other branches of its conditionals, return the element itself."""
    group = tied(home)
    if not all(_has_one(each.root.shape) for each in group):
        return
    for each in group:
        root = each.root
        (element,) = build.elements(each, root)
        edit.set_root(each, element)
        if not root.users:
            edit.remove(root)
    for caller in dict.fromkeys(caller for each in group for caller in each.callers):
        _wrap(draft, caller)


def _wrap(draft: CaseDraft, one: Instruction) -> None:
    """Make a value the only element of what it was, and put that into a tuple for those that read it."""
    shape = one.shape
    assert isinstance(shape, TupleShape)
    whole = build.make(one, "tuple", (one,), shape=shape)
    edit.move_after(one, whole)
    edit.replace_uses(one, whole)
    edit.set_shape(one, shape.elements[0])
    open_tuple(whole)
    draft.drop(whole)


TUPLES: Final = Delta("tuples of one element", _sites, _apply, grows=True)

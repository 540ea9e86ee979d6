"""Fewer results: the end of the entry cut off, outputs dropped, the root's operand in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.runtime.inputs import positions
from hloopt.types import TupleShape

__all__ = ["BACK", "RESULTS", "ROOT"]


def _holds_data(instruction: Instruction) -> bool:
    return any(True for _ in positions(instruction.shape))


def _back_sites(case: Case) -> list[Site]:
    """The entry's instructions, from the last one on."""
    return [(one.name,) for one in reversed(case.module.entry)]


def _cut_back(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    """Return all that the instructions at the sites read of the others."""
    entry = draft.entry
    gone = {entry.by_name[name] for (name,) in sites}
    kept = [one for one in entry if one not in gone]
    read = [
        one
        for one in kept
        if _holds_data(one)
        and one.opcode not in ("parameter", "constant", "tuple")
        and (one.is_root or any(user in gone for user in one.users))
    ]
    if not read:
        return
    _return(entry, read)
    for one in reversed(list(entry)):
        if one in gone and not one.users and not one.is_root:
            draft.drop(one)


def _return(entry: Computation, values: Sequence[Instruction]) -> None:
    """Make these the results of the entry: a single one by itself, others in a tuple."""
    if len(values) == 1:
        edit.set_root(entry, values[0])
        return
    shape = TupleShape(tuple(value.shape for value in values))
    edit.set_root(entry, build.make(entry, "tuple", tuple(values), shape=shape))


def _result_sites(case: Case) -> list[Site]:
    root = case.module.entry.root
    count = len(root.elements) if root.is_tuple else 0
    return [(number, count) for number in range(count)]


def _drop_results(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    """Drop outputs; of a tuple with one element drop the tuple."""
    entry, old = draft.entry, draft.entry.root
    if not old.is_tuple or any(count != len(old.elements) for _, count in sites):
        return
    gone = {number for number, _ in sites} if len(old.elements) > 1 else set()
    kept = [
        number
        for number, shape in enumerate(old.elements)
        if number not in gone and any(True for _ in positions(shape))
    ]
    if not kept:
        return
    if old.opcode == "tuple":
        values = [old.operands[number] for number in kept]
    else:
        values = [build.element(entry, old, number) for number in kept]
    _return(entry, values)
    draft.drop(old)


def _root_sites(case: Case) -> list[Site]:
    root = case.module.entry.root
    if root.opcode == "tuple":
        return []
    return [(root.name, number) for number, one in enumerate(root.operands) if _holds_data(one)]


def _root_is_operand(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    entry = draft.entry
    for name, number in sites[:1]:
        root = entry.root
        if root.name == name:
            edit.set_root(entry, root.operands[number])
            draft.drop(root)


BACK: Final = Delta("end of the entry", _back_sites, _cut_back, "prefix", grows=True)
RESULTS: Final = Delta("results", _result_sites, _drop_results, grows=True)
ROOT: Final = Delta("root", _root_sites, _root_is_operand, "each")

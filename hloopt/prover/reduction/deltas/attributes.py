"""Attributes that a failure does not need: metadata and layouts first, then all that may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.ir import Instruction, edit
from hloopt.ir.module import StackTables
from hloopt.ops import COMMON_ATTRIBUTES
from hloopt.ops.opdef import Kind
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import without_layout

__all__ = ["ATTRIBUTES", "SINGLE"]

_COMMON: Final = frozenset(entry.name for entry in COMMON_ATTRIBUTES)
_MEANING: Final = frozenset({
    Kind.COMPUTATION, Kind.COMPUTATIONS, Kind.INTS, Kind.WINDOW, Kind.PADDING, Kind.CONV_DIMS, Kind.SLICES,
    Kind.LITERAL, Kind.GROUPS,
})  # fmt: skip
"""Kinds whose attributes say what is computed, even where a default exists."""
_PARTICIPANTS: Final = frozenset({"replica_count", "num_partitions"})


def _may_go(instruction: Instruction, name: str) -> bool:
    if name in _COMMON:
        return True
    row = instruction.op.attribute(name)
    return row is None or not (row.required or row.kind in _MEANING)


def _sites(case: Case) -> list[Site]:
    """Metadata, layouts, control edges; each attribute of the header; each attribute in all instructions."""
    module = case.module
    found: list[Site] = []
    if module.stack_tables or any(one.metadata for one in module.instructions()):
        found.append(("metadata",))
    header = [("header", name) for name in module.attributes if name not in _PARTICIPANTS]
    names = {
        name: None for one in module.instructions() for name in one.attributes if _may_go(one, name)
    }
    found += [*header, *(("attribute", name) for name in names)]
    if any(one.control_predecessors for one in module.instructions()):
        found.append(("control",))
    if any(without_layout(one.shape) != one.shape for one in module.instructions()):
        found.append(("layouts",))
    return found


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    module = draft.module
    for site in sites:
        if site[0] == "metadata":
            module.stack_tables = StackTables()
        if site[0] == "header":
            module.attributes.pop(site[1], None)
        for one in module.instructions():
            _clear(one, site)
    if ("layouts",) in sites:
        module.attributes.pop("entry_computation_layout", None)


def _clear(one: Instruction, site: Site) -> None:
    kind = site[0]
    if kind == "metadata":
        one.metadata = None
    elif kind == "attribute" and site[1] in one.attributes and _may_go(one, site[1]):
        edit.set_attribute(one, site[1], None)
    elif kind == "control":
        edit.drop_control_edges(one)
    elif kind == "layouts":
        edit.set_shape(one, without_layout(one.shape))


def _single_sites(case: Case) -> list[Site]:
    """Optional attributes of single instructions, where they cannot go everywhere."""
    return [
        (one.home.name, one.name, name)
        for one in case.module.instructions()
        for name in one.attributes
        if _may_go(one, name)
    ]


def _single(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for home, name, attribute in sites:
        found = draft.find((home, name))
        if found is not None:
            edit.set_attribute(found, attribute, None)


ATTRIBUTES: Final = Delta("attributes", _sites, _apply)
SINGLE: Final = Delta("single attributes", _single_sites, _single)

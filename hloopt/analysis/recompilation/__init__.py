"""Why a function was compiled again: what one compilation has otherwise than an earlier one.

A frontend compiles a function again where the types of its arguments, its constants, what it donates, how it is
sharded, the flags or the program differ.  All of that is in the module, or in the files that a dump has beside
it.  Where neither differs, the frontend's own key did: a function object that was made anew, say.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

from hloopt.analysis.differences import Difference, differences
from hloopt.analysis.recompilation.beside import flag_reasons, frontend_reason
from hloopt.analysis.recompilation.parameters import (
    ParameterPair,
    pair_parameters,
    parameter_reasons,
)
from hloopt.analysis.recompilation.reason import REMEDIES, Reason, by_weight, user_line_near
from hloopt.dataclass import dataclass
from hloopt.dumps.beside import Beside
from hloopt.ir import Instruction, Module
from hloopt.ir.canonical import fingerprint
from hloopt.ir.normal import normal_header
from hloopt.types import without_layout

__all__ = [
    "REMEDIES",
    "Compilation",
    "Reason",
    "Recompilation",
    "recompilation",
    "recompilations",
]

_EARLIER: Final = 64
"""With how many earlier compilations one is compared to find the nearest."""
_HEADER: Final = {
    "replica_count": "devices",
    "num_partitions": "devices",
    "allow_spmd_sharding_propagation_to_parameters": "sharding",
    "allow_spmd_sharding_propagation_to_output": "sharding",
    "frontend_attributes": "sharding",
    "input_output_alias": "donation",
    "buffer_donor": "donation",
}
_NONE: Final = {"devices": "1", "sharding": "left open", "donation": "kept"}
"""What the header means by saying nothing."""
_TYPES: Final = frozenset(("parameters", "dtype", "shape", "dynamic"))
"""Reasons about parameters that change what is computed from them."""
_IMPLIED_FLAGS: Final = {
    "devices": ("num_partitions", "num_replicas", "replica_device_ids", "_count", "spmd"),
    "sharding": ("spmd",),
}
"""Parts of the names of compile options that say again what the header says."""


@dataclass(frozen=True)
class Compilation:
    """A module that was compiled, what it is called in a dump, and what the dump has beside it."""

    label: str
    module: Module
    beside: Beside = field(default_factory=Beside)

    @cached_property
    def fingerprint(self) -> str:
        """The same for modules that are equal but for names and metadata."""
        return fingerprint(self.module)

    @cached_property
    def features(self) -> frozenset[Hashable]:
        """What the nearest earlier compilation has most of in common."""
        module = self.module
        header = normal_header(module)
        types, result = header.pop("entry_computation_layout")
        counts = Counter(entry.opcode for entry in module.instructions())
        constants = (entry.attributes.get("literal") for entry in module.entry)
        return frozenset(
            (
                *(("parameter", number, str(shape)) for number, shape in enumerate(types)),
                ("result", str(result)),
                *(("header", name, str(value)) for name, value in header.items()),
                *(("op", *row) for row in counts.items()),
                *(("constant", value.key) for value in constants if value and not value.elided),
                *(
                    (file, *row)
                    for file, known in self.beside.flags.items()
                    for row in known.items()
                ),
            )
        )


@dataclass(frozen=True)
class Recompilation:
    """A compilation beside an earlier one, with the reasons by what matters.

    others  how many more differences the modules have, which follow from the reasons or came with them
    calls   the first frame that differs of the user's call, in either compilation; empty where none is known
    """

    before: Compilation
    after: Compilation
    reasons: tuple[Reason, ...]
    others: int = 0
    calls: tuple[str, str] = ("", "")

    @property
    def same(self) -> bool:
        """Whether nothing known makes the second compilation necessary."""
        return all(one.kind == "metadata" for one in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "before": self.before.label,
            "after": self.after.label,
            "function": self.after.module.name,
            "same": self.same,
            "reasons": [one.to_json() for one in self.reasons],
            "other_differences": self.others,
            "called_before": self.calls[0] or None,
            "called_after": self.calls[1] or None,
        }


def recompilation(before: Compilation, after: Compilation) -> Recompilation:
    """The reasons for which ``after`` is not ``before``."""
    modules = before.module, after.module
    reasons: list[Reason] = []
    others = 0
    if before.fingerprint != after.fingerprint:
        pairs = pair_parameters(*modules)
        reasons += parameter_reasons(*modules, pairs)
        rest = [one for one in differences(*modules) if not _is_of_parameters(one, pairs)]
        found, others = _module_reasons(rest, {one.kind for one in reasons})
        reasons += found
    kinds = {one.kind for one in reasons}
    implied = [word for kind in kinds for word in _IMPLIED_FLAGS.get(kind, ())]
    reasons += (
        one
        for one in flag_reasons(before.beside, after.beside)
        if not any(word in one.subject for word in implied)
    )
    elided = _elided(after.module)
    written = frontend_reason(before.beside, after.beside) if not reasons else None
    if written is not None and written.kind == "constant" and len(elided) == 1:
        name, line = f"%{elided[0].name}", user_line_near(elided[0])
        written = replace(written, subject=name, line=line)
    reasons += [written] if written is not None else []
    if not reasons and elided and None in (before.beside.program, after.beside.program):
        reasons.append(_values_reason(elided))
    calls = _calls(*modules)
    if not reasons and (calls[0] != calls[1] or _notes(modules[0]) != _notes(modules[1])):
        reasons.append(Reason("metadata", "source lines", *calls))
    return Recompilation(before, after, by_weight(reasons), others, calls)


def recompilations(compilations: Sequence[Compilation]) -> list[Recompilation]:
    """Each compilation but the first beside the nearest before it, the last one of several equally near.

    The nearest has most in common of shapes, header, opcodes, constants and flags.  It is an equal one, or one
    of the 64 before.
    """
    found: list[Recompilation] = []
    equal: dict[str, Compilation] = {}
    recent: deque[Compilation] = deque(maxlen=_EARLIER)
    for one in compilations:
        twin = equal.get(one.fingerprint)
        candidates = [*([twin] if twin else []), *recent]
        if candidates:
            nearest = min(
                reversed(candidates), key=lambda other: len(other.features ^ one.features)
            )
            found.append(recompilation(nearest, one))
        equal[one.fingerprint] = one
        recent.append(one)
    return found


def _is_of_parameters(one: Difference, pairs: Sequence[ParameterPair]) -> bool:
    """Whether a difference is of a parameter of the entry, which has reasons of its own."""
    entry = one.before or one.after
    if entry is None:
        return one.what.startswith("entry_computation_layout") and not one.what.endswith("result")
    module = entry.computation.module if entry.computation is not None else None
    return entry.opcode == "parameter" and module is not None and entry.computation is module.entry


def _module_reasons(found: Sequence[Difference], known: set[str]) -> tuple[list[Reason], int]:
    """The reasons among the differences that are not of parameters, and how many are left.

    ``known`` are the kinds of the reasons found in parameters.
    """
    follows = bool(known & _TYPES)
    reasons: list[Reason] = []
    program: list[Difference] = []
    left = 0
    for one in found:
        entry = one.before or one.after
        kind = _kind(one, entry)
        if kind == "result" or (one.what == "shape" and follows):
            left += 1
        elif kind == "program":
            program.append(one)
        elif kind not in known & {"sharding", "donation"}:
            subject = one.what if entry is None else f"%{entry.name}"
            old, new = one.old or _NONE.get(kind, ""), one.new or _NONE.get(kind, "")
            line = user_line_near(entry) if entry is not None else ""
            follows_too = follows and kind == "constant"
            reasons.append(Reason(kind, subject, old, new, line, may_follow=follows_too))
    if program:
        reasons.append(_program_reason(program, follows))
        left += len(program) - 1
    if not reasons and not known and left:
        reasons += (Reason("result", "result", one.old, one.new) for one in found)
        left = 0
    return reasons, left


def _kind(one: Difference, entry: Instruction | None) -> str:
    if entry is None and not one.computation:
        if one.what.startswith("entry_computation_layout"):
            return "result"
        return _HEADER.get(one.what, "header")
    if one.what == "literal":
        return "constant"
    return "sharding" if one.what in ("sharding", "frontend_attributes") else "program"


def _program_reason(found: Sequence[Difference], follows: bool) -> Reason:
    """What is computed otherwise: the first instruction that is another, or in one module only."""
    first = next((one for one in found if one.what in ("opcode", "instruction")), found[0])
    entry = first.before or first.after
    subject = f"%{first.computation}" if entry is None else f"%{entry.name}"
    if first.what not in ("opcode", "instruction"):
        subject = f"{first.what} of {subject}"
    places = {(one.before, one.after) for one in found}
    note = f"and {len(places) - 1} more" if len(places) > 1 else ""
    line = user_line_near(entry) if entry is not None else ""
    return Reason("program", subject, first.old, first.new, line, note, follows)


def _elided(module: Module) -> list[Instruction]:
    """The constants whose values the text leaves out."""
    literals = ((entry, entry.attributes.get("literal")) for entry in module.instructions())
    return [entry for entry, literal in literals if literal is not None and literal.elided]


def _values_reason(elided: Sequence[Instruction]) -> Reason:
    """That nothing known differs, but the values of constants are not known."""
    first = elided[0]
    note = f"and {len(elided) - 1} more" if len(elided) > 1 else ""
    text = f"{without_layout(first.shape)} {{...}}"
    return Reason("values", f"%{first.name}", text, text, user_line_near(first), note)


def _notes(module: Module) -> Counter[str]:
    """The user's lines of all instructions."""
    return Counter(module.user_line(entry.metadata) for entry in module.instructions())


def _calls(before: Module, after: Module) -> tuple[str, str]:
    """The outermost frame of the user's program in which the calls of both differ."""
    for old, new in zip_longest(_frames(before), _frames(after), fillvalue=""):
        if old != new:
            return old, new
    return "", ""


def _frames(module: Module) -> list[str]:
    """``file:line`` of each caller, the outermost first, of the first instruction that names any."""
    tables = module.stack_tables
    for entry in module.entry:
        fields = entry.metadata.fields if entry.metadata is not None else {}
        number = int(fields.get("stack_frame_id", 0))
        found: list[str] = []
        while len(found) < len(tables.frames) and (frame := tables.frame(number)) is not None:
            found.append(f"{frame[0]}:{frame[1]}")
            # As texts have it, 1 is the outermost's: its callers are those of a frame before the first.
            number = tables.frames[number].get("parent_frame_id", 1) - 1
        if found:
            return found[::-1]
    return []

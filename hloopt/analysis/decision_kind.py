"""What kind of decision of a compiler the differences between two modules are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from hloopt.analysis.differences import Difference
from hloopt.ops.traits import PLUMBING
from hloopt.types import Shape, without_layout

__all__ = ["DecisionKind", "decision_kind"]

DecisionKind: TypeAlias = Literal[
    "program", "rewriting", "layout", "library call", "copy", "fusion", "kernel", "order"
]
"""``program``: what was given differs; ``kernel``: how one is configured; ``order``: that of instructions."""

_COPIES: Final = frozenset({"copy", "copy-start", "copy-done"})
_CONFIGURED: Final = frozenset({"backend_config", "kind"})

_CALLED: Final[dict[str, DecisionKind]] = {
    "fusion": "fusion", "layout": "layout", "copy": "copy", "schedul": "order", "autotuner": "kernel",
}  # fmt: skip
"""What passes of XLA do that have this in their names."""


def decision_kind(changes: Iterable[Difference], passes: Iterable[str] = ()) -> DecisionKind:
    """The kind of decision of these passes, where their names say it.

    Else what the differences show together: what decides about kernels before what follows from it.
    """
    for name in passes:
        for word, kind in _CALLED.items():
            if word in name:
                return kind
    found = [*changes]
    opcodes = {
        entry.opcode
        for one in found
        if one.what in {"instruction", "opcode"}
        for entry in (one.before, one.after)
        if entry is not None
    } - (PLUMBING - {"constant"})
    if "fusion" in opcodes:
        return "fusion"
    if "custom-call" in opcodes or any(one.what == "custom_call_target" for one in found):
        return "library call"
    if opcodes:
        return "copy" if opcodes <= _COPIES | {"bitcast"} else "rewriting"
    shapes = [one for one in found if one.what == "shape"]
    if shapes:
        return "layout" if all(map(_is_layout, shapes)) else "rewriting"
    whats = {one.what for one in found}
    if whats and whats <= _CONFIGURED:
        return "kernel"
    return "order" if whats and whats <= {"order", "control-predecessors"} else "rewriting"


def _is_layout(one: Difference) -> bool:
    """Whether a shape differs by nothing but its layout."""
    if one.before is None or one.after is None:
        return False
    shapes: list[Shape] = [without_layout(entry.shape) for entry in (one.before, one.after)]
    return shapes[0] == shapes[1]

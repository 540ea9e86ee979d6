"""The computations an instruction calls: the proto lists them, the text names each one's part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hloopt.ir import Computation
from hloopt.ops import OPS
from hloopt.proto import ProtoProblem
from hloopt.types import ArrayShape, Shape

__all__ = ["CALLS", "called_by", "calls"]

CALLS: dict[str, tuple[tuple[str, int], ...]] = {
    opcode: tuple((name, place) for place, name in enumerate(row.computation_attributes()))
    for opcode, row in OPS.items()
    if row.calls and opcode != "conditional"
}
"""In the order of the text; the number is the place in the proto's list."""
CALLS["while"] = (("condition", 1), ("body", 0))
_BRANCHES = (("true_computation", 0), ("false_computation", 1))
# XLA finds them through the operand; the proto of older versions repeats them.
_REPEATED = ("async-update", "async-done")


def calls(
    opcode: str, called: tuple[Computation, ...], operands: tuple[Shape, ...]
) -> Iterator[tuple[str, Any]]:
    """Attribute names and computations of an instruction; raises ``ProtoProblem`` where one is missing."""
    if not called or opcode in _REPEATED:
        return
    parts = CALLS.get(opcode)
    if opcode == "conditional" and _is_pred(operands):
        parts = _BRANCHES
    if parts is None:
        yield ("branch_computations" if opcode == "conditional" else "called_computations"), called
        return
    if len(called) != len(parts):
        raise ProtoProblem(
            f"{opcode} calls {len(parts)} computations, the proto lists {len(called)}",
            "called_computation_ids",
        )
    for name, place in parts:
        yield name, called[place]


def called_by(opcode: str, attributes: dict[str, Any]) -> list[Computation]:
    """The computations of an instruction in the proto's order."""
    found: list[Computation] = []
    parts = CALLS.get(opcode)
    if parts is None and "true_computation" in attributes:
        parts = _BRANCHES
    if parts is not None:
        ordered = sorted(parts, key=lambda part: part[1])
        return [attributes[name] for name, _ in ordered if name in attributes]
    for name in ("to_apply", "calls", "branch_computations", "called_computations"):
        value = attributes.get(name, ())
        value = value if isinstance(value, tuple) else (value,)
        found += [entry for entry in value if isinstance(entry, Computation)]
    return found


def _is_pred(operands: tuple[Shape, ...]) -> bool:
    return bool(operands) and isinstance(operands[0], ArrayShape) and operands[0].dtype.is_pred

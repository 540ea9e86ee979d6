"""Called computations: threads, bodies of fusions, composites, and results that are operands."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.ir import Instruction, walk
from hloopt.ops import OPS
from hloopt.ops.shapes import braces
from hloopt.ops.traits import WRAPPING
from hloopt.types import AliasEntry, BufferShape, FrontendAttributes, Shape, TupleShape, compatible
from hloopt.verifier.chains import thread_faults
from hloopt.verifier.constraints import Fault
from hloopt.verifier.readings import aliases, part_of

__all__ = ["CALLING", "calling_faults"]

CALLING = tuple(row.opcode for row in OPS.values() if row.computation_attributes())
"""The opcodes that ``calling_faults`` looks at."""

_SKIPS_SHAPES = "xla_skip_custom_call_alias_shape_check"


# Backends run these on threads of their own.
_OWN_THREADS = WRAPPING - {"fusion"} | {"call", "custom-call"}


def calling_faults(instruction: Instruction) -> Iterator[Fault]:
    """The offences of an instruction that calls computations, or of a custom call."""
    opcode = instruction.opcode
    if opcode not in _OWN_THREADS:
        for called in walk.called_computations(instruction):
            yield from thread_faults(instruction, called)
    if opcode == "fusion":
        yield from _fusion_faults(instruction)
    elif opcode == "call" and instruction.attributes.get("is_composite"):
        message = _composite_message(FrontendAttributes.of(instruction.attributes))
        if message:
            yield Fault(instruction, "composite", message)
    elif opcode == "custom-call":
        message = _constraint_message(instruction)
        if message:
            yield Fault(instruction, "layout-constraint", message)
    if opcode in ("fusion", "custom-call", "async-start"):
        message = _aliases_message(instruction)
        if message:
            yield Fault(instruction, "output-aliasing", message)


def _fusion_faults(fusion: Instruction) -> Iterator[Fault]:
    """The body is this fusion's own, and all of it is used."""
    body = fusion.attributes["calls"]
    first = next(iter(body.callers), fusion)
    if first is not fusion:
        yield Fault(fusion, "fusion", f"calls= is %{body.name}, which is the body of %{first.name}")
        return
    if body.root.users:
        user = next(iter(body.root.users))
        yield Fault(body.root, "fusion", f"is the root of a fusion's body and used by %{user.name}")
    for instruction in body:
        if instruction.users or instruction is body.root or instruction.op.side_effect:
            continue
        if not instruction.attributes.get("custom_call_has_side_effect"):
            yield Fault(
                instruction, "fusion", f"is in the body of %{fusion.name} and used by nothing"
            )


def _composite_message(attributes: FrontendAttributes) -> str:
    if not attributes.get("composite.name"):
        return "is_composite=true needs composite.name in frontend_attributes="
    if attributes.get("composite.attributes") == "":
        return "composite.attributes in frontend_attributes= is empty; none are {}"
    version = attributes.get("composite.version")
    if version is not None and not (version.isascii() and version.isdigit()):
        return f"composite.version={version!r} in frontend_attributes= is not a version number"
    return ""


def _constraint_message(call: Instruction) -> str:
    shapes = call.attributes.get("operand_layout_constraints")
    if shapes is None or call.custom_call_target == "LayoutConstraint":
        return ""
    if len(shapes) != len(call.operands):
        return f"operand_layout_constraints= has {len(shapes)} shapes for {len(call.operands)} operands"
    for number, (shape, operand) in enumerate(zip(shapes, call.operands, strict=True)):
        if not compatible(shape, operand.shape):
            return (
                f"operand_layout_constraints= gives operand {number} the shape {shape}, it has "
                f"{operand.shape}"
            )
    return ""


# ---- results that are operands ----------------------------------------------------------------------


def _aliases_message(instruction: Instruction) -> str:
    found = aliases(instruction)
    if not found:
        return ""
    skips = instruction.opcode == "custom-call" and (
        _SKIPS_SHAPES in FrontendAttributes.of(instruction.attributes)
    )
    # What is pinned and unpinned becomes a buffer, and a state holds arrays where operands are buffers.
    plain = (
        instruction.custom_call_target in ("Pin", "Unpin") or instruction.opcode == "async-start"
    )
    for entry in found:
        message = _alias_message(instruction, entry, plain=plain, skips=skips)
        if message:
            return f"output_to_operand_aliasing=: {message}"
    return ""


def _alias_message(instruction: Instruction, entry: AliasEntry, *, plain: bool, skips: bool) -> str:
    operands = instruction.operands
    if not 0 <= entry.parameter < len(operands):
        return f"there is no operand {entry.parameter} among {len(operands)}"
    operand = operands[entry.parameter].shape
    given = part_of(operand, entry.parameter_index)
    if given is None:
        return f"{braces(entry.parameter_index)} is not in operand {entry.parameter} of shape {operand}"
    result = part_of(instruction.shape, entry.output_index)
    if result is None:
        return f"{braces(entry.output_index)} is not in the result {instruction.shape}"
    if skips:
        return ""
    if plain:
        given, result = _plain(given), _plain(result)
    if not compatible(given, result):
        return (
            f"{braces(entry.output_index)} of the result is {result}, {braces(entry.parameter_index)} "
            f"of operand {entry.parameter} is {given}"
        )
    return ""


def _plain(shape: Shape) -> Shape:
    """Buffers as the arrays that they hold."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_plain, shape.elements)))
    return shape.element if isinstance(shape, BufferShape) else shape

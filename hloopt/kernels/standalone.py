"""An instruction by itself: as a separate module, and as a digest that ignores names."""

from __future__ import annotations

from typing import Any

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.canonical import fingerprint
from hloopt.kernels.backend_config import KernelConfig

__all__ = ["body_module", "plain", "signature", "standalone"]

_DIGITS = 16
_SAID = (
    "backend_config",
    "frontend_attributes",
    "sharding",
)  # of an op that say nothing of what it computes


def standalone(instruction: Instruction, *, keep_constants: bool = False) -> Module:
    """A module that computes one instruction out of parameters: an operand each, those that repeat once.

    What the instruction calls is copied; a choice of a kernel is left out.  With ``keep_constants`` operands
    that are constants stay such.
    """
    home = instruction.computation
    module = Module(instruction.name, home.module.source if home and home.module else None)
    copies: dict[Computation, Computation] = {}
    attributes = {
        name: _copied(value, module, copies) for name, value in instruction.attributes.items()
    }
    entry = Computation("main")
    operands: dict[Instruction, Instruction] = {}
    for operand in instruction.operands:
        if operand in operands:
            continue
        if keep_constants and operand.literal is not None:
            operands[operand] = build.clone(operand, entry, ())
            continue
        number = {"parameter_number": len(entry.parameters)}
        parameter = Instruction(operand.name, "parameter", operand.shape, (), number)
        operands[operand] = edit.append(entry, parameter)
    copy = Instruction(
        instruction.name,
        instruction.opcode,
        instruction.shape,
        tuple(operands[operand] for operand in instruction.operands),
        attributes,
        instruction.metadata,
        instruction.offset,
    )
    entry.root = edit.append(entry, copy)
    KernelConfig(copy).drop()
    module.entry = edit.add_computation(module, entry)
    return module


def _copied(value: Any, module: Module, copies: dict[Computation, Computation]) -> Any:
    """An attribute with the computations in it copied into a module."""
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(_copy(called, module, copies) for called in value)
    return _copy(value, module, copies) if isinstance(value, Computation) else value


def _copy(
    computation: Computation, module: Module, copies: dict[Computation, Computation]
) -> Computation:
    # Calls are nested a few deep: a fusion, its reduction, perhaps a call in that.
    if computation not in copies:
        for inner in computation:
            for value in inner.attributes.values():
                _copied(value, module, copies)
        copies[computation] = edit.add_computation(
            module, build.clone_computation(computation, None, copies)
        )
    return copies[computation]


def body_module(instruction: Instruction) -> Module:
    """What a kernel computes as a module's entry: a copy of a fusion's body, or the instruction alone."""
    if instruction.opcode != "fusion":
        return standalone(instruction)
    module = Module(instruction.name)
    body: Computation = instruction.attributes["calls"]
    module.entry = _copy(body, module, {})
    return module


def plain(module: Module) -> Module:
    """A module, in place, without what its instructions say of anything but what they compute."""
    for inner in module.instructions():
        for name in _SAID:
            if name in inner.attributes and inner.opcode != "custom-call":
                edit.set_attribute(inner, name, None)
    module.attributes.clear()
    return module


def signature(instruction: Instruction) -> str:
    """A digest of opcode, shapes, attributes and what is called; equal whatever the names are."""
    return fingerprint(standalone(instruction))[:_DIGITS]

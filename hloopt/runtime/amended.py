"""What ``hloopt run`` may change in a module that cannot be run as it is, each by the name of an option.

Constants that the text leaves out are invented; Python callbacks whose results are unused are removed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from hloopt.interpret.drawn import InputRole, drawn
from hloopt.ir import Instruction, Module, build, edit
from hloopt.runtime.roles import roles
from hloopt.types import ArrayShape, Literal, Shape, TupleShape

__all__ = ["CALLBACKS", "fill_constants", "ignore_callbacks"]

CALLBACKS: Final = frozenset(
    {
        "xla_ffi_partitioned_python_cpu_callback",
        "xla_ffi_partitioned_python_gpu_callback",
        "xla_ffi_python_cpu_callback",
        "xla_ffi_python_gpu_callback",
        "xla_python_cpu_callback",
        "xla_python_gpu_callback",
    }
)
"""Custom-call targets of JAX's Python callbacks: ``jax.debug.print``, ``io_callback``, ``pure_callback``."""


def fill_constants(module: Module, seed: int) -> int:
    """Give every constant that the text leaves out (``{...}``) a value; how many there were.

    The values of a seed suit what the module does with them, as inputs do (``inputs.generate``).
    """
    elided = [
        one
        for computation in module
        for one in computation
        if one.literal is not None and _is_elided(one.literal)
    ]
    found_roles = _roles(module)
    for number, one in enumerate(elided):
        assert one.literal is not None
        role = found_roles.get(one.name, InputRole())
        rng = np.random.default_rng([seed, number, _STREAM])
        edit.set_attribute(one, "literal", _filled(one.literal, rng, role))
    return len(elided)


_STREAM: Final = (1 << 32) + 2  # no parameter has this number


def _is_elided(literal: Literal) -> bool:
    return literal.elided or any(map(_is_elided, literal.elements))


def _roles(module: Module) -> dict[str, InputRole]:
    """The input roles of the entry's constants, by name: those of parameters in their place."""
    copy = build.clone_module(module)
    entry = copy.entry
    names = {}
    for one in list(entry):
        if one.literal is not None and one.literal.elided and isinstance(one.shape, ArrayShape):
            number = {"parameter_number": len(entry.parameters)}
            parameter = build.make(entry, "parameter", (), number, shape=one.shape)
            names[parameter] = one.name
            edit.replace_uses(one, parameter)
    return {
        names[parameter]: role
        for (parameter, index), role in roles(copy).items()
        if parameter in names and not index
    }


def _filled(literal: Literal, rng: np.random.Generator, role: InputRole) -> Literal:
    if not literal.elided:
        return replace(literal, elements=tuple(_filled(one, rng, role) for one in literal.elements))
    return _drawn(literal.shape, rng, role)


def _drawn(shape: Shape, rng: np.random.Generator, role: InputRole) -> Literal:
    if isinstance(shape, TupleShape):
        return Literal(shape, elements=tuple(_drawn(one, rng, role) for one in shape.elements))
    assert isinstance(shape, ArrayShape)
    return Literal(shape, drawn(rng, shape, role))


def ignore_callbacks(module: Module) -> list[str]:
    """Remove Python callbacks whose result arrays are unused; returns their names."""
    gone = []
    for computation in module:
        for one in list(computation):
            if one.custom_call_target in CALLBACKS and not _is_needed(one):
                gone.append(one.name)
                _leave_out(one)
    return gone


def _is_needed(call: Instruction) -> bool:
    """Whether an array of its results is used."""
    if not _has_arrays(call.shape):
        return False
    if call.is_root or not isinstance(call.shape, TupleShape):
        return bool(call.users) or call.is_root
    return any(
        user.opcode != "get-tuple-element" or (_has_arrays(user.shape) and _is_read(user))
        for user in call.users
    )


def _is_read(one: Instruction) -> bool:
    return bool(one.users) or one.is_root


def _has_arrays(shape: Shape) -> bool:
    if isinstance(shape, TupleShape):
        return any(map(_has_arrays, shape.elements))
    return isinstance(shape, ArrayShape) and shape.dtype.is_array


def _leave_out(call: Instruction) -> None:
    """Replace its results by its operand tokens, or by empty values."""
    for user in list(call.users):
        if user.opcode == "get-tuple-element":
            if _has_arrays(user.shape):
                edit.remove(user)
            else:
                edit.replace_instruction(user, _nothing(call, user.shape))
    if call.users or call.is_root:
        edit.replace_instruction(call, _nothing(call, call.shape))
    else:
        edit.remove(call)


def _nothing(call: Instruction, shape: Shape) -> Instruction:
    """A value of tokens alone, made before the call."""
    if isinstance(shape, TupleShape):
        return build.make(call, "tuple", tuple(_nothing(call, one) for one in shape.elements))
    tokens = (one for one in call.operands if one.shape == shape)
    return next(tokens, None) or build.make(call, "after-all")

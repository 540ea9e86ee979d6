"""User-defined evaluations of custom calls.

Such a function is called with a ``CustomCall`` and the operands, and gives the result's arrays:

    def saxpy(call, a, x, y):
        return a * x + y

It comes from an installed distribution (entry point group ``hloopt.custom_calls``, named like the target) or
from the command line (``--custom-call TARGET=module:function``), which takes precedence over
it and over hloopt's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret.context import Context, Value, token
from hloopt.interpret.failures import failure
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape
from hloopt.user_code import error_text, load_function

__all__ = ["GROUP", "CustomCall", "PluginFunction", "evaluate", "load", "named", "register"]

GROUP = "hloopt.custom_calls"
"""The entry point group: each entry point is named like the target that it evaluates."""


@dataclass(frozen=True, slots=True)
class CustomCall:
    """What a function receives of the call: the instruction's target, shapes and attributes.

    ``backend_config`` is the text as it stands in the module, empty where there is none.
    """

    target: str
    operand_shapes: tuple[Shape, ...]
    result_shape: Shape
    backend_config: str
    attributes: Mapping[str, Any]


PluginFunction: TypeAlias = Callable[..., Any]
"""Called with a ``CustomCall`` and the operands: arrays in storage types, nested tuples of them for tuples.
Gives an array for an array, a sequence for a tuple."""

_GIVEN: dict[str, PluginFunction] = {}


def register(target: str, function: PluginFunction) -> None:
    """Evaluate the calls of ``target`` in this process by ``function``."""
    _GIVEN[target] = function


def load(text: str) -> str:
    """Register what ``TARGET=module:function`` or ``TARGET=FILE.py:function`` names; the target.

    By default the target is the function's name.  A module is looked for in the current directory, too.
    Raises ``UsageError``.
    """
    target, equals, place = text.rpartition("=")
    if not place.partition(":")[2] or (equals and not target):
        raise UsageError(f"--custom-call: '{text}' is not of the form [TARGET=]module:function")
    found = load_function(place, "--custom-call")
    target = target or place.rpartition(":")[2].rpartition(".")[2]
    register(target, found)
    return target


def named(target: str) -> PluginFunction | None:
    """The function for a target: one that was registered, or the entry point of that name.

    Raises ``UsageError`` when the entry point cannot be loaded.
    """
    return _GIVEN.get(target) or _installed(target)


@cache
def _installed(target: str) -> PluginFunction | None:
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=target):
        try:
            found: PluginFunction = entry.load()
        except Exception as error:
            raise UsageError(
                f"the entry point '{target}' of {GROUP} cannot be loaded: {error_text(error)}"
            ) from error
        return found
    return None


def evaluate(
    function: PluginFunction,
    instruction: Instruction,
    operands: tuple[Value, ...],
    context: Context,
) -> Value:
    """Call a function for an instruction and check what it gives.

    Raises ``EvaluationError`` when it fails, or gives other shapes or types than the instruction has.
    """
    attributes = instruction.attributes
    target = instruction.custom_call_target
    shapes = tuple(operand.shape for operand in instruction.operands)
    call = CustomCall(
        target,
        shapes,
        instruction.shape,
        str(attributes.get("backend_config", "")),
        MappingProxyType(attributes),
    )
    given = [_stored(value, shape, context) for value, shape in zip(operands, shapes, strict=True)]
    try:
        result = function(call, *given)
    except Exception as error:
        raise _failed(instruction, f"failed: {error_text(error)}") from error
    return _checked(result, instruction.shape, "", instruction, context)


def _stored(value: Value, shape: Shape, context: Context) -> Value:
    """Operands as their types are stored, whatever the mode; not to be written to."""
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        parts = zip(value, shape.elements, strict=True)
        return tuple(_stored(part, element, context) for part, element in parts)
    if not isinstance(shape, ArrayShape) or isinstance(value, tuple):
        return value
    array = context.narrow(value, shape.dtype).view()
    array.flags.writeable = False
    return array


def _checked(
    result: Any, shape: Shape, index: str, instruction: Instruction, context: Context
) -> Value:
    if isinstance(shape, TupleShape):
        if not isinstance(result, (tuple, list)) or len(result) != len(shape.elements):
            wanted = f"{len(shape.elements)} results{index and ' for ' + index}"
            raise _failed(instruction, f"gave {_kind(result)} instead of {wanted}")
        return tuple(
            _checked(part, element, f"{index}{{{number}}}", instruction, context)
            for number, (part, element) in enumerate(zip(result, shape.elements, strict=True))
        )
    if not isinstance(shape, ArrayShape):
        return token()
    array = np.asarray(result)
    if array.dtype != shape.dtype.numpy or not shape.holds(array.shape):
        place = f" for {index}" if index else ""
        raise _failed(
            instruction, f"gave {array.dtype.name}{list(array.shape)} instead of {shape}{place}"
        )
    return context.round(array, shape.dtype)


def _kind(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"{len(result)} results"
    return f"an object of type {type(result).__name__}"


def _failed(instruction: Instruction, message: str) -> EvaluationError:
    target = instruction.custom_call_target
    return failure(instruction, f"the function for {target} {message}")

"""Arrays that a function was traced with as constants, where they could be arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.numbers import byte_size
from hloopt.rewrite.site import is_replaceable

__all__ = ["constant_bytes", "constants"]

_LEAST: Final = 1 << 16
"""Bytes of a constant that may be an array of the user's."""
_TOGETHER: Final = 1 << 18
"""Bytes of all of them from which on they are worth a word."""


def constants(subject: Subject) -> Iterator[FindingCandidate]:
    """The large constants of the entry, all together; values that are all equal are none."""
    found = _captured(subject.module)
    total = sum(one.shape.byte_size for one in found)
    if total < _TOGETHER:
        return
    found.sort(key=lambda one: -one.shape.byte_size)
    largest = found[0]
    readers = [reader for one in found if (reader := next(iter(one.users), None)) is not None]
    count = "is an array" if len(found) == 1 else f"and {len(found) - 1} more are arrays"
    yield FindingCandidate(
        tuple(dict.fromkeys((largest, *readers, *found[1:]))),
        f"%{largest.name} {count} of {byte_size(total)}{'' if len(found) == 1 else ' in all'} that the "
        "function "
        "did not get as arguments: it closes over them, so each is part of the program, which is read, "
        "hashed, optimised and stored with it, and the device holds a copy beside the caller's. With other "
        "values it is another program, which is compiled again.",
        (
            FindingRemedy(
                "model",
                "pass the array as an argument of the jitted function (jax.jit(lambda w, x: f(w, x)), with "
                "weights in the pytree of parameters; for methods, equinox.filter_jit or nnx.jit)",
            ),
            FindingRemedy(
                "model",
                "where the values are regular, compute them in the function: jnp.arange, jnp.eye, "
                "jnp.tril, lax.iota",
            ),
        ),
        partial(_as_arguments, keep=False),
        tuple(dict.fromkeys(readers)),
        counted=constant_bytes,
        unit="bytes of constants",
        exact=partial(_as_arguments, keep=True),
        exactly="with the same arrays as arguments",
    )


def _captured(module: Module) -> list[Instruction]:
    return [one for one in module.entry if _is_captured(one)]


def _is_captured(one: Instruction) -> bool:
    """Whether a constant is large and its values differ; of an elided one nothing is known, so they may."""
    if one.opcode != "constant" or not one.is_array or one.shape.byte_size < _LEAST:
        return False
    if not one.users or not is_replaceable(one):
        return False
    array = one.constant_array
    return array is None or not np.array_equiv(array.reshape(-1)[:1], array)


def constant_bytes(module: Module) -> float:
    """The bytes of all that are found."""
    return float(sum(one.shape.byte_size for one in _captured(module)))


def _as_arguments(module: Module, places: Sequence[Instruction], *, keep: bool) -> bool:
    """New parameters with the values of the constants as weights, which are read for them unless ``keep``."""
    weights = dict(module.weights)
    for place in places:
        if place.opcode != "constant" or not _is_captured(place):
            continue
        number = len(module.entry.parameters)
        given = build.make(
            place, "parameter", (), {"parameter_number": number}, shape=place.shape, name=place.name
        )
        array = place.constant_array
        if array is not None:
            weights[number] = array
        layout = module.attributes.get("entry_computation_layout")
        if layout is not None:
            parameters, result = layout
            module.attributes["entry_computation_layout"] = (*parameters, given.shape), result
        if not keep:
            edit.replace_uses(place, given)
    module.weights = weights
    return True

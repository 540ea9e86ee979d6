"""The reference interpreter: the executable definition of every op.

Strict mode, the default, rounds the result of every op to its element type.  In excess-precision
mode bf16 and f16 values are carried as float32 and rounded only where XLA must keep a buffer of
the type (``Context.materialize``): entry results, carries of loops, operands and results of
conditionals, operands of sort and top-k, custom calls, and whatever looks at bits (bitcast,
bitcast-convert).  A ``convert`` to bf16 or f16 is no rounding then either, as in XLA's own mode
of that name.  ``reduce-precision`` always rounds: that is what it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.interpret import (
    bitcast,
    collective,
    control,
    custom_calls,
    elementwise,
    fft,
    indexing,
    linalg,
    linear,
    movement,
    normalization,
    ragged,
    random,
    reduction,
    scan,
    sort,
    tuples,
    window,
)
from hloopt.interpret.context import Check, Context, Evaluator, Value
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.values import flatten_results, parameter_values
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.types import ArrayShape, Literal, leaves

__all__ = [
    "EVALUATORS",
    "Context",
    "Evaluator",
    "Value",
    "evaluate_module",
    "has_evaluation",
    "supported",
]

_FAMILIES = (
    elementwise,
    movement,
    indexing,
    reduction,
    scan,
    window,
    normalization,
    linear,
    ragged,
    bitcast,
    collective,
    control,
    custom_calls,
    fft,
    linalg,
    random,
    sort,
    tuples,
)
EVALUATORS: Mapping[str, Evaluator] = {
    opcode: evaluator for family in _FAMILIES for opcode, evaluator in family.EVALUATORS.items()
}
_CHECKS: Mapping[str, Check] = {
    opcode: check for family in _FAMILIES for opcode, check in getattr(family, "CHECKS", {}).items()
}
# Run by the interpreter itself.
_OWN = frozenset({"constant", "parameter"})


def has_evaluation(opcode: str) -> bool:
    """Whether the interpreter can evaluate an opcode (of custom-call: some targets)."""
    return opcode in EVALUATORS or opcode in _OWN


def evaluate_module(
    module: Module, inputs: Sequence[np.ndarray[Any, Any]], *, excess_precision: bool = False
) -> list[np.ndarray[Any, Any]]:
    """Evaluate the entry on arrays in parameter order; the flat list of result arrays.

    Inputs have the storage types of their element types, or views of these (see
    ``values.parameter_values``); results have storage types, tokens are left out.

    Raises ``UnsupportedError`` before anything runs, ``EvaluationError`` when the inputs do not
    fit.
    """
    supported(module)
    interpreter = Interpreter(module, EVALUATORS, excess_precision=excess_precision)
    entry = module.entry
    with np.errstate(all="ignore"):
        arguments = parameter_values(entry, inputs, interpreter)
        result = interpreter.call(entry, arguments)
        return flatten_results(result, entry.result_shape, interpreter)


def supported(module: Module) -> None:
    """Raise ``UnsupportedError`` for the first instruction the entry can reach that has no
    evaluation.

    That is an opcode or custom-call target without one, a constant whose value the text leaves out
    (``{...}``), or a dynamic dimension.
    """
    context = Interpreter(module, EVALUATORS)
    for computation in _reached(module.entry):
        for instruction in computation:
            reason = _obstacle(instruction)
            if reason is not None:
                raise context.unsupported(instruction, reason)


def _reached(entry: Computation) -> Iterator[Computation]:
    seen = {entry}
    pending = [entry]
    while pending:
        computation = pending.pop()
        yield computation
        for instruction in computation:
            for called in called_computations(instruction):
                if called not in seen:
                    seen.add(called)
                    pending.append(called)


def _obstacle(instruction: Instruction) -> str | None:
    opcode = instruction.opcode
    if not has_evaluation(opcode):
        return f"{opcode} has no evaluation"
    literal = instruction.literal
    if literal is not None and _elided(literal):
        return (
            "the value of this constant is left out of the text ({...}); "
            "dump with --xla_dump_large_constants=true"
        )
    if any(
        isinstance(leaf, ArrayShape) and any(leaf.dynamic) for leaf in leaves(instruction.shape)
    ):
        return f"dynamic dimensions ({instruction.shape}) have no evaluation"
    check = _CHECKS.get(opcode)
    return check(instruction) if check is not None else None


def _elided(literal: Literal) -> bool:
    return literal.elided or any(map(_elided, literal.elements))

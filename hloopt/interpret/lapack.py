"""LAPACK's routines as custom calls: the ``lapack_<type><routine>_ffi`` targets of jaxlib's CPU backend.

Matrices are the last two dimensions of stacks of them.  Options are codes of characters in
``backend_config``.  Results that LAPACK leaves over its inputs come back whole; ``info`` is LAPACK's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from hloopt.interpret import linalg
from hloopt.interpret.context import Array, Check, Context, Evaluator, Value, array_of
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, TupleShape, leaves

__all__ = ["CHECKS", "EVALUATORS", "call_options"]

_OPTION = re.compile(r"\s*(\w+)\s*=\s*(true|false|-?\d+)\s*(?::\s*[a-z]+\d+\s*)?(?:,|$)")

Options: TypeAlias = Mapping[str, int]
Routine: TypeAlias = Callable[[Sequence[Array], Options], tuple[Array, ...]]
"""Operands and options to the arrays of the result, in double precision."""


def call_options(instruction: Instruction) -> dict[str, int]:
    """The integers of a ``backend_config`` like ``{diag = 78 : ui8, uplo = 76 : ui8}``.

    Raises ``ValueError`` where it is written in any other way.
    """
    text = str(instruction.attributes.get("backend_config", "")).strip()
    body = text[1:-1] if text.startswith(("{", '"')) else text
    options: dict[str, int] = {}
    at = 0
    body = body.strip()
    while at < len(body):
        found = _OPTION.match(body, at)
        if found is None:
            raise ValueError(f"backend_config={text} is not a list of integers")
        value = found[2]
        options[found[1]] = int(value == "true") if value in ("true", "false") else int(value)
        at = found.end()
    return options


def _potrf(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    return linalg.cholesky_in_place(operands[0], lower=_letter(options, "uplo") == "L")


def _getrf(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    return linalg.lu(operands[0])


def _geqrf(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    return (*linalg.qr_raw(operands[0]), _no_info(operands[0]))


def _orgqr(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    return linalg.householder_product(operands[0], operands[1]), _no_info(operands[0])


def _no_info(matrices: Array) -> Array:
    return np.zeros(matrices.shape[:-2], np.int32)


def _trsm(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    transposes = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    solution = linalg.triangular_solve(
        operands[0],
        operands[1],
        left_side=_letter(options, "side") == "L",
        lower=_letter(options, "uplo") == "L",
        unit_diagonal=_letter(options, "diag") == "U",
        transpose_a=transposes[_letter(options, "trans_x")],
    )
    return (solution,)


def _evd(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    """Eigenvectors (columns), ascending eigenvalues, info.

    Vectors are LAPACK's own of double precision: determined up to a factor of modulus 1, and up to a
    basis where eigenvalues coincide.
    """
    return linalg.eigh(operands[0], lower=_letter(options, "uplo") == "L")


def _gesdd(operands: Sequence[Array], options: Options) -> tuple[Array, ...]:
    """The operand (LAPACK destroys it), singular values, U, Vᴴ, info; vectors as for ``_evd``."""
    singular = linalg.svd(operands[0], full_matrices=_letter(options, "mode") == "A")
    return (operands[0], *singular)


_CHOICES = {"diag": "NU", "mode": "ANSV", "side": "LR", "trans_x": "NTC", "uplo": "LU"}
"""The letters an option may have.  Where ``mode`` is N, LAPACK computes no vectors and nobody may read
them; here they are computed all the same."""


class _Row(NamedTuple):
    """A routine, the letters of its types, its options, how many operands and results it may have."""

    routine: Routine
    types: str
    options: tuple[str, ...]
    operands: int
    results: tuple[int, ...]


_ROUTINES: dict[str, _Row] = {
    "potrf": _Row(_potrf, "sdcz", ("uplo",), 1, (2,)),
    "getrf": _Row(_getrf, "sdcz", (), 1, (3,)),
    "geqrf": _Row(_geqrf, "sdcz", (), 1, (2, 3)),
    "orgqr": _Row(_orgqr, "sd", (), 2, (1, 2)),
    "ungqr": _Row(_orgqr, "cz", (), 2, (1, 2)),
    "trsm": _Row(_trsm, "sdcz", ("diag", "side", "trans_x", "uplo"), 2, (1,)),
    "syevd": _Row(_evd, "sd", ("mode", "uplo"), 1, (3,)),
    "heevd": _Row(_evd, "cz", ("mode", "uplo"), 1, (3,)),
    "gesdd": _Row(_gesdd, "sdcz", ("mode",), 1, (5,)),
}
"""By LAPACK's name.  Older jaxlib has one result more for geqrf and orgqr, an ``info`` that is 0."""


def _letter(options: Options, name: str) -> str:
    return chr(options[name])


def _evaluator(routine: Routine) -> Evaluator:
    def evaluate(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
        arrays = [array_of(operand) for operand in operands]
        results = routine(arrays, call_options(instruction))
        rounded = []
        for array, shape in zip(results, leaves(instruction.shape), strict=False):
            assert isinstance(shape, ArrayShape)
            if array.shape != shape.dims:
                message = f"result {list(array.shape)} where the instruction has {shape}"
                raise context.unsupported(instruction, f"{_target(instruction)}: {message}")
            with np.errstate(over="ignore"):
                rounded.append(context.round(array, shape.dtype))
        return tuple(rounded) if isinstance(instruction.shape, TupleShape) else rounded[0]

    return evaluate


def _checker(row: _Row) -> Check:
    def check(instruction: Instruction) -> str | None:
        target = _target(instruction)
        try:
            options = call_options(instruction)
        except ValueError as error:
            return f"{target}: {error}"
        for name in row.options:
            if name not in options:
                return f"{target} without {name} in its backend_config"
            if options[name] not in map(ord, _CHOICES[name]):
                return f"{target} with {name}={options[name]}, not one of {_codes(name)}"
        found = len(instruction.operands), len(list(leaves(instruction.shape)))
        if found[0] != row.operands or found[1] not in row.results:
            return f"{target} with {found[0]} operands and {found[1]} results"
        return None

    return check


def _codes(name: str) -> str:
    return ", ".join(f"{ord(letter)} ({letter})" for letter in _CHOICES[name])


def _target(instruction: Instruction) -> str:
    return str(instruction.attributes["custom_call_target"])


EVALUATORS: dict[str, Evaluator] = {
    f"lapack_{letter}{name}_ffi": _evaluator(row.routine)
    for name, row in _ROUTINES.items()
    for letter in row.types
}

CHECKS: dict[str, Check] = {
    f"lapack_{letter}{name}_ffi": _checker(row)
    for name, row in _ROUTINES.items()
    for letter in row.types
}

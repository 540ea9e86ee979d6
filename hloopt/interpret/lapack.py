"""LAPACK's routines as custom calls: the ``lapack_<type><routine>_ffi`` targets of jaxlib's CPU backend.

Matrices are the last two dimensions of stacks of them.  Options are codes of characters in
``backend_config``.  Results that LAPACK leaves over its inputs come back whole; ``info`` is LAPACK's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from hloopt.interpret import linalg, reflectors
from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, TupleShape, leaves

__all__ = [
    "CHECKS",
    "COMMON",
    "EVALUATORS",
    "FLAG",
    "Choices",
    "Options",
    "RoutineResults",
    "RoutineRow",
    "call_options",
    "checker",
    "evaluator",
]

_OPTION = re.compile(r"\s*(\w+)\s*=\s*(true|false|-?\d+)\s*(?::\s*[a-z]+\d+\s*)?(?:,|$)")

Options: TypeAlias = Mapping[str, int]
RoutineResults: TypeAlias = "tuple[Array | None, ...]"
"""In double precision; None stands for what may not be read, which is zeros here."""
Routine: TypeAlias = Callable[[Sequence[Array], Options], RoutineResults]
"""Operands and options to results."""


def call_options(instruction: Instruction) -> dict[str, int]:
    """The integers of a ``backend_config`` like ``{diag = 78 : ui8, uplo = 76 : ui8}``.

    Raises ``ValueError`` where it is written in any other way.
    """
    return dict(_options(str(instruction.attributes.get("backend_config", "")).strip()))


@cache
def _options(text: str) -> dict[str, int]:
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


def _is_lower(options: Options) -> bool:
    """Whether the lower triangle is meant: cuSOLVER has a flag for it, LAPACK a letter."""
    return bool(options["lower"]) if "lower" in options else _letter(options, "uplo") == "L"


def _no_info(matrices: Array) -> Array:
    return np.zeros(matrices.shape[:-2], np.int32)


def _trsm(operands: Sequence[Array], options: Options) -> RoutineResults:
    transposes = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    solution = linalg.triangular_solve(
        operands[0],
        operands[1],
        left_side=_letter(options, "side") == "L",
        lower=_is_lower(options),
        unit_diagonal=_letter(options, "diag") == "U",
        transpose_a=transposes[_letter(options, "trans_x")],
    )
    return (solution,)


def _gesdd(operands: Sequence[Array], options: Options) -> RoutineResults:
    """The operand (LAPACK destroys it), singular values, U, Vᴴ, info; vectors as for ``syevd``."""
    singular = linalg.svd(operands[0], full_matrices=_letter(options, "mode") == "A")
    return (operands[0], *singular)


def _geev(operands: Sequence[Array], options: Options) -> RoutineResults:
    """Eigenvalues (of real matrices their real and imaginary parts), left and right eigenvectors, info."""
    values, vectors, info = linalg.eig(operands[0])
    parts = (values,) if np.iscomplexobj(operands[0]) else (values.real, values.imag)
    return (*parts, None, vectors, info)


def _gehrd(operands: Sequence[Array], options: Options) -> RoutineResults:
    return (*reflectors.hessenberg(operands[0]), _no_info(operands[0]))


def _sytrd(operands: Sequence[Array], options: Options) -> RoutineResults:
    form = reflectors.tridiagonal_form(operands[0], lower=_is_lower(options))
    return (*form, _no_info(operands[0]))


def _ormqr(operands: Sequence[Array], options: Options) -> RoutineResults:
    product = reflectors.apply_reflections(
        *operands, left=bool(options["left"]), adjoint=bool(options["transpose"])
    )
    return (product,)


COMMON: Mapping[str, Routine] = {
    "potrf": lambda given, options: linalg.cholesky_in_place(given[0], lower=_is_lower(options)),
    "getrf": lambda given, _: linalg.lu(given[0]),
    "geqrf": lambda given, _: (*linalg.qr_raw(given[0]), _no_info(given[0])),
    "orgqr": lambda given, _: (linalg.householder_product(*given), _no_info(given[0])),
    "ormqr": _ormqr,
    "syevd": lambda given, options: linalg.eigh(given[0], lower=_is_lower(options)),
    "sytrd": _sytrd,
}
"""What cuSOLVER computes as LAPACK does; a call may have fewer results.

Eigenvectors (columns) are LAPACK's own of double precision: determined up to a factor of modulus 1, and up to
a basis where eigenvalues coincide.
"""

Choices: TypeAlias = str | tuple[int, ...] | None
"""The letters that an option may have, or its numbers, or any number."""

FLAG: Choices = (0, 1)
"""What is off or on."""
_UPLO = {"uplo": "LU"}
_VECTORS: dict[str, Choices] = {"mode": "ANSV"}
"""Where ``mode`` is N, LAPACK computes no vectors and they may not be read; here they are computed all the
same."""


class RoutineRow(NamedTuple):
    """A routine, its options, how many operands and results it may have."""

    routine: Routine
    options: Mapping[str, Choices]
    operands: int
    results: tuple[int, ...]


_TRSM: dict[str, Choices] = {"diag": "NU", "side": "LR", "trans_x": "NTC", "uplo": "LU"}
# NumPy does not compute left eigenvectors.
_GEEV: dict[str, Choices] = {"compute_left": "N", "compute_right": "NV"}

_ORMQR = RoutineRow(COMMON["ormqr"], {"left": FLAG, "transpose": FLAG}, 3, (1,))

_ROUTINES: dict[str, tuple[str, RoutineRow]] = {
    "potrf": ("sdcz", RoutineRow(COMMON["potrf"], _UPLO, 1, (2,))),
    "getrf": ("sdcz", RoutineRow(COMMON["getrf"], {}, 1, (3,))),
    "geqrf": ("sdcz", RoutineRow(COMMON["geqrf"], {}, 1, (2, 3))),
    "geqp3": ("sdcz", RoutineRow(lambda given, _: reflectors.qr_pivoted(*given), {}, 2, (3,))),
    "orgqr": ("sd", RoutineRow(COMMON["orgqr"], {}, 2, (1, 2))),
    "ungqr": ("cz", RoutineRow(COMMON["orgqr"], {}, 2, (1, 2))),
    "ormqr": ("sd", _ORMQR),
    "unmqr": ("cz", _ORMQR),
    "trsm": ("sdcz", RoutineRow(_trsm, _TRSM, 2, (1,))),
    "gtsv": ("sdcz", RoutineRow(lambda given, _: linalg.tridiagonal_solve(*given), {}, 4, (5,))),
    "syevd": ("sd", RoutineRow(COMMON["syevd"], {"mode": "NV", **_UPLO}, 1, (3,))),
    "heevd": ("cz", RoutineRow(COMMON["syevd"], {"mode": "NV", **_UPLO}, 1, (3,))),
    "sytrd": ("sd", RoutineRow(COMMON["sytrd"], _UPLO, 1, (5,))),
    "hetrd": ("cz", RoutineRow(COMMON["sytrd"], _UPLO, 1, (5,))),
    "gehrd": ("sdcz", RoutineRow(_gehrd, {"high": None, "low": (1,)}, 1, (3,))),
    "geev": ("sd", RoutineRow(_geev, _GEEV, 1, (5,))),
    "gesdd": ("sdcz", RoutineRow(_gesdd, _VECTORS, 1, (5,))),
    "gesvd": ("sdcz", RoutineRow(_gesdd, _VECTORS, 1, (5,))),
}
"""By LAPACK's name, with the letters of its types.  Older jaxlib has one result more for geqrf and orgqr,
an ``info`` that is 0."""

_COMPLEX_GEEV = RoutineRow(_geev, _GEEV, 1, (4,))


def _letter(options: Options, name: str) -> str:
    return chr(options[name])


def evaluator(routine: Routine) -> Evaluator:
    """Results in the types and shapes of the instruction."""

    def evaluate(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
        arrays = [array_of(operand) for operand in operands]
        results = routine(arrays, call_options(instruction))
        converted = []
        for array, shape in zip(results, leaves(instruction.shape), strict=False):
            assert isinstance(shape, ArrayShape)
            if array is None:
                array = np.zeros(shape.dims)
            if array.shape != shape.dims:
                message = f"result {list(array.shape)} where the instruction has {shape}"
                raise context.unsupported(
                    instruction, f"{instruction.custom_call_target}: {message}"
                )
            with np.errstate(over="ignore"):
                converted.append(context.round(array, shape.dtype))
        return tuple(converted) if isinstance(instruction.shape, TupleShape) else converted[0]

    return evaluate


def checker(row: RoutineRow) -> Check:
    """Why a call of the routine cannot be evaluated, or None."""

    def check(instruction: Instruction) -> str | None:
        target = instruction.custom_call_target
        try:
            options = call_options(instruction)
        except ValueError as error:
            return f"{target}: {error}"
        for name, choices in row.options.items():
            if name not in options:
                return f"{target} without {name} in its backend_config"
            allowed = tuple(map(ord, choices)) if isinstance(choices, str) else choices
            if allowed is not None and options[name] not in allowed:
                return f"{target} with {name}={options[name]}, not one of {_codes(choices)}"
        parts = [*(operand.shape for operand in instruction.operands), *leaves(instruction.shape)]
        if not all(isinstance(part, ArrayShape) for part in parts):
            return f"{target} of what are not arrays"
        found = len(instruction.operands), len(list(leaves(instruction.shape)))
        if found[0] != row.operands or found[1] not in row.results:
            return f"{target} with {found[0]} operands and {found[1]} results"
        return None

    return check


def _codes(choices: Choices) -> str:
    if isinstance(choices, str):
        return ", ".join(f"{ord(letter)} ({letter})" for letter in choices)
    return ", ".join(map(str, choices or ()))


_ROWS: dict[str, RoutineRow] = {
    f"lapack_{letter}{name}_ffi": row
    for name, (letters, row) in _ROUTINES.items()
    for letter in letters
} | {f"lapack_{letter}geev_ffi": _COMPLEX_GEEV for letter in "cz"}

EVALUATORS: dict[str, Evaluator] = {name: evaluator(row.routine) for name, row in _ROWS.items()}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {name: checker(row) for name, row in _ROWS.items()}

"""The CUDA column of the op table against the interpreter, over every op and element type."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.codegen.scalars import scalar_problem
from hloopt.ops import OPS
from tests.codegen.scalars.device_code import Case, Compiled, interpreted
from tests.codegen.scalars.scalar_cases import all_cases, operands

OPCODES = [*sorted(name for name, row in OPS.items() if row.is_elementwise), "bitcast-convert"]

# What is rounded correctly by the interpreter and computed by C's functions here.
_APPROXIMATE = {opcode for opcode in OPCODES if opcode in OPS and OPS[opcode].transcendentals}
_TOLERANCES = {"f32": 1e-6, "f64": 4e-15, "c64": 1e-6, "c128": 4e-14}
_NARROW_STEPS = {"f16": 1e-3, "bf16": 8e-3}

# Bits are moved, not computed: a NaN keeps its payload.
_MOVES = {"bitcast-convert", "complex", "select"}


def _parts(array: np.ndarray) -> tuple[np.ndarray, ...]:
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


def _bits(array: np.ndarray, width: int) -> np.ndarray:
    codes = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return codes & codes.dtype.type((1 << width) - 1)


def _is_nan(array: np.ndarray) -> np.ndarray:
    return np.asarray(array != array)


def _differs(case: Case, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where a result is wrong."""
    kind = case.result
    if kind.is_complex:
        return _complex_differs(case, got, want)
    if not kind.is_float or case.opcode in _MOVES:
        return _bits(got, kind.bits) != _bits(want, kind.bits)
    wrong = _part_differs(got, want, _tolerance(case))
    if case.opcode in ("convert", "copy", "negate", "abs", "real"):
        # The sign of a NaN, too; the interpreter's bf16 and f8 have one payload.
        wrong |= np.signbit(got.astype(np.float64)) != np.signbit(want.astype(np.float64))
    return wrong


def _tolerance(case: Case) -> float:
    if case.opcode not in _APPROXIMATE or (case.opcode == "sqrt" and not case.result.is_complex):
        return 0.0
    return _TOLERANCES.get(case.result.name, _NARROW_STEPS.get(case.result.name, 0.0))


def _part_differs(
    got: np.ndarray, want: np.ndarray, tolerance: float, noise: np.ndarray | float = 0.0
) -> np.ndarray:
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = (_is_nan(g) & _is_nan(w)) | ((g == w) & (np.signbit(g) == np.signbit(w)))
    tiny = 1e-44 if want.dtype != np.float64 else 1e-323
    allowed = tolerance * np.abs(w) + (tiny if tolerance else 0.0) + noise
    return ~same & ~(np.abs(g - w) <= allowed)


def _complex_differs(case: Case, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    if case.opcode in _MOVES:
        return np.asarray(got.view(np.uint8) != want.view(np.uint8)).reshape(got.size, -1).any(1)
    beside_nan = _is_nan(want.real) | _is_nan(want.imag)
    # Beside a NaN the other part's sign is unspecified in C, and so it is of zeros of these ops.
    loose = beside_nan | (case.opcode in ("power", "logistic"))
    # What is left of a part that cancels is as small beside the other part as f64 is exact.
    size = np.abs(want.astype(np.complex128))
    noise = np.where(np.isfinite(size), size, 0.0) * (2e-15 if _tolerance(case) else 0.0)
    wrong = np.zeros(got.shape, np.bool_)
    for g, w in zip(_parts(got), _parts(want), strict=True):
        signless = loose & (beside_nan | ((g == 0) & (w == 0)))
        g, w = np.where(signless, np.abs(g), g), np.where(signless, np.abs(w), w)
        wrong |= _part_differs(g, w, _tolerance(case), noise)
    return wrong


def _meaningful(case: Case, arrays: list[np.ndarray]) -> np.ndarray:
    """Where the result has digits: an angle far beyond 2^53 has none."""
    if case.opcode != "power" or not case.result.is_complex:
        return np.ones(arrays[0].shape, np.bool_)
    x, y = (array.astype(np.complex128) for array in arrays)
    turns = np.abs(y * np.log(x))
    return ~(turns > 50) | ~np.isfinite(x) | ~np.isfinite(y)


@pytest.mark.parametrize("opcode", OPCODES)
def test_device_code_computes_what_the_interpreter_does(
    opcode: str, device: Compiled, executable_cases: list[Case], capfd: pytest.CaptureFixture[str]
) -> None:
    """Each op gives the interpreter's results on every element type, and does nothing undefined in C."""
    cases = [case for case in executable_cases if case.opcode == opcode]
    assert cases
    for case in cases:
        arrays = operands(case)
        with np.errstate(all="ignore"):
            want, got = interpreted(case, arrays), device.run(case, arrays)
            wrong = _differs(case, got, want) & _meaningful(case, arrays)
        first = int(np.argmax(wrong))
        assert not wrong.any(), (
            f"{case}: {int(wrong.sum())} of {wrong.size} differ, first at "
            f"{[column[first] for column in arrays]}: {got[first]!r}, not {want[first]!r}"
        )
    assert capfd.readouterr().err == ""


def test_every_op_of_the_interpreter_has_an_expression_or_a_reason() -> None:
    """What the table's inference admits has a C expression, unless a type has no form on a device."""
    without = {}
    for case in all_cases():
        if problem := scalar_problem(case.opcode, case.kinds, case.result, case.attributes):
            without[str(case)] = problem
    named = [
        f"of {name}: {name} elements are 6 bits wide, which have no packed form in memory"
        for name in ("f6e2m3fn", "f6e3m2fn")
    ]
    others = {case: problem for case, problem in without.items() if problem not in named}
    assert others == {}
    assert set(without.values()) == set(named)


def test_the_cases_are_those_of_the_table() -> None:
    """Every elementwise opcode of the table is among the cases, on all the kinds its row takes."""
    found = {case.opcode for case in all_cases()}
    assert found == set(OPCODES)
    assert {case.kinds[0].kind for case in all_cases() if case.opcode == "abs"} == {
        "signed",
        "float",
        "complex",
    }

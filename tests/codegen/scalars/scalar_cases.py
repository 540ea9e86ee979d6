"""Which elementwise ops there are on which element types, by the table's own inference; and operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.errors import ShapeError
from hloopt.ops import OPS, InferArgs
from hloopt.types import DTYPES, ArrayShape, DType, array
from tests.codegen.scalars.device_code import Case

__all__ = ["all_cases", "operands"]

PRED = DTYPES["pred"]
KINDS = tuple(kind for kind in DTYPES.values() if kind.is_array)
DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
# (exponent bits, mantissa bits): f16, bf16, f8, one exponent bit, none of mantissa, wider than any.
FORMATS = ((5, 10), (8, 7), (4, 3), (5, 2), (1, 0), (2, 60), (11, 52), (8, 0), (3, 30))


def all_cases() -> list[Case]:
    """Every elementwise op on all element types it takes, without those that are not executable."""
    found = []
    for opcode in sorted(OPS):
        if OPS[opcode].is_elementwise:
            found.extend(_cases(opcode))
    found.extend(
        Case("bitcast-convert", (source,), target)
        for source in KINDS
        for target in KINDS
        if source.bits == target.bits and source is not target
    )
    return found


def _cases(opcode: str) -> Iterator[Case]:
    row = OPS[opcode]
    for kinds in _kinds(opcode, row.arity[0]):
        for attributes in _attributes(opcode):
            for declared in _declared(opcode, kinds):
                shapes = tuple(array(kind.name, ()) for kind in kinds)
                args = InferArgs(opcode, shapes, attributes, {}, declared)
                try:
                    shape = row.infer(args)
                except ShapeError:
                    continue
                assert isinstance(shape, ArrayShape)
                yield Case(opcode, kinds, shape.dtype, attributes)


def _kinds(opcode: str, arity: int) -> Iterator[tuple[DType, ...]]:
    for kind in KINDS:
        if opcode == "select":
            yield (PRED, kind, kind)
        elif opcode == "stochastic-convert":
            if random := DTYPES.get(f"u{kind.bits}"):
                yield (kind, random)
        else:
            yield (kind,) * arity


def _attributes(opcode: str) -> Iterator[Mapping[str, Any]]:
    if opcode == "compare":
        for direction in DIRECTIONS:
            yield {"direction": direction}
            yield {"direction": direction, "type": "TOTALORDER"}
    elif opcode == "reduce-precision":
        for exponent, mantissa in FORMATS:
            yield {"exponent_bits": exponent, "mantissa_bits": mantissa}
    else:
        yield {}


def _declared(opcode: str, kinds: Sequence[DType]) -> Iterator[ArrayShape | None]:
    if opcode in ("convert", "stochastic-convert"):
        for kind in KINDS:
            yield array(kind.name, ())
    else:
        yield None


_FLOATS = (
    0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45,
    1e-38, 3e38, -3e38, 1.5, 2.5, -2.5, -1.5, 0.1, -0.1, 10, -10, 88, -88, 89, 100, 1e4, -1e4, 1e10,
    np.pi, 127.5, 128, -128.5, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 65504,
    65520, 448, 464, 465, 0.49999997, 1e-5, -1e-7, 240, 248, 57344, 61440, 6, 7, 254, 255.9, 20,
    0.75, -0.75, 0.9999999, 1.0000001, 1e300, -1e300, 1e-300,
)  # fmt: skip
_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, -1, -2, -3, -31, -32)
_RANDOM = 3000


def operands(case: Case) -> list[np.ndarray]:
    """Operands of a case: all pairs of 8-bit codes, all 16-bit codes of one, special and random ones."""
    random = np.random.default_rng(3)
    columns = [_codes(kind, len(case.kinds), random) for kind in case.kinds]
    sizes = [len(column) for column in columns]
    if len(columns) == 1:
        return columns
    if np.prod(sizes) <= 1 << 16:
        grid = np.meshgrid(*(np.arange(size) for size in sizes))
        return [column[index.ravel()] for column, index in zip(columns, grid, strict=True)]
    pairs: list[np.ndarray] = [np.zeros(0, np.int64)] * len(columns)
    if len(columns) == 2:
        grid = np.meshgrid(*(np.arange(min(size, len(_FLOATS))) for size in sizes))
        pairs = [index.ravel() for index in grid]
    drawn = [random.integers(0, size, 20000) for size in sizes]
    return [
        column[np.concatenate([pair, index])]
        for column, pair, index in zip(columns, pairs, drawn, strict=True)
    ]


def _codes(kind: DType, columns: int, random: np.random.Generator) -> np.ndarray:
    """Values of one type, special ones first: every code where there are few enough."""
    if kind.is_pred:
        return np.array([False, True])
    if kind.bits <= (16 if columns == 1 else 8):
        codes = np.arange(1 << kind.bits).astype(f"u{max(kind.bits, 8) // 8}")
        if kind.kind == "signed" and kind.bits < 8:
            codes = (codes ^ (1 << (kind.bits - 1))) - np.uint8(1 << (kind.bits - 1))
        return codes.view(kind.numpy)
    with np.errstate(all="ignore"):
        if kind.is_complex:
            return _complex_numbers(kind, random)
        raw = random.integers(0, 256, (_RANDOM, kind.bits // 8), dtype=np.uint8)
        bits = raw.view(kind.numpy).reshape(-1)
        if kind.is_float:
            return np.concatenate(
                [np.array(_FLOATS).astype(kind.numpy), bits, _near(random).astype(kind.numpy)]
            )
    least = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
    greatest = least + (1 << kind.bits) - 1
    special = [n for n in (*_INTEGERS, least, least + 1, greatest, greatest - 1) if least <= n]
    return np.concatenate([np.array(special, object).astype(kind.numpy), bits, bits % 67])


def _near(random: np.random.Generator) -> np.ndarray:
    return random.normal(size=_RANDOM) * 10.0 ** random.integers(-4, 5, _RANDOM)


def _complex_numbers(kind: DType, random: np.random.Generator) -> np.ndarray:
    """All pairs of special parts, and random parts around 1."""
    part = np.float32 if kind.name == "c64" else np.float64
    special = np.array(_FLOATS[:30]).astype(part)
    real, imag = np.meshgrid(special, special)
    result = np.empty(real.size + _RANDOM, kind.numpy)
    result.real = np.concatenate([real.ravel(), _near(random) / 10])
    result.imag = np.concatenate([imag.ravel(), _near(random) / 10])
    return result

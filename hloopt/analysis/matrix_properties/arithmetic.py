"""What elementwise arithmetic keeps of the properties of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from hloopt.analysis.matrix_properties.masks import affine_of, compared
from hloopt.analysis.matrix_properties.moves import Lookup, is_mirrored
from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    DimPair,
    HotIndex,
    MatrixProperties,
)
from hloopt.analysis.matrix_properties.zeros import band_of, in_all, in_any
from hloopt.analysis.value_range import IEEE
from hloopt.analysis.values import Values
from hloopt.ir import Instruction
from hloopt.ops.traits import BITWISE, ELEMENTWISE, MODULAR, op_table
from hloopt.types import Array, DType

__all__ = ["elementwise", "holds_zeros"]

Zeros: TypeAlias = Literal["one", "all", "any", "first"]
_ZEROS: Final[Mapping[str, Zeros]] = op_table(
    {
        "abs": "one",
        "add": "all",
        "and": "any",
        "asin": "one",
        "asinh": "one",
        "atanh": "one",
        "cbrt": "one",
        "ceil": "one",
        "complex": "all",
        "convert": "one",
        "copy": "one",
        "divide": "first",
        "erf": "one",
        "exponential-minus-one": "one",
        "floor": "one",
        "imag": "one",
        "log-plus-one": "one",
        "maximum": "all",
        "minimum": "all",
        "multiply": "any",
        "negate": "one",
        "or": "all",
        "popcnt": "one",
        "real": "one",
        "reduce-precision": "one",
        "round-nearest-afz": "one",
        "round-nearest-even": "one",
        "sign": "one",
        "sine": "one",
        "sinh": "one",
        "sqrt": "one",
        "subtract": "all",
        "tan": "one",
        "tanh": "one",
        "xor": "all",
    },
    ELEMENTWISE,
    "may be anything where its operands are zero",
)
"""Where a result is zero: where its one operand is, where all are, where any is, or where the first is.

That of the last two is NaN where zero meets NaN, zero or infinity.
"""
_LINEAR: Final = MODULAR - BITWISE | {"divide", "copy", "convert"}
"""What is the same but for rounding of operands that are."""
_UNKNOWN: Final = frozenset({"stochastic-convert"})


def holds_zeros(dtype: DType) -> bool:
    """Whether a type has a zero."""
    return dtype.name != "f8e8m0fnu"


def elementwise(value: Instruction, of: Lookup, values: Values) -> MatrixProperties:
    """Of an elementwise op."""
    if value.opcode in _UNKNOWN or any(
        one.array.dims != value.array.dims for one in value.operands
    ):
        # A scalar predicate of a select, or bounds of a clamp.
        return NOTHING
    operands = [of(one) for one in value.operands]
    if value.array.dtype.is_float and any(one is NOTHING for one in operands):
        # Beside what may be anything, repeated elements say nothing.
        says_nothing = all(one is NOTHING or _is_only_constant(one) for one in operands)
        # A square matrix may be something and its own transpose.
        sides = [size for size in value.array.dims if size > 1]
        if says_nothing and (len(operands) == 1 or len(set(sides)) == len(sides)):
            return NOTHING
    if value.opcode == "select":
        found = _selected(value, operands)
    elif value.opcode == "compare":
        found = compared(value, *operands)
    else:
        found = _zeros(value, operands, values)
        found = replace(found, hot=_hot(value, operands), units=_units(value, operands))
    if value.opcode == "not" and value.array.dtype.is_pred:
        (source,) = operands
        found = MatrixProperties(bands=source.true_bands, true_bands=source.bands)
    splat = values.of(value)
    is_number = splat.is_single and value.array.dtype.is_integer
    affine = affine_of(
        value, tuple(one.affine for one in operands), int(splat.low) if is_number else None
    )
    return replace(
        found,
        constant=frozenset.intersection(*(one.constant for one in operands)),
        symmetric={**found.symmetric, **_symmetric(value, operands)},
        definite={**found.definite, **_definite(value, operands, values)},
        ranks=_ranks(value, operands),
        affine=affine,
    )


def _is_only_constant(one: MatrixProperties) -> bool:
    """Whether all that is known is along which dimensions elements are the same, and what follows from it."""
    return one.boxes is None and not (
        one.bands or one.true_bands or one.hot or one.units or one.definite or one.orthonormal
    )


def _zeros(
    value: Instruction, operands: Sequence[MatrixProperties], values: Values
) -> MatrixProperties:
    how, dims, dtype = _ZEROS.get(value.opcode), value.array.dims, value.array.dtype
    if how is None or not holds_zeros(dtype):
        return NOTHING
    if how == "one":
        (source,) = operands
        keeps_nan = dtype.is_complex or dtype.name in IEEE
        return source.zeros_only() if source.is_clean or keeps_nan else NOTHING
    if how == "all":
        found = in_all(dims, *operands)
        if dtype.is_pred and value.opcode == "or":
            trues = in_any(dims, *(MatrixProperties(bands=one.true_bands) for one in operands))
            return replace(found, true_bands=trues.bands)
        return found
    exact = dtype.is_pred or dtype.is_integer
    if how == "first":
        if exact:
            return NOTHING
        divisor = values.of(value.operands[1])
        found, is_clean = operands[0].zeros_only(), not (divisor.nan or divisor.has_zero)
        return replace(found, is_clean=found.is_clean and is_clean and not dtype.is_complex)
    found = in_any(dims, *operands)
    if exact:
        trues = in_all(dims, *(MatrixProperties(bands=one.true_bands) for one in operands))
        return replace(found, true_bands=trues.bands if dtype.is_pred else {})
    others = (
        values.of(other).is_finite
        for one, other in zip(operands, value.operands[::-1], strict=True)
        if one.bands or one.boxes is not None
    )
    return replace(found, is_clean=found.is_clean and all(others))


def _selected(select: Instruction, operands: Sequence[MatrixProperties]) -> MatrixProperties:
    """Zero where both arms are, and where the mask chooses one that is."""
    dims = select.array.dims
    mask, on_true, on_false = operands
    if not holds_zeros(select.array.dtype):
        return NOTHING
    opposite = MatrixProperties(bands=mask.true_bands)
    found = in_any(
        dims,
        in_all(dims, on_true, on_false),
        in_all(dims, mask, on_false),
        in_all(dims, opposite, on_true),
    )
    is_clean = on_true.is_clean and on_false.is_clean
    hot: Mapping[int, HotIndex | None] = {}
    units: frozenset[DimPair] = frozenset()
    if on_false.boxes == () and on_false.is_clean:
        if _is_one(select.operands[1]):
            hot, units = mask.hot, mask.units
        elif on_true.hot:
            hot = dict.fromkeys(on_true.hot)
        units |= mask.units & on_true.units
    return replace(found, is_clean=is_clean, hot=hot, units=units, **_or_nan(select, operands))


def _or_nan(select: Instruction, operands: Sequence[MatrixProperties]) -> dict[str, Any]:
    """What holds of finite matrices, where a mask chooses NaN for whole ones."""
    mask = operands[0].constant
    for arm, other in ((1, 2), (2, 1)):
        if _is_all(select.operands[other], np.isnan):
            kept = operands[arm]
            return {
                "orthonormal": frozenset(pair for pair in kept.orthonormal if mask >= {*pair}),
                "definite": {
                    pair: claim for pair, claim in kept.definite.items() if mask >= {*pair}
                },
            }
    return {}


def _is_all(value: Instruction, test: Callable[[Array], Array]) -> bool:
    """Whether all elements are one number that passes a test."""
    if value.opcode == "broadcast":
        value = value.operands[0]
    array = value.constant_array
    return array is not None and array.size == 1 and bool(test(array).all())


def _is_one(value: Instruction) -> bool:
    return _is_all(value, lambda array: array == 1)


def _hot(value: Instruction, operands: Sequence[MatrixProperties]) -> Mapping[int, HotIndex | None]:
    """A pred as a number is 0 or 1; what is multiplied by 0 and 1 of its own kind, too."""
    if value.opcode in ("convert", "copy"):
        return operands[0].hot
    if value.opcode in ("multiply", "and") and len(operands) == 2:
        one, other = operands
        if value.array.dtype.is_pred:
            return dict.fromkeys((*one.hot, *other.hot))
        return (
            {dim: None for dim in one.hot if dim in other.hot} if value.opcode == "multiply" else {}
        )
    return {}


def _units(value: Instruction, operands: Sequence[MatrixProperties]) -> frozenset[DimPair]:
    if value.opcode in ("convert", "copy"):
        return operands[0].units
    if value.opcode == "multiply":
        return operands[0].units & operands[1].units
    if value.opcode != "add" or value.array.dtype.is_pred:
        return frozenset()
    dims = value.array.dims
    found: set[DimPair] = set()
    for one, other in (operands, operands[::-1]):
        for pair in one.units:
            low, high = band_of(other, pair, dims)
            if other.is_clean and not low <= 0 <= high:
                found.add(pair)
    return frozenset(found)


def _symmetric(value: Instruction, operands: Sequence[MatrixProperties]) -> dict[DimPair, bool]:
    """As all operands are; and sums and products of something and its own transpose."""
    dims = value.array.dims
    pairs = dict.fromkeys(pair for one in operands for pair in one.symmetric)
    found: dict[DimPair, bool] = {}
    for pair in pairs:
        claims = [_is_symmetric(one, pair) for one in operands]
        if None not in claims:
            exact = all(claims)
            if exact or value.opcode in _LINEAR:
                found[pair] = exact
    if value.op.commutative and len(operands) == 2:
        for p, q in combinations(range(len(dims)), 2):
            if dims[p] == dims[q] > 1 and is_mirrored(value, p, q):
                found[p, q] = True
    return found


def _is_symmetric(one: MatrixProperties, pair: DimPair) -> bool | None:
    if one.constant >= {*pair}:
        return True
    return one.symmetric.get(pair)


def _definite(
    value: Instruction, operands: Sequence[MatrixProperties], values: Values
) -> dict[DimPair, bool]:
    """Sums; products with positive numbers, and of each other (Schur); what shows on a diagonal matrix."""
    opcode, dtype = value.opcode, value.array.dtype
    if not (dtype.is_float or dtype.is_integer) or any(
        one.array.dtype.is_complex for one in value.operands
    ):
        return {}
    if opcode in ("convert", "copy"):
        kept = operands[0].definite if dtype.is_float else {}
        dims = value.array.dims
        identities = (
            pair
            for pair in operands[0].units
            if operands[0].is_diagonal(*pair) and dims[pair[0]] == dims[pair[1]]
        )
        return {**kept, **dict.fromkeys(identities, True)}
    if not dtype.is_float:
        return {}
    if opcode == "select":
        return _on_diagonal(value, operands, values)
    found: dict[DimPair, bool] = {}
    if opcode == "add":
        one, other = operands
        for pair in one.definite.keys() & other.definite.keys():
            found[pair] = one.definite[pair] or other.definite[pair]
    elif opcode in ("multiply", "divide"):
        for at, (one, other) in enumerate((operands, operands[::-1])):
            scale = values.of(value.operands[1 - at])
            for pair, claim in one.definite.items():
                if other.constant >= {*pair} and scale.low >= 0:
                    found[pair] = claim and scale.low > 0
                elif opcode == "multiply" and pair in other.definite:
                    found[pair] = claim and other.definite[pair]
            if opcode == "divide":
                break
    return found


def _on_diagonal(
    select: Instruction, operands: Sequence[MatrixProperties], values: Values
) -> dict[DimPair, bool]:
    """A diagonal matrix of numbers that are not negative."""
    mask, _, on_false = operands
    dims = select.array.dims
    least = values.of(select.operands[1]).low
    if on_false.boxes != () or not on_false.is_clean or least < 0:
        return {}
    return {
        pair: least > 0 and pair in mask.units
        for pair, band in mask.bands.items()
        if band == (0, 0) and dims[pair[0]] == dims[pair[1]]
    }


def _ranks(value: Instruction, operands: Sequence[MatrixProperties]) -> dict[DimPair, int]:
    """Ranks of sums are added, those of products multiplied."""
    opcode = value.opcode
    if opcode in ("negate", "copy"):
        return dict(operands[0].ranks)
    if opcode not in ("add", "subtract", "multiply") or value.array.dtype.is_pred:
        return {}
    one, other = operands
    found: dict[DimPair, int] = {}
    for pair in combinations(range(value.array.rank), 2):
        first, second = one.rank(*pair), other.rank(*pair)
        if first is not None and second is not None:
            found[pair] = first * second if opcode == "multiply" else first + second
    return found

"""Why two values differ: known rules of compilers, each of them tried on the very elements.

A rule is named only where what it would give *is* what the second module gave, or where all elements that
differ are of the kind it is about.  Nothing is said on the strength of opcodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import EXTREMA, REDUCING
from hloopt.types import Array, DotDims, DType, dtype, of_numpy

__all__ = ["Ancestor", "Cause", "Evidence", "cause_of"]


_MOST: Final = 4096
"""Elements that are looked at one by one."""


@dataclass(frozen=True)
class Cause:
    """A rule that explains a difference: its name, a sentence on it, and what was found when it was tried."""

    name: str
    sentence: str
    evidence: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"name": self.name, "sentence": self.sentence, "evidence": self.evidence}


@dataclass(frozen=True)
class Ancestor:
    """A value that another one was made of in several steps.

    rule     the steps, were they left out: ``log(exponential(x)) => x``
    operand  the number of the operand on the way
    flat     its elements
    """

    name: str
    rule: str
    operand: int
    steps: int
    flat: Array


@dataclass(frozen=True)
class Evidence:
    """A value of the first module and the one that the second has in its place.

    before, after  the instructions
    want, got      all elements of either, flat, of one type
    operands       of ``before``, each flat
    above          what ``before`` was made of in two steps or more
    others         the operands of ``after``
    terms          what either value is the sum of, or the product, through all ops of the same kind
    excess         what ``before`` gives where bf16 and f16 chains keep f32; None where nothing changes
    """

    before: Instruction
    after: Instruction
    want: Array
    got: Array
    operands: Sequence[Array]
    above: Sequence[Ancestor] = ()
    others: Sequence[Array] = ()
    terms: tuple[Sequence[Array], Sequence[Array]] = ((), ())
    excess: Array | None = None

    @property
    def kind(self) -> DType:
        """The type of both values."""
        return of_numpy(self.want.dtype)

    @property
    def differ(self) -> Array:
        """Where bits differ, NaN being one value."""
        return ~_same(self.want, self.got)


def cause_of(given: Evidence) -> Cause | None:
    """The first rule that explains a difference; None where none that is known does."""
    if given.want.dtype != given.got.dtype or given.want.shape != given.got.shape:
        return None
    if not given.differ.any():
        return None
    with np.errstate(all="ignore"):
        for name, sentence, check in _RULES:
            evidence = check(given)
            if evidence:
                return Cause(name, sentence, evidence)
    return None


def _same(left: Array, right: Array) -> Array:
    """Where two arrays are the same, zeros of different sign being different and all NaN one value."""
    kind = of_numpy(left.dtype)
    equal = np.asarray(left == right)
    if kind.is_complex:
        return np.asarray(equal | (np.isnan(left) & np.isnan(right)))
    if not kind.is_float:
        return equal
    alike = equal & (np.signbit(left) == np.signbit(right))
    return np.asarray(alike | (np.isnan(left) & np.isnan(right)))


def _everywhere(given: Evidence) -> str:
    count = int(np.count_nonzero(given.differ))
    return "where they differ" if count == 1 else f"in all of the {count:,} elements that differ"


def _is_float(given: Evidence) -> bool:
    return given.kind.is_float


def _exactly(given: Evidence, other: Array) -> bool:
    """Whether the second module gave exactly this, and the first did not."""
    return bool(
        other.shape == given.got.shape
        and _same(other.astype(given.got.dtype), given.got).all()
        and given.differ.any()
    )


def _zero_signs(given: Evidence) -> str:
    """In the values, or in an operand of one op: 1 / 0 and 1 / -0 are infinities of other signs."""
    if not _is_float(given):
        return ""
    if not (given.want[given.differ].any() or given.got[given.differ].any()):
        return f"zeros {_everywhere(given)}"
    pairs = zip(given.operands, given.others, strict=True)
    if given.before.opcode != given.after.opcode or len(given.operands) != len(given.others):
        return ""
    for number, (one, other) in enumerate(pairs):
        if one.dtype == other.dtype and one.shape == other.shape == given.want.shape:
            left, right = one[given.differ], other[given.differ]
            if not left.any() and not right.any() and not _same(left, right).any():
                return (
                    f"operand {number} is 0 in one module and -0 in the other {_everywhere(given)}"
                )
    return ""


def _flushed(given: Evidence) -> str:
    if not _is_float(given) or given.kind.bits < 16:
        return ""
    least = ml_dtypes.finfo(given.want.dtype).smallest_normal  # type: ignore[no-untyped-call]
    small = (given.want != 0) & (np.abs(given.want) < least)
    zeros = given.got == 0
    flushed = int(np.count_nonzero(small & zeros & given.differ))
    if not flushed or not (zeros & (small | (given.want == 0)))[given.differ].all():
        return ""
    rest = int(np.count_nonzero(given.differ)) - flushed
    return f"{flushed:,} subnormal" + (f", {rest:,} zeros of the other sign" if rest else "")


def _undone(given: Evidence) -> str:
    """What is computed and undone again is left out."""
    for one in given.above:
        if one.flat.dtype == given.got.dtype and _exactly(given, one.flat):
            return f"{one.rule}: the second module has exactly the elements of %{one.name}"
    return ""


def _excess(given: Evidence) -> str:
    if given.excess is not None and _exactly(given, given.excess):
        return (
            "evaluated with excess precision, the first module gives exactly what the second does"
        )
    return ""


def _narrowed(given: Evidence) -> str:
    """Rounding to a narrower type, on one side only."""
    if given.kind.name not in ("f32", "f64"):
        return ""
    for name in ("f32", "f16", "bf16"):
        narrow = dtype(name).numpy
        if given.kind.name == name:
            continue
        for side, one, other in (
            ("second", given.want, given.got),
            ("first", given.got, given.want),
        ):
            rounded = one.astype(narrow).astype(one.dtype)
            if _same(rounded, other).all() and np.isfinite(rounded).any():
                return f"rounded to {name}, all elements are those of the {side} module"
    return ""


def _reciprocal(given: Evidence) -> str:
    if given.before.opcode != "divide" or len(given.operands) != 2:
        return ""
    x, c = given.operands
    if not _is_float(given) or x.dtype != given.want.dtype:
        return ""
    wide = x.dtype.type
    one = (np.asarray(wide(1)) / c).astype(x.dtype)
    return "x * (1 / c) is exactly what the second module gives" if _exactly(given, x * one) else ""


def _fused(given: Evidence) -> str:
    """One rounding of x * y + z in place of two; the factors are what the product was made of."""
    if given.before.opcode not in ("add", "subtract") or given.kind.name != "f32":
        return ""  # in f64 the product of two f32 is exact
    sign = -1.0 if given.before.opcode == "subtract" else 1.0
    for number, operand in enumerate(given.before.operands):
        if operand.opcode != "multiply":
            continue
        factors = [one.flat for one in given.above if one.operand == number and one.steps == 2]
        if len(factors) != 2:
            continue
        product = factors[0].astype(np.float64) * factors[1].astype(np.float64)
        other = given.operands[1 - number].astype(np.float64)
        total = product + sign * other if number == 0 else other + sign * product
        if _exactly(given, total.astype(np.float32)):
            return f"{operand.name} not rounded, the sum is exactly what the second module gives"
    return ""


def _special_values(given: Evidence) -> str:
    """A rewrite that is right for finite numbers only: a NaN became one number."""
    if not _is_float(given) or given.before.opcode not in ("multiply", "subtract", "divide"):
        return ""
    numbers = given.got[given.differ]
    lost = np.isnan(given.want[given.differ])
    if not lost.all() or np.isnan(numbers).any() or np.unique(numbers).size != 1:
        return ""
    return f"NaN in the first module, {numbers[0]} in the second {_everywhere(given)}"


def _nan_in_extrema(given: Evidence) -> str:
    if not _is_float(given) or given.before.opcode not in EXTREMA | {"clamp", "reduce", "select"}:
        return ""
    one_nan = np.isnan(given.want) != np.isnan(given.got)
    return f"NaN in one module only {_everywhere(given)}" if one_nan[given.differ].all() else ""


def _ties(given: Evidence) -> str:
    if given.before.opcode != "sort" or given.after.opcode != "sort":
        return ""
    alike = np.array_equal(np.sort(given.want), np.sort(given.got))
    ties = given.operands[0].size - np.unique(given.operands[0]).size
    if not alike or not ties:
        return ""
    return f"the same elements in another order, and {ties:,} keys are equal to others"


def _other_order(given: Evidence) -> str:
    """Sums in another order, within what that may change."""
    one = given.before
    if len(given.terms[0]) > 2 and _is_float(given):
        sides = (sorted(array.tobytes() for array in terms) for terms in given.terms)
        if next(sides) == next(sides):
            what = "terms" if one.opcode == "add" else "factors"
            return f"both have the same {len(given.terms[0])} {what}"
    if not _is_float(given) or not (one.opcode == "dot" or one.opcode in REDUCING):
        return ""
    magnitudes = [np.abs(array.astype(np.float64)).max(initial=0.0) for array in given.operands[:2]]
    if one.opcode == "dot":
        dims = one.operands[0].array.dims
        terms = int(np.prod([dims[axis] for axis in DotDims.of(one.attributes).lhs_contracting]))
        largest = magnitudes[0] * magnitudes[1]
    elif one.to_apply.root.opcode == "add":
        terms, largest = given.operands[0].size // max(given.want.size, 1), magnitudes[0]
    else:
        return ""
    off = np.abs(given.want.astype(np.float64) - given.got.astype(np.float64)).max(initial=0.0)
    step = float(ml_dtypes.finfo(given.want.dtype).eps) / 2  # type: ignore[no-untyped-call]
    allowed = terms * step * terms * largest
    if not 0 < off <= allowed:
        return ""
    return f"off by {off:.3g} at most; {terms:,} terms in another order may be off by {allowed:.3g}"


def _wrapped(given: Evidence) -> str:
    if not given.kind.is_integer or given.kind.bits < 16:
        return ""
    pairs = zip(given.want[given.differ][:_MOST], given.got[given.differ][:_MOST], strict=True)
    apart = [int(one) - int(other) for one, other in pairs]
    for bits in (32, 16, 8):
        if bits < given.kind.bits and apart and all(n % (1 << bits) == 0 for n in apart):
            return (
                f"all elements differ by multiples of 2**{bits}: one module computed in {bits} bits"
            )
    return ""


def _filled(given: Evidence) -> str:
    """What a gather reads at indices that are out of bounds: the nearest element there is, or a filling."""
    if given.before.opcode != "gather" or len(given.operands) < 2:
        return ""
    limit = max(given.before.operands[0].array.dims, default=1)
    count = int(np.count_nonzero((given.operands[1] < 0) | (given.operands[1] >= limit)))
    for one, side in ((given.got, "second"), (given.want, "first")):
        values = one[given.differ]
        if count and (np.isnan(values).all() if _is_float(given) else np.unique(values).size == 1):
            return (
                f"{count:,} indices are out of bounds, and the {side} module has {values[0]} there"
            )
    return ""


_Check: TypeAlias = "Callable[[Evidence], str]"

_RULES: Final[tuple[tuple[str, str, _Check], ...]] = (
    (
        "sign of zero",
        "The modules differ in the sign of zeros only.",
        _zero_signs,
    ),
    (
        "flushing of subnormals",
        "Numbers below the least normal one became 0.",
        _flushed,
    ),
    (
        "excess precision",
        "Chains of bf16 or f16 kept f32: the roundings in between were left out.",
        _excess,
    ),
    (
        "what was left out",
        "The second module has what the first one had before these steps.",
        _undone,
    ),
    (
        "division by a constant as a product",
        "x / c was computed as x * (1 / c), which rounds twice.",
        _reciprocal,
    ),
    (
        "fused multiply-add",
        "x * y + z was rounded once in place of twice.",
        _fused,
    ),
    (
        "rounding through a narrower type",
        "One module rounds to a narrower type where the other does not.",
        _narrowed,
    ),
    (
        "NaN in minimum and maximum",
        "The modules do not pass on NaN alike.",
        _nan_in_extrema,
    ),
    (
        "special values",
        "A rewrite is right for finite numbers, and not for infinities and NaN (x * 0, x - x, x / x).",
        _special_values,
    ),
    (
        "ties",
        "Equal keys came out in another order: an unstable sort.",
        _ties,
    ),
    (
        "indices out of bounds",
        "Indices are clamped in one module, and dropped or filled in the other.",
        _filled,
    ),
    (
        "integer overflow",
        "An integer was computed in fewer bits.",
        _wrapped,
    ),
    (
        "reassociation",
        "A sum or product was computed in another order.",
        _other_order,
    ),
)

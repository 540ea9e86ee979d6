"""Evaluations that round differently: which results an equally correct device may give.

Every op that rounds is moved by a few units in the last place, sums by what another order of their terms may
change; what is exact stays exact.  Evaluating a module some times so shows, element by element, how much of a
difference rounding explains, through loops, choices and factors of matrices as well (Monte Carlo arithmetic:
D. S. Parker, 1997; J. Vignes' CESTAC).

Numbers are drawn from the bits of the value that is moved, so that an op gives the same for the same
operands, as a device's does: equal elements stay equal, and what is computed twice is the same twice.

Sums of n terms: the error is at most gamma(n) = n u / (1 - n u) times the sum of the magnitudes (N. J. Higham,
Accuracy and Stability of Numerical Algorithms, 4.2), and where roundings are independent about sqrt(n) u times
it (Higham and Mary, SIAM J. Sci. Comput. 41, 2019): that is what a sum is moved by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import (
    Context,
    Evaluator,
    Value,
    array_of,
    arrays_of,
    leaf_arrays,
    map_arrays,
    map_floats,
)
from hloopt.interpret.linear import FACTOR_ROUNDING
from hloopt.interpret.overflow import overflown
from hloopt.interpret.perturbation import nudged, smeared, unit_roundoff
from hloopt.interpret.regions import combiner, only_orders
from hloopt.ir import Instruction
from hloopt.ops.custom import MARKERS
from hloopt.ops.traits import ELEMENTWISE, TRANSCENDENTAL, WITHIN_ONE, op_table
from hloopt.types import Array, ArrayShape, ConvDims, DotDims, leaves, of_numpy

__all__ = [
    "Rounding",
    "exact_results",
    "is_power",
    "is_small",
    "is_whole",
    "leaves_ties_open",
    "moved",
    "moved_inputs",
]


_MOST_ITERATIONS: Final = 4096


class Rounding:
    """A variant of rounding, which ``seed`` chooses.

    A loop that ends where nothing changes any more might never: after many iterations it
    rounds as the definition does until it has ended.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.active = True

    def iteration(self, number: int) -> None:
        """Record how many iterations a loop has run."""
        if number == _MOST_ITERATIONS:
            self.active = False


def moved(instruction: Instruction, run: Evaluator, rounding: Rounding) -> Evaluator:
    """What evaluates an instruction and then moves what it has rounded: ``run`` itself where it is exact."""
    perturb = _PERTURBED.get(instruction.opcode)
    if leaves_ties_open(instruction):
        perturb = _other_ties
    elif not any(_rounds(leaf) for leaf in leaves(instruction.shape)):
        return run
    if perturb is None:
        return run

    def evaluate(one: Instruction, values: tuple[Value, ...], context: Context) -> Value:
        if not rounding.active:
            return run(one, values, context)
        return perturb(_Evaluation(one, values, context, run, rounding.seed))

    return evaluate


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An instruction to be evaluated on values by ``evaluator``, and the number of a way to round."""

    instruction: Instruction
    values: tuple[Value, ...]
    context: Context
    evaluator: Evaluator
    seed: int

    def of(self, values: Iterable[Value]) -> Value:
        """The result for other values."""
        return self.evaluator(self.instruction, tuple(values), self.context)

    def result(self) -> Value:
        """The result as the definition has it."""
        return self.of(self.values)

    def magnitudes(self) -> Value:
        """The result for the magnitudes of the values: of a sum what was added."""
        return self.of(map(_magnitudes, self.values))


def _rounds(leaf: object) -> bool:
    return isinstance(leaf, ArrayShape) and (leaf.dtype.is_float or leaf.dtype.is_complex)


def moved_inputs(arrays: Sequence[Array], seed: int) -> list[Array]:
    """Inputs whose elements, but for whole numbers, are moved by a unit or two in the last place."""

    def each(array: Array) -> Array:
        kind = of_numpy(array.dtype)
        if not (kind.is_float or kind.is_complex):
            return array
        with np.errstate(all="ignore"):
            wide = array.astype(np.complex128 if kind.is_complex else np.float64)
            return np.where(wide == np.rint(wide), array, nudged(array, seed))

    return [each(array) for array in arrays]


# ---- perturbations of results -------------------------------------------------------------------

_Perturbation = Callable[[_Evaluation], Value]


def _elementwise(one: _Evaluation) -> Value:
    opcode, result = one.instruction.opcode, array_of(one.result())
    after = nudged(result, one.seed)
    exact = exact_results(opcode, arrays_of(one.values), result)
    if opcode in _BOUNDED:
        after = np.clip(after, -1, 1)
    return after if exact is None else np.asarray(np.where(exact, result, after))


def exact_results(opcode: str, operands: list[Array], result: Array) -> Array | None:
    """Where an op's result is not rounded; None: nowhere that is known."""
    if np.iscomplexobj(result) or any(map(np.iscomplexobj, operands)):
        return None
    if not all(_spreads(x.shape, result.shape) for x in operands):
        return None
    check = _INVERSES.get(opcode)
    if check is None:
        # Of zero most functions are 0 or 1.
        return np.asarray(np.logical_or.reduce(np.broadcast_arrays(*(x == 0 for x in operands))))
    if result.dtype == np.float64:
        return _EXACT_WIDE[opcode](*operands, result) if opcode in _EXACT_WIDE else None
    return np.asarray(check(*(x.astype(np.float64) for x in operands), result.astype(np.float64)))


def _spreads(dims: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape: one with more elements than its dynamic size does not."""
    return all(size in (1, whole) for size, whole in zip(dims[::-1], to[::-1], strict=False))


def _exact_sum(a: Array, b: Array, total: Array) -> Array:
    """Whether no bit of a sum in f64 is lost (Knuth's TwoSum)."""
    part = total - a
    return np.asarray((a - (total - part)) + (b - part) == 0)


def _exact_product(a: Array, b: Array, _: Array) -> Array:
    """Whether both factors are short, or one is a power of two or zero."""
    return np.asarray((_short(a) & _short(b)) | is_power(a) | is_power(b))


def _exact_quotient(a: Array, b: Array, quotient: Array) -> Array:
    """Whether a quotient is exact by any route: whole numbers with a whole one, a power of two, or of zero.

    Others that happen to fit their type are rounded where a device multiplies by the reciprocal.
    """
    whole = np.logical_and.reduce([x == np.rint(x) for x in np.broadcast_arrays(a, b, quotient)])
    return np.asarray((quotient * b == a) & (whole | is_power(b) | (a == 0)))


def _short(array: Array) -> Array:
    bits = np.asarray(array, order="C").view(np.uint64)
    return np.asarray(bits & np.uint64((1 << 27) - 1) == 0)


def is_power(array: Array) -> Array:
    """Whether an element of f64 is a power of two, or zero."""
    bits = np.asarray(array, order="C").view(np.uint64)
    return np.asarray(bits & np.uint64((1 << 52) - 1) == 0)


_INVERSES: Final[Mapping[str, Callable[..., Array]]] = op_table(
    {
        "add": lambda a, b, r: a + b == r,
        "subtract": lambda a, b, r: a - b == r,
        "multiply": lambda a, b, r: a * b == r,
        "divide": _exact_quotient,
        "sqrt": lambda a, r: r * r == a,
        "convert": lambda a, r: a == r,
    },
    ELEMENTWISE,
    "exact, or a function that is not the inverse of arithmetic",
)
_EXACT_WIDE: Final[Mapping[str, Callable[..., Array]]] = op_table(
    {
        "add": _exact_sum,
        "subtract": lambda a, b, r: _exact_sum(a, -b, r),
        "multiply": _exact_product,
        "divide": _exact_quotient,
        "sqrt": lambda a, r: (a == 0) | _short(r),
        "convert": lambda a, r: np.ones(r.shape, np.bool_) if a.dtype.itemsize < 8 else a == r,
    },
    ELEMENTWISE,
    "as ``_INVERSES`` has it",
)
_BOUNDED: Final = TRANSCENDENTAL & WITHIN_ONE


def _magnitudes(value: Value) -> Value:
    return map_floats(lambda array: np.asarray(np.abs(array), array.dtype), value)


def _sum(
    one: _Evaluation,
    *,
    terms: Callable[[_Evaluation], float | Array],
    stepwise: bool = False,
) -> Value:
    """A sum, moved by the magnitudes that were added; ``stepwise`` every step rounds to the element type."""
    result, added = one.result(), one.magnitudes()
    if all(map(is_whole, one.values)) and all(map(is_small, leaf_arrays(added))):
        return result
    if not all(np.isfinite(part).all() for part in leaf_arrays(added)):
        result, added = overflown(one.instruction, one.values, one.of, one.seed, result, added)
    number = np.maximum(terms(one), 1)

    def each(array: Array, size: Array) -> Array:
        kind = of_numpy(array.dtype)
        if not (kind.is_float or kind.is_complex):
            return array
        unit = unit_roundoff(kind)
        # Sums of narrow floats are made in f32, or in some parts each of which is rounded.
        inner = unit if stepwise else min(unit, 2.0**-24)
        total, most = (np.abs(part).astype(np.float64) for part in (array, size))
        amount = 2 * unit * (total + most / np.sqrt(number)) + np.sqrt(number) * inner * most
        return _smeared(array, amount, one.seed)

    return map_arrays(each, result, added)


def _smeared(array: Array, amount: Array, seed: int) -> Array:
    """Moved by amounts; those that are not finite move nothing."""
    return smeared(array, np.where(np.isfinite(amount), amount, 0.0), seed)


def is_whole(value: Value) -> bool:
    """Whether all numbers are whole, as counts are: their sums are exact while they are small."""
    if isinstance(value, tuple):
        return all(map(is_whole, value))
    if value.dtype.kind in "biu":
        return True
    if np.iscomplexobj(value):
        return is_whole(value.real) and is_whole(value.imag)
    wide = value.astype(np.float64)
    return bool(np.all(wide == np.rint(wide)))


def is_small(array: Array) -> bool:
    """Whether sums of whole numbers with these magnitudes are exact: in f64 for doubles, else in f32."""
    limit = 2.0**53 if array.dtype in (np.float64, np.complex128) else 2.0**24
    return bool(np.all(np.abs(array).astype(np.float64) < limit))


def _contracted(one: _Evaluation) -> float:
    dims = DotDims.of(one.instruction.attributes)
    shape = array_of(one.values[0]).shape
    return float(prod(shape[axis] for axis in dims.lhs_contracting))


def _product(one: _Evaluation) -> Value:
    """A sum of products, whose factors the algorithm may round before."""
    rounding = FACTOR_ROUNDING.get(str(one.instruction.attributes.get("algorithm", "")), 0.0)
    if rounding:
        values = tuple(_factor(value, rounding, one.seed) for value in one.values)
        one = replace(one, values=values)
    return _sum(one, terms=_contracted)


def _factor(value: Value, rounding: float, seed: int) -> Value:
    def each(array: Array) -> Array:
        kind = of_numpy(array.dtype)
        if not kind.is_float or kind.bits <= 16:
            return array
        return _smeared(array, rounding * np.abs(array).astype(np.float64), seed)

    return map_arrays(each, value)


def _kernel_size(one: _Evaluation) -> float:
    dims: ConvDims = one.instruction.attributes["dim_labels"]
    kernel = array_of(one.values[1])
    return float(kernel.size / max(1, kernel.shape[dims.kernel_output_feature]))


def _counted(one: _Evaluation) -> float | Array:
    """How many terms each element has: the sum of ones in their place."""
    ones = one.of(map_floats(np.ones_like, value) for value in one.values)
    counts: Array = np.abs(array_of(ones)).astype(np.float64)
    return counts


def _reduced(one: _Evaluation) -> float:
    shape = array_of(one.values[0]).shape
    return float(prod(shape[axis] for axis in one.instruction.dimensions))


def _fold(
    one: _Evaluation, *, terms: Callable[[_Evaluation], float | Array], stepwise: bool = False
) -> Value:
    """A fold: a sum, a choice, or anything else, whose every step rounds."""
    region = one.instruction.to_apply
    name = combiner(region)
    if name == "add":
        return _sum(one, terms=terms, stepwise=stepwise)
    result = one.result()
    if (name is not None and name != "multiply") or only_orders(region):
        return result
    count = terms(one) if terms is not _counted else _largest(one.values)
    return _relative(result, 2 * sqrt(float(np.max(count))) + 2, one.seed)


def _largest(values: tuple[Value, ...]) -> float:
    return max(array_of(value).size for value in values)


def _relative(value: Value, units: float, seed: int) -> Value:
    """Each element moved by so many units of its own rounding."""

    def each(array: Array) -> Array:
        unit = unit_roundoff(of_numpy(array.dtype))
        return _smeared(array, units * unit * np.abs(array).astype(np.float64), seed)

    return map_floats(each, value)


def _over_row(value: Value, seed: int) -> Value:
    """Operands of a sum that cannot be decomposed: by what sums over the last dimension may change."""

    def each(array: Array) -> Array:
        length = array.shape[-1] if array.ndim else 1
        moved = _relative(array, 2 * (1 + sqrt(length)), seed)
        return array_of(moved)

    return map_floats(each, value)


def _over_matrix(value: Value, seed: int) -> Value:
    """Operands of a factorisation: by the size of the matrix, as its backward error is bounded.

    (Higham, 10.1 and 19.3; for eigenvalues LAPACK Users' Guide, 4.7.)
    """

    def each(array: Array) -> Array:
        size = np.abs(array).astype(np.float64)
        size = np.where(np.isfinite(size), size, 0.0)  # as in a triangle that is not read
        if array.ndim > 1:
            size = np.sqrt(np.mean(size * size, axis=(-2, -1), keepdims=True))
            size = np.broadcast_to(size * 4 * sqrt(array.shape[-1]), array.shape)
        return smeared(array, unit_roundoff(of_numpy(array.dtype)) * size, seed)

    return map_floats(each, value)


def _operands(one: _Evaluation, *, move: Callable[[Value, int], Value] = _over_row) -> Value:
    """An op of many steps: as if its operands had been a little different."""
    result = one.of(move(value, one.seed) for value in one.values)
    return map_floats(lambda array: nudged(array, one.seed), result)


_SUMS: Final = ("__cublas", "__cudnn", "__onednn")
_FACTORS: Final = ("lapack_", "cusolver", "hipsolver", "Cholesky", "Qr", "Eigh", "Syevd")


def _custom_call(one: _Evaluation) -> Value:
    target = one.instruction.custom_call_target
    if target in MARKERS | {"PadToStatic", "SliceToDynamic", "TopK", "__gpu$TopK"}:
        return one.result()
    move = _over_matrix if target.startswith(_FACTORS) else _over_row
    result = _operands(one, move=move)
    if not target.startswith(_SUMS):
        return result
    return map_arrays(partial(_by, one.seed), result, one.magnitudes())


def _by(seed: int, array: Array, added: Array) -> Array:
    """A result moved by what was added for it, of which a function may have left little."""
    kind = of_numpy(array.dtype)
    if not (kind.is_float or kind.is_complex) or array.shape != added.shape:
        return array
    amount = 2 * unit_roundoff(kind) * np.abs(added).astype(np.float64)
    return _smeared(array, amount, seed)


def _transform(one: _Evaluation) -> Value:
    """A Fourier transform: the error of each element follows from all of its line (Higham, 24.1)."""
    result = array_of(one.result())
    axes = tuple(range(-len(one.instruction.attributes["fft_length"]), 0))
    size = np.abs(result).astype(np.float64)
    line = np.sqrt(np.mean(size * size, axis=axes, keepdims=True))
    steps = np.log2(2 * prod(result.shape[axis] for axis in axes))
    amount = np.broadcast_to(unit_roundoff(of_numpy(result.dtype)) * 4 * steps * line, result.shape)
    return _smeared(result, amount, one.seed)


def _picked(one: _Evaluation) -> Value:
    return _relative(one.result(), 4, one.seed)


def leaves_ties_open(instruction: Instruction) -> bool:
    """Whether equal keys may come in any order: of what is sorted with them, too."""
    return (
        instruction.opcode == "sort"
        and not instruction.attributes.get("is_stable")
        and not any(operand.shape.is_dynamic for operand in instruction.operands)
    )


def _other_ties(one: _Evaluation) -> Value:
    """A sort whose equal keys come in the reverse order every other time."""
    if one.seed % 2 == 0:
        return one.result()
    flipped = partial(np.flip, axis=one.instruction.dimensions[0])
    return one.of(map_arrays(flipped, value) for value in one.values)


def _members(one: _Evaluation) -> float:
    return 2.0


_PERTURBED: Final[Mapping[str, _Perturbation]] = op_table(
    {
        **dict.fromkeys((*_INVERSES, *TRANSCENDENTAL), _elementwise),
        "all-reduce": partial(_fold, terms=_members),
        "all-reduce-start": partial(_fold, terms=_members),
        "batch-norm-grad": _operands,
        "batch-norm-inference": _operands,
        "batch-norm-training": _operands,
        "cholesky": partial(_operands, move=_over_matrix),
        "convolution": partial(_sum, terms=_kernel_size),
        "custom-call": _custom_call,
        "dot": _product,
        "fft": _transform,
        "ragged-dot": partial(_sum, terms=_counted),
        "reduce": partial(_fold, terms=_reduced),
        "reduce-scatter": partial(_fold, terms=_members),
        "reduce-window": partial(_fold, terms=_counted),
        "scaled-dot": partial(_sum, terms=_contracted),
        "scan": _picked,
        "scatter": partial(_fold, terms=_counted, stepwise=True),
        "select-and-scatter": _picked,
        "triangular-solve": _operands,
    },
    otherwise="exact",
)

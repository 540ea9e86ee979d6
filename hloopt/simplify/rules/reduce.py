"""Rules for reduce: what is reduced, moved before or after."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops.traits import EXTREMA, IDEMPOTENT, REARRANGING
from hloopt.rewrite import Match, Rule, op, own_attributes, splat_literal, var, variables
from hloopt.rewrite.regions import (
    combiner_computation,
    is_exact,
    is_liftable,
    lifted,
    named_combiner,
)
from hloopt.simplify.predicates import (
    FLOAT,
    INTEGER,
    PRED,
    is_all_ones,
    is_highest,
    is_lowest,
    is_negative_zero,
    is_positive_zero,
    scalar_value,
)
from hloopt.types import ArrayShape, Dims, array, parts_of

__all__ = [
    "RULES",
    "fold",
    "in_any_order",
    "is_neutral",
    "is_plain",
    "kept_dims",
    "reduced_dims",
]

A, INIT = variables("A INIT")


def is_plain(root: Instruction) -> bool:
    """Whether this is a reduce of one array."""
    return len(root.operands) == 2 and root.is_array


def reduced_dims(root: Instruction) -> Dims:
    """The dimensions a reduce folds, in order."""
    return tuple(sorted(root.dimensions))


def is_neutral(match: Match, opcode: str, init: Instruction, values: Instruction) -> bool:
    """Whether ``opcode(init, x)`` keeps every x of ``values``: bit for bit without ``fast_math``."""
    scalar, kind = scalar_value(init), init.array.dtype.kind
    if scalar is None:
        return False
    if opcode == "add" and kind in (FLOAT, *INTEGER) and not float(scalar):
        if kind != FLOAT or match.fast_math or is_negative_zero(init):
            return True
        return _is_sum_from_zero(values) or not match.range_of(values).negative_zero
    if opcode == "multiply" and kind in (FLOAT, *INTEGER):
        return float(scalar) == 1
    if opcode == "maximum":
        return is_lowest(init)
    if opcode == "minimum":
        return is_highest(init)
    if opcode == "and" and kind in (PRED, *INTEGER):
        return is_all_ones(init)
    return opcode in ("or", "xor") and kind in (PRED, *INTEGER) and not int(scalar)


def _is_sum_from_zero(values: Instruction) -> bool:
    """Whether the elements are sums that began with +0: in every order these end with +0, never with -0."""
    while values.opcode in REARRANGING - {"bitcast"}:
        values = values.operands[0]
    return (
        values.opcode == "reduce"
        and is_plain(values)
        and is_positive_zero(values.operands[1])
        and named_combiner(values.to_apply) == "add"
    )


def _same_init(left: Instruction, right: Instruction) -> bool:
    literal = splat_literal(left)
    return left is right or (literal is not None and literal == splat_literal(right))


def fold(match: Match, operand: Instruction, dims: Dims, shape: ArrayShape) -> Instruction:
    """The root's fold, of another operand."""
    attributes = {**own_attributes(match.root), "dimensions": dims}
    return match.make("reduce", operand, *match.root.operands[1:], shape=shape, **attributes)


def kept_dims(rank: int, reduced: Dims) -> list[int]:
    """The dimensions of an array of ``rank`` that a reduce keeps."""
    return [dim for dim in range(rank) if dim not in reduced]


def _reduces_nothing(match: Match) -> Instruction | None:
    """The reduced dimensions have one element, and starting from the init changes nothing."""
    root = match.root
    if not is_plain(root) or any(match.A.array.dims[d] != 1 for d in reduced_dims(root)):
        return None
    if not is_neutral(match, named_combiner(root.to_apply), match.INIT, match.A):
        return None
    return match.result("reshape", match.A)


def _applies_once(match: Match) -> Instruction | None:
    """One element each: the region takes it and the initial value, as an op on whole arrays.

    A sum in double precision of two numbers, rounded once, is the sum rounded in the narrower type,
    which has less than half the digits.
    """
    root = match.root
    count = len(root.operands) // 2
    values, inits = root.fold_inputs, root.fold_inits
    if any(values[0].array.dims[dim] != 1 for dim in reduced_dims(root)):
        return None
    region = root.to_apply
    shapes = parts_of(root.shape)
    if count == 1 and named_combiner(region) == "add" and _is_float_zero(inits[0]):
        return match.refuse(f"{values[0].name} may hold -0, which a sum from 0 makes 0")
    if not is_liftable(region, (*inits, *values)) or not isinstance(shapes[0], ArrayShape):
        return None
    like = shapes[0]
    starts, elements = [], []
    for init, value, shape in zip(inits, values, shapes, strict=True):
        assert isinstance(shape, ArrayShape)
        starts.append(match.fill(shape, init))
        elements.append(match.make("reshape", value, shape=shape))
    results = lifted(region, (*starts, *elements), like, match)
    return match.results(results)


def _is_float_zero(init: Instruction) -> bool:
    """A sum of one element that starts there costs no more than the addition."""
    value = scalar_value(init)
    return value is not None and init.array.dtype.kind == FLOAT and not float(value)


def _reduces_empty(match: Match) -> Instruction | None:
    root = match.root
    if root.operands[0].array.elements:
        return None
    shapes = parts_of(root.shape)
    if any(not isinstance(shape, ArrayShape) or not shape.elements for shape in shapes):
        return None
    results = tuple(
        match.make("broadcast", init, shape=shape, dimensions=())
        for init, shape in zip(root.fold_inits, shapes, strict=True)
    )
    return match.results(results)


def _reduce_once(match: Match) -> Instruction | None:
    """Floating-point sums in two steps round in between, unless the first adds nothing."""
    outer, inner = match.root, match.inner
    if not (is_plain(outer) and is_plain(inner)) or len(inner.users) != 1:
        return None
    opcode = named_combiner(outer.to_apply)
    if not opcode or opcode != named_combiner(inner.to_apply):
        return None
    reduced = reduced_dims(inner)
    # 0 + x is x but for the sign of a zero, which a sum from +0 loses anyway.
    single = (
        opcode == "add"
        and all(match.A.array.dims[dim] == 1 for dim in reduced)
        and _is_float_zero(match.J)
        and is_positive_zero(match.INIT)
    )
    if not (single or match.fast_math or is_exact(opcode, outer.array)):
        return match.refuse(f"floating-point {opcode} in two steps rounds in between")
    if not single and not _same_init(match.J, match.INIT):
        return None
    neutral = single or is_neutral(match, opcode, match.INIT, match.A)
    if opcode not in IDEMPOTENT and not neutral:
        return None
    kept = kept_dims(match.A.array.rank, reduced)
    dims = tuple(sorted({*reduced, *(kept[d] for d in reduced_dims(outer))}))
    return fold(match, match.A, dims, outer.array)


def in_any_order(match: Match) -> bool:
    """Whether a fold has the same bits however its elements lie.

    Sums of floats are defined in any order, and an executor takes the one that suits the shape: those
    need ``fast_math``.  Other folds have one order, or none that matters.
    """
    opcode = named_combiner(match.root.to_apply)
    if opcode != "add" or match.fast_math or is_exact(opcode, match.array):
        return True
    match.refuse("an executor may add floats of another shape in another order")
    return False


def _sum_of_broadcast(match: Match) -> Instruction | None:
    """N equal terms: n times one.

    Sums of floats are made in double precision, where the partial sums k x of a type of at most 24
    digits are exact; so one product by an exact n rounds the same number, and + 0 gives the same zero.
    """
    root, wide = match.root, match.inner
    given, mapped = reduced_dims(root), wide.attributes.get("dimensions", ())
    if not is_plain(root) or named_combiner(root.to_apply) != "add":
        return None
    if any(dim in given for dim in mapped) or not wide.array.elements:
        return None
    value, dtype = scalar_value(match.INIT), root.array.dtype
    if value is None or dtype.kind not in (FLOAT, *INTEGER) or float(value):
        return None
    count = wide.array.elements // root.array.elements
    if dtype.kind == FLOAT and not match.fast_math:
        if dtype.name not in ("f32", "f16", "bf16"):
            return match.refuse(f"partial sums of {dtype.name} round")
        if float(dtype.numpy.type(count)) != count or count >= 1 << 29:
            return match.refuse(f"{count} is not a value of {dtype.name}")
    elif count >= 1 << (dtype.bits - 1):
        return None
    outer = kept_dims(wide.array.rank, given)
    target = tuple(outer.index(dim) for dim in mapped)
    term = match.A
    if target != tuple(range(root.array.rank)):
        term = match.result("broadcast", term, dimensions=target)
    product = match.result("multiply", term, match.splat(root.array, count))
    if dtype.kind != FLOAT or match.fast_math:
        return product
    zero = splat_literal(match.INIT)
    assert zero is not None
    return match.result("add", product, match.splat_of(root.array, zero))


def _of_widening(match: Match) -> Instruction | None:
    """The order of numbers is the same in a type that holds all of them."""
    root, source = match.root, match.A.array.dtype
    opcode = named_combiner(root.to_apply)
    if not is_plain(root) or opcode not in EXTREMA:
        return None
    target = root.array.dtype
    if (source.name, target.name) not in _WIDENINGS:
        return None
    neutral = is_lowest(match.INIT) if opcode == "maximum" else is_highest(match.INIT)
    return None if not neutral else _narrow_fold(match, opcode)


_WIDENINGS = frozenset(
    {("bf16", "f32"), ("f16", "f32"), ("bf16", "f64"), ("f16", "f64"), ("f32", "f64")}
)


def _narrow_fold(match: Match, opcode: str) -> Instruction:
    root, element = match.root, match.A.array.dtype
    module = root.module
    region = combiner_computation(module, opcode, element.name)
    bound = float("-inf") if opcode == "maximum" else float("inf")
    init = match.splat(array(element), bound)
    attributes = {**own_attributes(root), "to_apply": region}
    small = match.make("reduce", match.A, init, shape=root.array.with_dtype(element), **attributes)
    return match.result("convert", small)


RULES = (
    Rule("reduce(A) over single elements => reshape(A)", op("reduce", A, INIT), _reduces_nothing),
    Rule(
        "reduce(A, INIT) over single elements => to_apply(INIT, reshape(A))",
        op("reduce"),
        _applies_once,
    ),
    Rule("reduce(empty, INIT) => broadcast(INIT)", op("reduce"), _reduces_empty),
    Rule(
        "reduce(reduce(A)) => reduce(A)",
        op("reduce", op("reduce", A, var("J")), INIT),
        _reduce_once,
    ),
    Rule(
        "reduce(broadcast(A), 0) => A * n",
        op("reduce", op("broadcast", A), INIT),
        _sum_of_broadcast,
    ),
    Rule(
        "reduce-max(convert(A)) => convert(reduce-max(A))",
        op("reduce", op("convert", A), INIT),
        _of_widening,
    ),
)

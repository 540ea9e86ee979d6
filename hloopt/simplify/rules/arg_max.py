"""Rules for reduce of several arrays at once: arg-max and arg-min, and single results."""

from __future__ import annotations

import numpy as np

from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.pairs import PairChoice, choice_of
from hloopt.ir import Computation, Instruction, edit
from hloopt.rewrite import Match, Rule, op, splat_literal, var
from hloopt.rewrite.regions import lane, named_combiner
from hloopt.simplify.predicates import exact_or_real, scalar_value
from hloopt.simplify.rules.reduce import is_plain, reduced_dims
from hloopt.types import ArrayShape, Literal, TupleShape

__all__ = ["RULES"]


def _choice(match: Match, region: Computation) -> PairChoice | None:
    """What a region of two pairs chooses, proven by trying every order of numbers."""
    return choice_of(region, Interpreter(match.root.module, EVALUATORS))


def _alone(match: Match) -> Instruction | None:
    """A tuple of one result: the reduce of one array."""
    root = match.root
    if not isinstance(root.shape, TupleShape) or len(root.operands) != 2:
        return None
    return _lane(match, root, 0, root.shape)


def _only_one_read(match: Match) -> Instruction | None:
    """The one result that is read, where its values are combined with each other alone."""
    reduce, number = match.inner, match.root.tuple_index
    if not reduce.is_tuple or reduce.is_root:
        return None
    if any(user.opcode != "get-tuple-element" for user in reduce.users):
        return None
    if any(user.tuple_index != number for user in reduce.users):
        return None
    others = (one for one in reduce.operands[0].users if one.opcode == "reduce")
    if any(one is not reduce and _is_same(one, reduce) for one in others):
        return None  # cse makes them one, of which more is read
    return _lane(match, reduce, number, None)


def _is_same(one: Instruction, other: Instruction) -> bool:
    """Whether two reductions of several arrays are the same but for copies of what they read."""
    if one.attributes != other.attributes or one.shape != other.shape:
        return False
    return all(
        left is right
        or (left.opcode == right.opcode == "iota" and left.attributes == right.attributes)
        or ((known := splat_literal(left)) is not None and known == splat_literal(right))
        for left, right in zip(one.operands, other.operands, strict=True)
    )


def _lane(
    match: Match, reduce: Instruction, number: int, whole: TupleShape | None
) -> Instruction | None:
    region = lane(reduce.to_apply, number)
    if region is None:
        return None
    edit.add_computation(match.root.module, region)
    count = len(reduce.operands) // 2
    shape = reduce.elements[number]
    result = match.make(
        "reduce",
        reduce.operands[number],
        reduce.operands[count + number],
        shape=shape,
        dimensions=reduce.dimensions,
        to_apply=region,
    )
    return result if whole is None else match.make("tuple", result, shape=whole)


def _beside_its_place(match: Match) -> Instruction | None:
    """The extreme value is the value of the pair that another reduce chooses.

    The pairs are reduced again right here, for cse to make the two reductions one.  Of zeros a choice
    returns the one it meets, where maximum returns +0: ``fast_math``, if a NaN is always chosen; if it may
    be lost, ``floats_are_real``.
    """
    root = match.root
    opcode = named_combiner(root.to_apply)
    if not is_plain(root) or opcode not in ("maximum", "minimum"):
        return None
    if not exact_or_real(match) and not match.fast_math:
        return None
    for user in match.A.users:
        if user.opcode != "reduce" or len(user.operands) != 4 or not user.is_understood:
            continue
        if user.operands[0] is not match.A or reduced_dims(user) != reduced_dims(root):
            continue
        places = user.operands[1]
        starts = [splat_literal(start) for start in user.operands[2:]]
        if places.opcode != "iota" or starts[0] != splat_literal(match.INIT):
            continue
        choice = _choice(match, user.to_apply)
        if choice is None or choice.largest != (opcode == "maximum"):
            continue
        if not exact_or_real(match) and not _keeps_nan(match, user.to_apply):
            continue
        inits = tuple(match.constant(start) for start in starts if isinstance(start, Literal))
        if len(inits) < 2:
            continue
        again = match.make("iota", shape=places.shape, **places.attributes)
        pair = match.make("reduce", match.A, again, *inits, shape=user.shape, **user.attributes)
        return match.result("get-tuple-element", pair, index=0)
    return None


def _keeps_nan(match: Match, region: Computation) -> bool:
    """Whether of two pairs one with a NaN is chosen, on either side and whatever the indices."""
    kinds = [parameter.array.dtype for parameter in region.parameters]
    nan, other = np.array([np.nan, np.nan]), np.array([1.0, 1.0])
    low, high = np.array([0, 1]), np.array([1, 0])
    context = Interpreter(match.root.module, EVALUATORS)
    for values in ((nan, other), (other, nan)):
        columns = (values[0], low, values[1], high)
        given = [
            context.round(column.astype(kind.compute), kind)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        chosen, _ = leaf_arrays(context.apply(region, given))
        if not np.isnan(chosen.astype(np.float64)).all():
            return False
    return True


def _place_in_splat(match: Match) -> Instruction | None:
    """Of equal values the first is chosen, where it is better than the initial one."""
    root = match.root
    if len(root.operands) != 4 or not isinstance(root.shape, TupleShape):
        return None
    values, places, start, _ = root.operands
    value, least = scalar_value(values), scalar_value(start)
    if value is None or least is None or places.opcode != "iota" or not values.array.elements:
        return None
    if places.iota_dimension not in reduced_dims(root):
        return None
    choice = _choice(match, root.to_apply)
    if choice is None or choice.ties not in ("lower", "first"):
        return None
    wide, bound = value.astype(np.float64), least.astype(np.float64)
    if values.array.dtype.bits > 32 or not (wide > bound if choice.largest else wide < bound):
        return None
    parts = [part for part in root.shape.elements if isinstance(part, ArrayShape)]
    return match.result("tuple", match.splat(parts[0], value), match.splat(parts[1], 0))


RULES = (
    Rule("(reduce(A)) => reduce(A)", op("reduce"), _alone),
    Rule(
        "get-tuple-element(reduce(A, B)) of one by itself => reduce(A)",
        op("get-tuple-element", op("reduce")),
        _only_one_read,
    ),
    Rule(
        "reduce-max(A) beside arg-max(A) => get-tuple-element(arg-max(A))",
        op("reduce", var("A"), var("INIT")),
        _beside_its_place,
    ),
    Rule("arg-max(broadcast(C)) => (C, 0)", op("reduce"), _place_in_splat),
)

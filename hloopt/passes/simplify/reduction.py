"""Rules for reduce, sort and dot."""

from __future__ import annotations

from hloopt.ir import Computation, Instruction
from hloopt.passes.simplify.conditions import (
    FLOAT,
    INTEGER,
    PRED,
    is_all_ones,
    is_highest,
    is_lowest,
    is_negative_zero,
    never_negative_zero,
    scalar_value,
)
from hloopt.rewrite import Match, Rule, op, splat_literal, var
from hloopt.types import ArrayShape, DotDims, TupleShape

__all__ = ["RULES", "reducer"]

A, INIT = var("A"), var("INIT")

_ADD = "add { a = $T[] parameter(0)\n b = $T[] parameter(1)\n ROOT s = $T[] add(a, b) }\n"
_MAX = "max { a = $T[] parameter(0)\n b = $T[] parameter(1)\n ROOT s = $T[] maximum(a, b) }\n"


def reducer(computation: Computation) -> str:
    """The opcode of a region that is one two-operand op of its two parameters, or an empty string."""
    root, parameters = computation.root, computation.parameters
    if (
        len(parameters) != 2
        or len(root.operands) != 2
        or root.array.dtype is not parameters[0].array.dtype
    ):
        return ""
    direct = root.operands == tuple(parameters)
    swapped = root.operands == tuple(reversed(parameters)) and root.op.commutative
    return root.opcode if direct or swapped else ""


def _single(root: Instruction) -> bool:
    return len(root.operands) == 2 and isinstance(root.shape, ArrayShape)


def _is_neutral(opcode: str, init: Instruction, values: Instruction) -> bool:
    """Whether ``opcode(init, x)`` keeps every x of ``values``, bit for bit."""
    scalar, kind = scalar_value(init), init.array.dtype.kind
    if scalar is None:
        return False
    if opcode == "add" and kind in (FLOAT, *INTEGER) and not float(scalar):
        return kind != FLOAT or is_negative_zero(init) or never_negative_zero(values)
    if opcode == "multiply" and kind in (FLOAT, *INTEGER):
        return float(scalar) == 1
    if opcode == "maximum":
        return is_lowest(init)
    if opcode == "minimum":
        return is_highest(init)
    if opcode == "and" and kind in (PRED, *INTEGER):
        return is_all_ones(init)
    return opcode in ("or", "xor") and kind in (PRED, *INTEGER) and not int(scalar)


def _reduces_nothing(match: Match) -> Instruction | None:
    """The reduced dimensions have one element, and starting from the init changes nothing."""
    root = match.root
    if not _single(root):
        return None
    dims: tuple[int, ...] = root.attributes["dimensions"]
    if any(match.A.array.dims[d] != 1 for d in dims):
        return None
    if not _is_neutral(reducer(root.attributes["to_apply"]), match.INIT, match.A):
        return None
    return match.make("reshape", (match.A,), {}, root.shape)


def _reduces_empty(match: Match) -> Instruction | None:
    root = match.root
    if not _single(root) or match.A.array.elements or not root.array.elements:
        return None
    return match.make("broadcast", (match.INIT,), {"dimensions": ()}, root.shape)


def _reduce_once(match: Match) -> Instruction | None:
    """Integers only: floats would be added up in another order."""
    outer, inner = match.root, match.root.operands[0]
    if not (_single(outer) and _single(inner)) or len(inner.users) != 1:
        return None
    opcode = reducer(outer.attributes["to_apply"])
    if opcode != reducer(inner.attributes["to_apply"]) or not opcode:
        return None
    if outer.array.dtype.kind == FLOAT and not match.fast_math:
        return None
    first, second = splat_literal(inner.operands[1]), splat_literal(outer.operands[1])
    if first is None or first != second or not _is_neutral(opcode, inner.operands[1], match.A):
        return None
    reduced: tuple[int, ...] = inner.attributes["dimensions"]
    kept = [d for d in range(match.A.array.rank) if d not in reduced]
    dims = sorted({*reduced, *(kept[d] for d in outer.attributes["dimensions"])})
    attributes = {**outer.attributes, "dimensions": tuple(dims)}
    return match.make("reduce", (match.A, match.INIT), attributes, outer.shape)


def _sorts_nothing(match: Match) -> Instruction | None:
    root = match.root
    (dimension,) = root.attributes["dimensions"]
    if root.operands[0].array.dims[dimension] > 1:
        return None
    if isinstance(root.shape, TupleShape):
        return match.make("tuple", root.operands, {}, root.shape)
    return root.operands[0]


def _contracts_nothing(match: Match) -> Instruction | None:
    lhs, dims = match.root.operands[0], DotDims.of(match.root.attributes)
    if all(lhs.array.dims[d] for d in dims.lhs_contracting) or not match.root.array.elements:
        return None
    return match.splat(match.root.array, 0)


RULES = (
    Rule(
        "reduce(A) over single elements => reshape(A)",
        op("reduce", A, INIT),
        _reduces_nothing,
        example=f"HloModule m\n{_MAX}ENTRY e {{ x = $T[3,1] parameter(0)\n"
        "i = $T[] constant(-inf)\n"
        "ROOT r = $T[3] reduce(x, i), dimensions={1}, to_apply=max }",
        counterexample=f"HloModule m\n{_ADD}ENTRY e {{ x = $T[3,1] parameter(0)\n"
        "i = $T[] constant(0)\n"
        "ROOT r = $T[3] reduce(x, i), dimensions={1}, to_apply=add }",
        types=("f32", "bf16"),
    ),
    Rule(
        "reduce(empty, INIT) => broadcast(INIT)",
        op("reduce", A, INIT),
        _reduces_empty,
        example=f"HloModule m\n{_ADD}ENTRY e {{ x = $T[3,0] parameter(0)\n"
        "i = $T[] parameter(1)\n"
        "ROOT r = $T[3] reduce(x, i), dimensions={1}, to_apply=add }",
        counterexample=f"HloModule m\n{_ADD}ENTRY e {{ x = $T[3,2] parameter(0)\n"
        "i = $T[] parameter(1)\n"
        "ROOT r = $T[3] reduce(x, i), dimensions={1}, to_apply=add }",
        types=("f32", "s32"),
    ),
    Rule(
        "reduce(reduce(A)) => reduce(A)",
        op("reduce", op("reduce", A, var("J")), INIT),
        _reduce_once,
        example=f"HloModule m\n{_ADD}ENTRY e {{ x = s32[2,3,4] parameter(0)\n"
        "i = s32[] constant(0)\n y = s32[2,4] reduce(x, i), dimensions={1}, to_apply=add\n"
        "ROOT r = s32[2] reduce(y, i), dimensions={1}, to_apply=add }",
        counterexample=f"HloModule m\n{_ADD}ENTRY e {{ x = s32[2,3,4] parameter(0)\n"
        "i = s32[] constant(1)\n y = s32[2,4] reduce(x, i), dimensions={1}, to_apply=add\n"
        "ROOT r = s32[2] reduce(y, i), dimensions={1}, to_apply=add }",
        types=("s32",),
    ),
    Rule(
        "sort(A) of single elements => A",
        op("sort"),
        _sorts_nothing,
        example="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
        "ROOT l = pred[] compare(a, b), direction=LT }\n"
        "ENTRY e { x = f32[3,1] parameter(0)\n y = s32[3,1] parameter(1)\n"
        "ROOT r = (f32[3,1], s32[3,1]) sort(x, y), dimensions={1}, to_apply=less }",
        counterexample="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT l = pred[] compare(a, b), direction=LT }\n"
        "ENTRY e { x = f32[3,1] parameter(0)\n"
        "ROOT r = f32[3,1] sort(x), dimensions={0}, to_apply=less }",
    ),
    Rule(
        "dot(A, B) over nothing => 0",
        op("dot"),
        _contracts_nothing,
        example="x = $T[3,0] parameter(0)\n y = $T[0,2] parameter(1)\n"
        "ROOT r = $T[3,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        counterexample="x = f32[3,1] parameter(0)\n y = f32[1,2] parameter(1)\n"
        "ROOT r = f32[3,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        types=("f32", "bf16", "s32"),
    ),
)

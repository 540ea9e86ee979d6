"""Rules for transpose."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import exact_or_fast, resized
from hloopt.passes.simplify.dimensions import (
    ELEMENTWISE,
    before_transpose,
    dimensions,
    is_scalar,
    lies_alike,
    reorders_only,
    used_once,
)
from hloopt.rewrite import Match, Rule, op, own_attributes, var
from hloopt.types import DotDims

__all__ = ["RULES"]

A, B = var("A"), var("B")


def _identity_permutation(match: Match) -> bool:
    dims = dimensions(match.root)
    return dims == tuple(range(len(dims)))


def _composed(inner: tuple[int, ...], outer: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(inner[d] for d in outer)


def _transpose(match: Match, operand: Instruction, permutation: tuple[int, ...]) -> Instruction:
    return match.result("transpose", operand, dimensions=permutation)


def _transpose_once(match: Match) -> Instruction:
    inner, outer = dimensions(match.root.operands[0]), dimensions(match.root)
    return _transpose(match, match.A, _composed(inner, outer))


def _moved(broadcast: Instruction, permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Where a transpose takes the dimensions of a broadcast."""
    place = {old: new for new, old in enumerate(permutation)}
    return tuple(place[d] for d in dimensions(broadcast))


def _transpose_of_broadcast(match: Match) -> Instruction | None:
    dims = _moved(match.root.operands[0], dimensions(match.root))
    if list(dims) != sorted(dims):
        return None
    return match.result("broadcast", match.A, dimensions=dims)


def _transpose_before_broadcast(match: Match) -> Instruction | None:
    """Move the few elements that are repeated afterwards."""
    source, dims = match.A.array, _moved(match.root.operands[0], dimensions(match.root))
    if list(dims) == sorted(dims) or source.elements >= match.root.array.elements:
        return None
    permutation = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    sizes = tuple(source.dims[d] for d in permutation)
    small = match.make("transpose", match.A, shape=resized(source, sizes), dimensions=permutation)
    return match.result("broadcast", small, dimensions=tuple(sorted(dims)))


def _transpose_of_iota(match: Match) -> Instruction:
    dimension = match.root.operands[0].attributes["iota_dimension"]
    new = {"iota_dimension": dimensions(match.root).index(dimension)}
    return match.result("iota", **new)


def _transpose_is_reshape(match: Match) -> Instruction | None:
    moved = [d for d in dimensions(match.root) if match.A.array.dims[d] != 1]
    if moved != sorted(moved):
        return None
    return match.result("reshape", match.A)


def _past_reshape(match: Match) -> Instruction | None:
    """Transpose once, after the reshape, where whole groups of dimensions are what it moves."""
    inner, reshape = match.T, match.R
    found = before_transpose(dimensions(inner), inner.array.dims, reshape.array.dims)
    if found is None:
        return None
    dims, permutation = found
    source = match.A
    if source.array.dims != dims:
        source = match.make("reshape", source, shape=resized(source.array, dims))
    return _transpose(match, source, _composed(permutation, dimensions(match.root)))


def _undone(match: Match) -> Instruction | None:
    """Compute in the order that both transposes come from and go back to."""
    root, computed = match.root, match.F
    permutation = dimensions(root)
    operands: list[Instruction] = []
    undone = False
    for operand in computed.operands:
        if is_scalar(operand):
            operands.append(operand)
        elif operand.opcode == "transpose":
            back = _composed(dimensions(operand), permutation)
            source = operand.operands[0]
            if back != tuple(range(len(back))) or not lies_alike(source.array, root.array):
                return None
            operands.append(source)
            undone = True
        elif operand.opcode == "broadcast":
            dims = _moved(operand, permutation)
            if list(dims) != sorted(dims):
                return None
            shape = root.array.with_dtype(operand.array.dtype)
            operands.append(
                match.make("broadcast", *operand.operands, shape=shape, dimensions=dims)
            )
        else:
            return None
    if not undone:
        return None
    return match.again(computed, *operands)


def _swapped_dot(match: Match) -> Instruction | None:
    """The transpose puts the right side's dimensions before the left side's, and moves nothing else."""
    dot = match.D
    dims, permutation = DotDims.of(dot.attributes), dimensions(match.root)
    batch = len(dims.lhs_batch)
    left = match.A.array.rank - batch - len(dims.lhs_contracting)
    total = dot.array.rank
    swapped = (*range(batch), *range(batch + left, total), *range(batch, batch + left))
    if permutation != swapped:
        return None
    attributes = own_attributes(dot)
    for name in ("batch_dims", "contracting_dims"):
        pair = {side: attributes.pop(f"{side}_{name}", None) for side in ("lhs", "rhs")}
        for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
            if pair[other] is not None:
                attributes[f"{side}_{name}"] = pair[other]
    words = str(attributes.get("operand_precision", "")).strip("{}").split(",")
    if len({word.strip() for word in words}) > 1:
        return match.refuse("the operands of the dot have different precisions")
    if unknown := attributes.keys() - _SWAPPED:
        return match.refuse(f"the dot has {', '.join(sorted(unknown))}")
    return match.result("dot", match.B, match.A, **attributes)


_SWAPPED = {
    "lhs_batch_dims",
    "rhs_batch_dims",
    "lhs_contracting_dims",
    "rhs_contracting_dims",
    "operand_precision",
    "algorithm",
}


def _of_copy(match: Match) -> Instruction | None:
    """The copy only reorders memory, which the transpose that reads it does as well."""
    copy = match.root.operands[0]
    if not (used_once(copy) and reorders_only(copy)):
        return None
    return _transpose(match, match.A, dimensions(match.root))


RULES = (
    Rule(
        "transpose(A) => A",
        op("transpose", A),
        A,
        when=_identity_permutation,
        example="x = f32[2,3] parameter(0)\n ROOT r = f32[2,3] transpose(x), dimensions={0,1}",
        counterexample="x = f32[2,2] parameter(0)\n"
        "ROOT r = f32[2,2] transpose(x), dimensions={1,0}",
    ),
    Rule(
        "transpose(transpose(A)) => transpose(A)",
        op("transpose", op("transpose", A)),
        _transpose_once,
        example="x = f32[2,3,4] parameter(0)\n y = f32[4,2,3] transpose(x), dimensions={2,0,1}\n"
        "ROOT r = f32[2,4,3] transpose(y), dimensions={1,0,2}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,3] reverse(x), dimensions={0}\n"
        "ROOT r = f32[3,2] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(broadcast(A)) => broadcast(A)",
        op("transpose", op("broadcast", A)),
        _transpose_of_broadcast,
        example="x = f32[2,3] parameter(0)\n y = f32[2,3,4] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[4,2,3] transpose(y), dimensions={2,0,1}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,3,4] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[3,4,2] transpose(y), dimensions={1,2,0}",
    ),
    Rule(
        "transpose(broadcast(A)) => broadcast(transpose(A))",
        op("transpose", op("broadcast", A)),
        _transpose_before_broadcast,
        example="x = f32[2,3] parameter(0)\n y = f32[2,3,4] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[3,4,2] transpose(y), dimensions={1,2,0}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,3] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[3,2] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(iota) => iota",
        op("transpose", op("iota")),
        _transpose_of_iota,
        example="x = s32[3,4] iota(), iota_dimension=0\n"
        "ROOT r = s32[4,3] transpose(x), dimensions={1,0}",
        counterexample="x = s32[3,4] iota(), iota_dimension=0\n y = s32[3,4] negate(x)\n"
        "ROOT r = s32[4,3] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(A) => reshape(A)",
        op("transpose", A),
        _transpose_is_reshape,
        example="x = f32[2,1,3] parameter(0)\nROOT r = f32[1,2,3] transpose(x), dimensions={1,0,2}",
        counterexample="x = f32[2,1,3] parameter(0)\n"
        "ROOT r = f32[3,1,2] transpose(x), dimensions={2,1,0}",
    ),
    Rule(
        "transpose(reshape(transpose(A))) => transpose(reshape(A))",
        op("transpose", op("reshape", op("transpose", A).bind("T")).bind("R").one_use),
        _past_reshape,
        example="x = f32[2,3,4] parameter(0)\n t = f32[4,2,3] transpose(x), dimensions={2,0,1}\n"
        "y = f32[4,6] reshape(t)\n ROOT r = f32[6,4] transpose(y), dimensions={1,0}",
        counterexample="x = f32[2,3,4] parameter(0)\n"
        "t = f32[4,3,2] transpose(x), dimensions={2,1,0}\n y = f32[4,6] reshape(t)\n"
        "ROOT r = f32[6,4] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(f(transpose(A))) => f(A)",
        op("transpose", op(ELEMENTWISE).bind("F").one_use),
        _undone,
        example="x = f32[2,3] parameter(0)\n y = f32[2] parameter(1)\n"
        "t = f32[3,2] transpose(x), dimensions={1,0}\n b = f32[3,2] broadcast(y), dimensions={1}\n"
        "m = f32[3,2] multiply(t, b)\n ROOT r = f32[2,3] transpose(m), dimensions={1,0}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[3,2] parameter(1)\n"
        "t = f32[3,2] transpose(x), dimensions={1,0}\n m = f32[3,2] multiply(t, y)\n"
        "ROOT r = f32[2,3] transpose(m), dimensions={1,0}",
    ),
    Rule(
        "transpose(dot(A, B)) => dot(B, A)",
        op("transpose", op("dot", A, B).bind("D").one_use),
        _swapped_dot,
        when=exact_or_fast,
        example="x = s32[5,2,3] parameter(0)\n y = s32[3,5,4] parameter(1)\n"
        "d = s32[5,2,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}\n"
        "ROOT r = s32[5,4,2] transpose(d), dimensions={0,2,1}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[3,4] parameter(1)\n"
        "d = f32[2,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT r = f32[4,2] transpose(d), dimensions={1,0}",
    ),
    Rule(
        "transpose(copy(A)) => transpose(A)",
        op("transpose", op("copy", A)),
        _of_copy,
        example="x = f32[2,3]{1,0} parameter(0)\n y = f32[2,3]{0,1} copy(x)\n"
        "ROOT r = f32[3,2]{1,0} transpose(y), dimensions={1,0}",
        counterexample="x = f32[2,3]{1,0} parameter(0)\n y = f32[2,3]{0,1:S(5)} copy(x)\n"
        "ROOT r = f32[3,2]{1,0} transpose(y), dimensions={1,0}",
    ),
)

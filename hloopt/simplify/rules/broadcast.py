"""Rules for broadcast."""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, var
from hloopt.simplify.data_movement import (
    PASSABLE,
    adds_only_ones,
    dimensions,
    in_order,
    is_scalar,
    keeps_places,
    unmodified_dimensions,
)
from hloopt.simplify.predicates import FLOAT, resized
from hloopt.types import ArrayShape, Dims, inverse_permutation

__all__ = ["RULES", "SINKING"]

A = var("A")


def _broadcast(match: Match, operand: Instruction, dims: Dims) -> Instruction:
    return match.result("broadcast", operand, dimensions=dims)


def _broadcast_once(match: Match) -> Instruction:
    inner, outer = match.inner, match.root
    return _broadcast(match, match.A, tuple(dimensions(outer)[d] for d in dimensions(inner)))


def _broadcast_is_reshape(match: Match) -> Instruction | None:
    dims = dimensions(match.root)
    if match.A.array.elements != match.array.elements or not in_order(dims):
        return None
    if match.A.array.rank in (0, match.array.rank):  # a scalar is broadcast
        return None
    return match.result("reshape", match.A)


def _broadcast_is_transpose(match: Match) -> Instruction | None:
    dims = dimensions(match.root)
    if len(dims) != match.array.rank or in_order(dims):
        return None
    return match.result("transpose", match.A, dimensions=inverse_permutation(dims))


def _broadcast_of_reshape(match: Match) -> Instruction | None:
    reshape, dims = match.inner, dimensions(match.root)
    before, after = match.A.array.dims, reshape.array.dims
    if 0 in before or not adds_only_ones(before, after):
        return None
    kept = unmodified_dimensions(before, after)
    return _broadcast(match, match.A, tuple(dims[kept[d]] for d in range(len(before))))


def _broadcast_of_transpose(match: Match) -> Instruction | None:
    permutation, dims = dimensions(match.inner), dimensions(match.root)
    order = tuple(dims[d] for d in inverse_permutation(permutation))
    return _broadcast(match, match.A, order) if in_order(order) else None


def _broadcast_of_iota(match: Match) -> Instruction:
    inner = match.inner
    dimension = dimensions(match.root)[inner.iota_dimension]
    return match.result("iota", iota_dimension=dimension)


@dataclass(frozen=True, slots=True)
class _Repeated:
    """An operand that repeats its elements: what is repeated, and where its dimensions go."""

    operand: Instruction
    dims: Dims

    @property
    def source(self) -> Instruction | None:
        return self.operand.operands[0] if self.operand.operands else None


def _repeated(operand: Instruction) -> _Repeated | None:
    if operand.opcode == "iota":
        return _Repeated(operand, (operand.iota_dimension,))
    return _Repeated(operand, dimensions(operand)) if operand.opcode == "broadcast" else None


_ROOTS = frozenset({"sqrt", "rsqrt"})
_POWERS = frozenset({"exponential", "power"})
"""Ops by which fast_math multiplies where a program divides, turned over: ``A / sqrt(B) => A * rsqrt(B)``."""


def _is_divisor(match: Match) -> bool:
    """Whether a division is to be rewritten first, which knows its divisor only where no broadcast hides it."""
    root = match.root
    return (
        match.fast_math
        and root.opcode in _ROOTS | _POWERS
        and root.array.dtype.kind == FLOAT
        and any(user.opcode == "divide" and user.operands[1] is root for user in root.users)
    )


def _sink_broadcast(match: Match) -> Instruction | None:
    """Compute before the broadcast: all operands repeat the same dimensions, or are one value."""
    found = _operands(match)
    if found is None:
        return None
    kept = {entry.dims for entry in found if entry.dims}
    if len(kept) > 1 or any(entry.operand.opcode == "iota" for entry in found):
        return None
    sources = [entry.source.array for entry in found if entry.source is not None and entry.dims]
    if len({(shape.dims, shape.layout) for shape in sources}) > 1:
        return None
    inner = sources[0] if sources else found[0].operand.operands[0].array
    return _computed(match, inner, kept.pop() if kept else ())


def _sink_partly(match: Match) -> Instruction | None:
    """Compute in the dimensions that some operand has, and repeat in the others afterwards."""
    found = _operands(match)
    if found is None or not all(in_order(entry.dims) for entry in found):
        return None
    dims = tuple(sorted({d for entry in found for d in entry.dims}))
    root = match.array
    return _computed(match, resized(root, tuple(root.dims[d] for d in dims)), dims)


def _operands(match: Match) -> list[_Repeated] | None:
    """All operands but scalars, where each repeats its elements."""
    found: list[_Repeated] = []
    root = match.root
    if _is_divisor(match):
        return None
    for operand in root.operands:
        if is_scalar(operand) and root.array.dims:
            continue
        entry = _repeated(operand)
        if entry is None:
            return None
        found.append(entry)
    return found or None


def _computed(match: Match, inner: ArrayShape, dims: Dims) -> Instruction | None:
    root = match.root
    as_many = inner.elements >= root.array.elements
    if as_many and (inner.rank > 0 or root.array.rank == 0 or inner.elements > 1):
        return None
    operands = tuple(_before(match, operand, inner, dims) for operand in root.operands)
    shape = inner.with_dtype(root.array.dtype)
    return _broadcast(match, match.again(root, *operands, shape=shape), dims)


def _before(match: Match, operand: Instruction, inner: ArrayShape, dims: Dims) -> Instruction:
    """An operand without the dimensions that are repeated afterwards."""
    if is_scalar(operand):
        return operand
    entry = _repeated(operand)
    assert entry is not None
    shape = inner.with_dtype(operand.array.dtype)
    source = entry.source
    if source is None:
        return match.make("iota", shape=shape, iota_dimension=dims.index(entry.dims[0]))
    if entry.dims == dims:
        return source
    places = tuple(dims.index(d) for d in entry.dims)
    return match.make("broadcast", source, shape=shape, dimensions=places)


RULES = (
    Rule("broadcast(A) => A", op("broadcast", A).where(keeps_places), A),
    Rule(
        "broadcast(broadcast(A)) => broadcast(A)",
        op("broadcast", op("broadcast", A)),
        _broadcast_once,
    ),
    Rule("broadcast(A) => reshape(A)", op("broadcast", A), _broadcast_is_reshape),
    Rule("broadcast(A) => transpose(A)", op("broadcast", A), _broadcast_is_transpose),
    Rule(
        "broadcast(reshape(A)) => broadcast(A)",
        op("broadcast", op("reshape", A)),
        _broadcast_of_reshape,
    ),
    Rule(
        "broadcast(transpose(A)) => broadcast(A)",
        op("broadcast", op("transpose", A)),
        _broadcast_of_transpose,
    ),
    Rule("broadcast(iota) => iota", op("broadcast", op("iota")), _broadcast_of_iota),
    Rule(
        "f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",
        op(PASSABLE),
        _sink_broadcast,
        among=frozenset({"broadcast"}),
    ),
    Rule(
        "f(broadcast(A), iota) => broadcast(f(broadcast(A), iota))",
        op(PASSABLE),
        _sink_partly,
        among=frozenset({"broadcast", "iota"}),
    ),
)

_SINKING = (
    "broadcast(A) => A",
    "broadcast(broadcast(A)) => broadcast(A)",
    "f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",
    "f(broadcast(A), iota) => broadcast(f(broadcast(A), iota))",
)
SINKING = tuple(rule for rule in RULES if rule.name in _SINKING)
"""Those that move broadcasts behind elementwise ops, and merge them."""

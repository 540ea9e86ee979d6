"""Whether LU factors are used by what is the same for any factors of a matrix, whichever rows they exchange.

Solutions are: of both triangles, one after the other, with rows in the order of the pivots.  Determinants are:
over the whole diagonal the sum of the logarithms of sizes, whether any is zero, and whether signs and exchanges
are odd together.  Whatever else reads factors, or a part of the diagonal, shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt
from typing import Final

from hloopt.interpret.lapack import call_options
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import compared_dims, gathered_diagonal, is_masked
from hloopt.linear_algebra.systems.steps import triangle_of
from hloopt.ops.traits import PERMUTING, op_table
from hloopt.rewrite import splat_literal
from hloopt.rewrite.regions import named_combiner
from hloopt.types import ArrayShape

__all__ = ["hides_factors", "read_part"]

_VIEWS: Final = PERMUTING | {"broadcast"}
# Whose readers say whether they show the pivots.
_ON_PIVOTS: Final = op_table({
    "bitcast": True, "broadcast": True, "copy": True, "reshape": True, "transpose": True, "select": True,
    "compare": True, "convert": True, "add": True, "and": True, "clamp": True, "concatenate": True,
    "get-tuple-element": True, "sort": True, "subtract": True, "tuple": True, "while": True,
}, otherwise="shows what it reads")  # fmt: skip
_PERMUTING: Final = "cu_lu_pivots_to_permutation"
_MOST: Final = 400
"""Instructions that are followed."""


def hides_factors(call: Instruction) -> bool:
    """Whether nothing that reads a call of ``getrf`` depends on which rows it exchanges."""
    if call.is_root or any(user.opcode != "get-tuple-element" for user in call.users):
        return False
    factors, pivots, info = (
        [user for user in call.users if user.tuple_index == at] for at in range(3)
    )
    if any(one.is_root or _readers(one) - {"compare"} for one in info):
        return False
    return _is_hidden(factors, _hides_factor) and _is_hidden(pivots, _hides_pivot)


def _readers(value: Instruction) -> set[str]:
    return {user.opcode for user in value.users}


_Answer = bool | None
"""Whether a user hides what it reads; None where the user's own users say."""


def _is_hidden(
    values: list[Instruction], hides: Callable[[Instruction, Instruction], _Answer]
) -> bool:
    pending, seen = list(values), set(values)
    while pending:
        value = pending.pop()
        if value.is_root or len(seen) > _MOST:
            return False
        for user in value.users:
            answer = hides(user, value)
            if answer is False:
                return False
            if answer is None and user not in seen:
                seen.add(user)
                pending.append(user)
    return True


def _hides_factor(user: Instruction, value: Instruction) -> _Answer:
    if triangle_of(user) is not None:
        return user.operands[1] is not value and _is_paired(user)
    if _is_flat(user, value):
        strided = [one for one in user.users if _is_strided_diagonal(one, user)]
        hides = partial(_hides_diagonal, places=frozenset({user.array.rank - 1}))
        return len(strided) == len(user.users) and _is_hidden(strided, hides)
    rank = value.array.rank
    last = rank - 2, rank - 1
    places: frozenset[int] | None = None
    if user.opcode == "gather" and user.operands[0] is value:
        found = gathered_diagonal(user)
        if found is not None and found[last[0]] == found[last[1]]:
            places = frozenset({found[last[0]]})
    elif (
        user.opcode == "select"
        and user.operands[1] is value
        and is_masked(user)
        and sorted(compared_dims(user.operands[0]) or ()) == list(last)
    ):
        places = frozenset(last)
    if places is not None:
        return _is_hidden([user], partial(_hides_diagonal, places=places))
    return None if _keeps_matrix(user, value) else False


def _is_flat(user: Instruction, value: Instruction) -> bool:
    """Whether rows are put one behind the other."""
    dims = value.array.dims
    return user.opcode == "reshape" and user.array.dims == (*dims[:-2], dims[-2] * dims[-1])


def _is_strided_diagonal(user: Instruction, flat: Instruction) -> bool:
    """Whether a slice takes each row's element of the diagonal, where rows lie one behind the other."""
    if user.opcode != "slice":
        return False
    along = user.attributes["slice"][-1]
    size = isqrt(flat.array.dims[-1])
    return (
        (along.start, along.stride, along.size) == (0, size + 1, size)
        and size * size == flat.array.dims[-1]
        and user.array.dims[:-1] == flat.array.dims[:-1]
    )


def _keeps_matrix(user: Instruction, value: Instruction) -> bool:
    """Whether the last two dimensions of the result are those of the value, or both exchanged."""
    shape, result = value.array, user.shape
    if not isinstance(result, ArrayShape) or result.dims[-2:] != shape.dims[-2:]:
        return False
    if user.opcode in ("convert", "copy"):
        return True
    if user.opcode == "select":
        chosen = user.operands[0]
        return chosen.opcode == "broadcast" and all(
            dim < result.rank - 2 for dim in chosen.dimensions
        )
    if user.opcode == "broadcast":
        return tuple(user.dimensions[-2:]) == (result.rank - 2, result.rank - 1)
    if user.opcode == "transpose":
        return tuple(user.dimensions[:-2]) == tuple(range(shape.rank - 2))
    if user.opcode == "reshape":
        return result.elements == shape.elements
    return user.opcode == "bitcast" and shape.rank == result.rank == 2


def _hides_diagonal(user: Instruction, value: Instruction, places: frozenset[int]) -> _Answer:
    """``places`` are the dimensions along which the diagonal lies: only folds of all of it hide it."""
    if user.opcode == "compare":
        other = next((one for one in user.operands if one is not value), None)
        return None if other is not None and splat_literal(other) is not None else False
    if user.op.is_elementwise and len(user.operands) == 1:
        return None
    if user.opcode != "reduce" or len(user.operands) != 2 or not places <= set(user.dimensions):
        return False
    kind = named_combiner(user.to_apply)
    if kind == "or":
        return value.opcode == "compare" and value.direction == "EQ"
    if kind != "add":
        return False
    if value.opcode == "log":
        return value.operands[0].opcode == "abs"
    return _is_counted(value) and _is_parity(user)


def _is_counted(value: Instruction) -> bool:
    """Whether an array has a 1 for each place where something holds, and zeros."""
    return value.opcode == "convert" and value.operands[0].array.dtype.is_pred


def _is_parity(count: Instruction) -> bool:
    """Whether all that is read of a count, and of its sums with others, is whether it is odd."""
    pending, seen = [count], {count}
    while pending:
        value = pending.pop()
        if value.is_root or len(seen) > _MOST:
            return False
        for user in value.users:
            if user.opcode in ("add", "copy") and user not in seen:
                seen.add(user)
                pending.append(user)
            elif user not in seen and not _takes_parity(user, value):
                return False
    return True


def _takes_parity(user: Instruction, value: Instruction) -> bool:
    if user.opcode not in ("and", "remainder") or user.operands[0] is not value:
        return False
    literal = splat_literal(user.operands[1])
    wanted = 1 if user.opcode == "and" else 2
    return (
        literal is not None and literal.array is not None and bool((literal.array == wanted).all())
    )


def _hides_pivot(user: Instruction, value: Instruction) -> _Answer:
    if user.opcode in ("gather", "scatter"):
        return [at for at, one in enumerate(user.operands) if one is value] == [1]
    if user.opcode == "reduce":
        is_sum = len(user.operands) == 2 and named_combiner(user.to_apply) == "add"
        return is_sum and _is_counted(value) and _is_parity(user)
    if user.opcode == "custom-call":
        return None if user.custom_call_target == _PERMUTING else False
    return None if user.opcode in _ON_PIVOTS else False


def _is_paired(solve: Instruction) -> bool:
    """Whether the system of the other triangle is solved right before or after."""
    is_unit = read_part(solve)[1]
    near = [*_after(solve), _before(solve.operands[1])]
    return any(
        triangle_of(other) is not None
        and read_part(other)[1] is not is_unit
        and other.operands[0] is solve.operands[0]
        for other in near
    )


def _before(value: Instruction) -> Instruction:
    for _ in range(_MOST):
        if value.opcode not in _VIEWS:
            break
        value = value.operands[0]
    return value


def _after(value: Instruction) -> Iterator[Instruction]:
    pending, count = list(value.users), 0
    while pending and count < _MOST:
        user = pending.pop()
        count += 1
        if user.opcode in _VIEWS:
            pending += user.users
        else:
            yield user


def read_part(solve: Instruction) -> tuple[bool, bool]:
    """Whether a system reads the lower triangle, and whether its diagonal counts as 1."""
    if solve.opcode == "triangular-solve":
        attributes = solve.attributes
        return bool(attributes.get("lower")), bool(attributes.get("unit_diagonal"))
    options = call_options(solve)
    return options["uplo"] == ord("L"), options["diag"] == ord("U")

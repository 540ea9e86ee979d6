"""Whether LU factors are used by what is the same for any factors of a matrix, whichever rows they exchange.

Solutions are: of both triangles, one after the other, with rows in the order of the pivots.  Determinants are:
sums of logarithms, products and counts over the diagonal.  Whatever else reads factors shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hloopt.interpret.lapack import call_options
from hloopt.ir import Instruction
from hloopt.linear_algebra.systems.steps import triangle_of
from hloopt.ops.traits import op_table
from hloopt.rewrite.regions import named_combiner

__all__ = ["hides_factors", "read_part"]

# Whose readers say whether it shows what it reads: of factors, of pivots, or of both.
_FOLLOWED: Final = op_table({
    "bitcast": "view", "broadcast": "view", "copy": "view", "reshape": "view", "transpose": "view",
    "compare": "both", "convert": "both", "select": "both",
    "abs": "factors", "gather": "factors", "log": "factors", "slice": "factors",
    "add": "pivots", "and": "pivots", "clamp": "pivots", "concatenate": "pivots",
    "get-tuple-element": "pivots", "sort": "pivots", "subtract": "pivots", "tuple": "pivots",
    "while": "pivots",
}, otherwise="shows what it reads")  # fmt: skip
_VIEWS: Final = frozenset(op for op, of in _FOLLOWED.items() if of == "view")
_ON_FACTORS: Final = frozenset(op for op, of in _FOLLOWED.items() if of != "pivots")
_ON_PIVOTS: Final = frozenset(op for op, of in _FOLLOWED.items() if of != "factors")
_FOLDS: Final = frozenset({"and", "multiply", "or"})
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
    if user.opcode == "reduce":
        return _is_folded(user)
    if user.opcode == "gather":
        return None if user.operands[1] is not value else False
    return None if user.opcode in _ON_FACTORS else False


def _hides_pivot(user: Instruction, value: Instruction) -> _Answer:
    if user.opcode in ("gather", "scatter"):
        return [at for at, one in enumerate(user.operands) if one is value] == [1]
    if user.opcode == "reduce":
        return _is_folded(user)
    if user.opcode == "custom-call":
        return None if user.custom_call_target == _PERMUTING else False
    return None if user.opcode in _ON_PIVOTS else False


def _is_folded(reduce: Instruction) -> bool:
    """Whether a fold of a diagonal, or of a count, is that of a determinant."""
    if len(reduce.operands) != 2:
        return False
    kind = named_combiner(reduce.to_apply)
    return kind in _FOLDS or (kind == "add" and reduce.operands[0].opcode in ("log", "convert"))


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

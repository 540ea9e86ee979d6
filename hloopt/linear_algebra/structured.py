"""Products that take less because of what their factors are, one dot at a time."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.matrix_properties import Matrices
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.blocks import block_plan
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.linear_algebra.selections import selection
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target

__all__ = ["write_structured"]

_PARTS: Final = "dot(A, B) => dots of what is not zero, or not mirrored"


def write_structured(
    computation: Computation,
    matrices: Matrices,
    target: Target,
    log: PassLog,
    *,
    reassociates: bool,
) -> list[Instruction]:
    """Write the dots of a computation that gain by identities, triangles and the like in another way.

    Returns the operands of those, which may have no reader any more.  Floats are left alone where they may
    round otherwise, or meet zeros as infinities, unless it ``reassociates``.
    """
    read: list[Instruction] = []
    for dot in list(computation):
        if dot.opcode != "dot" or not _is_taken(dot):
            continue
        if not reassociates and not _may_be_exact(dot, matrices) and "missed" not in log.kinds:
            continue
        if not log.allows():
            break
        operands = dot.operands
        prices = AlgebraPrices(target, dot.array.dtype, dot.attributes.get("algorithm", ""))
        if _written(dot, matrices, prices, log, reassociates=reassociates):
            read += operands
    return read


def _written(
    dot: Instruction, matrices: Matrices, prices: AlgebraPrices, log: PassLog, *, reassociates: bool
) -> bool:
    """Whether there was a cheaper way that may be taken."""
    chosen = selection(dot, matrices, prices)
    if chosen is not None:
        before, after = chosen.seconds
        gain = f"{gained_time(before, after)} predicted on {prices.target.name}"
        if reassociates or chosen.is_exact(matrices):
            log.hit(chosen.rule, dot, gain)
            chosen.write()
            return True
        words = f"{gain}: {dot.array.dtype.name} may be infinite, NaN or -0"
        log.miss(chosen.rule, dot, words, lost_us=1e6 * (before - after))
        return False
    # What is put beside others is a part already.
    is_part = any(user.opcode in ("concatenate", "pad") for user in dot.users)
    plan = None if is_part else block_plan(dot, matrices, prices)
    if plan is None:
        return False
    gain = f"{plan.gain} predicted on {prices.target.name}"
    if not (reassociates or dot.array.dtype.is_integer):
        words = f"{gain}: sums of {dot.array.dtype.name} would round otherwise"
        log.miss(_PARTS, dot, words, lost_us=1e6 * (plan.before[0] - plan.whole.seconds))
        return False
    log.hit(_PARTS, dot, gain)
    plan.write()
    return True


def _is_taken(dot: Instruction) -> bool:
    kind = dot.array.dtype.kind
    return (
        kind in ("float", "signed", "unsigned")
        and is_replaceable(dot)
        and "sharding" not in dot.attributes
        and 0 not in dot.array.dims
        and len(dot.operands) == 2
        and all(0 not in operand.array.dims for operand in dot.operands)
    )


def _may_be_exact(dot: Instruction, matrices: Matrices) -> bool:
    """Whether a factor has numbers that zeros may be added to."""
    if dot.array.dtype.is_integer:
        return True
    ranges = map(matrices.values.of, dot.operands)
    return any(found.is_finite and not found.has_sign for found in ranges)

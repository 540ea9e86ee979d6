"""Rules for the starts of dynamic-slice and dynamic-update-slice, which both ops clamp alike."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op
from hloopt.simplify.data_movement import is_scalar
from hloopt.simplify.predicates import INTEGER, scalar_value
from hloopt.simplify.rules.convert import is_lossless
from hloopt.types import Dims, array

__all__ = ["RULES", "clamped", "has_starts", "joined_starts", "number", "starts_of"]

_BOTH = ("dynamic-slice", "dynamic-update-slice")


def starts_of(instruction: Instruction) -> tuple[Instruction, ...]:
    """The scalar start indices of a dynamic-slice or dynamic-update-slice; nothing for the old form."""
    given = instruction.operands[1 if instruction.opcode == "dynamic-slice" else 2 :]
    if len(given) != instruction.operands[0].array.rank or not all(map(is_scalar, given)):
        return ()
    return given


def has_starts(instruction: Instruction) -> bool:
    """Whether there is a scalar start for each of some dimensions."""
    return bool(starts_of(instruction))


def number(start: Instruction, dim: int, size: int) -> int | None:
    """Where a part of ``size`` out of ``dim`` begins, clamped, if that is known."""
    if dim == size:
        return 0
    value = scalar_value(start)
    return None if value is None else max(0, min(int(value), dim - size))


def clamped(match: Match, start: Instruction, dim: int, size: int) -> Instruction | None:
    """The start as the op clamps it; None where the index type does not reach the end."""
    known, dtype = number(start, dim, size), start.array.dtype
    if dim - size > dtype.limits[1]:
        return None
    if known is not None:
        return match.splat(array(dtype), known)
    bounds = (match.splat(array(dtype), 0), match.splat(array(dtype), dim - size))
    return match.make("clamp", bounds[0], start, bounds[1], shape=array(dtype))


def joined_starts(
    match: Match,
    outer: tuple[Instruction, ...],
    inner: tuple[Instruction, ...],
    sizes: tuple[Dims, Dims, Dims],
) -> tuple[Instruction, ...] | None:
    """Where a part of a part begins in the whole, each start clamped as before; None out of range.

    ``sizes`` are those of the whole, of the part that begins at ``outer``, and of the part of it that
    begins at ``inner``.
    """
    if not outer or not inner or outer[0].array.dtype is not inner[0].array.dtype:
        return None
    dtype = outer[0].array.dtype
    starts: list[Instruction] = []
    for first, second, dim, middle, size in zip(outer, inner, *sizes, strict=True):
        if middle == size:
            starts.append(first)
        elif dim == middle:
            starts.append(second)
        else:
            left, right = clamped(match, first, dim, middle), clamped(match, second, middle, size)
            if left is None or right is None or dim - size > dtype.limits[1]:
                return None
            starts.append(match.make("add", left, right, shape=array(dtype)))
    return tuple(starts)


def _starting(
    match: Match, start: Callable[[Instruction, int, int], Instruction]
) -> Instruction | None:
    """Other starts, each made of a start, the dimension's size and the part's; None where all stay."""
    root, starts = match.root, starts_of(match.root)
    part = root.array if root.opcode == "dynamic-slice" else root.operands[1].array
    sizes = zip(starts, root.operands[0].array.dims, part.dims, strict=False)
    new = tuple(start(*entry) for entry in sizes)
    if new == starts:
        return None
    return match.again(root, *root.operands[: len(root.operands) - len(starts)], *new)


def _whole_from_zero(match: Match) -> Instruction | None:
    """Where the whole dimension is taken, the start is clamped to 0."""
    zeros: list[Instruction] = []

    def start(given: Instruction, dim: int, size: int) -> Instruction:
        if dim != size or scalar_value(given) == 0:
            return given
        if not zeros:
            zeros.append(match.splat(array(given.array.dtype), 0))
        return zeros[0]

    return _starting(match, start)


def _start_is_clamped(match: Match) -> Instruction | None:
    """What the op itself clamps need not be clamped before: ``0 <= start <= dim - size``."""
    return _starting(match, lambda start, dim, size: _unclamped(start, dim - size))


def _unclamped(start: Instruction, last: int) -> Instruction:
    """An index before it was limited to a range that holds 0 to ``last``."""
    if start.opcode == "clamp":
        low, inner, high = start.operands
        if _at_most(low, 0) and _at_least(high, last):
            return inner
    if start.opcode in ("maximum", "minimum"):
        for inner, bound in (start.operands, start.operands[::-1]):
            limit = _at_most(bound, 0) if start.opcode == "maximum" else _at_least(bound, last)
            if limit:
                return inner
    return start


def _at_most(instruction: Instruction, bound: int) -> bool:
    value = scalar_value(instruction)
    return value is not None and int(value) <= bound


def _at_least(instruction: Instruction, bound: int) -> bool:
    value = scalar_value(instruction)
    return value is not None and int(value) >= bound


def _start_is_converted(match: Match) -> Instruction | None:
    """All starts come from one narrower integer type, or are numbers that it has."""
    root, starts = match.root, starts_of(match.root)
    sources = {start.operands[0].array.dtype for start in starts if start.opcode == "convert"}
    if len(sources) != 1:
        return None
    (narrow,) = sources
    part = root.array if root.opcode == "dynamic-slice" else root.operands[1].array
    if narrow.kind not in INTEGER or narrow.bits < 8:
        return None
    if not is_lossless(narrow, starts[0].array.dtype):
        return None
    indices: list[Instruction] = []
    for start, dim, size in zip(starts, root.operands[0].array.dims, part.dims, strict=True):
        if start.opcode == "convert":
            indices.append(start.operands[0])
            continue
        known = number(start, dim, size)
        if known is None or known > narrow.limits[1]:
            return None
        indices.append(match.splat(array(narrow), known))
    first = root.operands[: len(root.operands) - len(starts)]
    return match.again(root, *first, *indices)


RULES = (
    Rule(
        "dynamic-slice(A, I) of a whole dimension => dynamic-slice(A, 0)",
        op(_BOTH),
        _whole_from_zero,
    ),
    Rule("dynamic-slice(A, clamp(0, I, n)) => dynamic-slice(A, I)", op(_BOTH), _start_is_clamped),
    Rule("dynamic-slice(A, convert(I)) => dynamic-slice(A, I)", op(_BOTH), _start_is_converted),
)

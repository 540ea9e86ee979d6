"""Solutions that are the inverse of a matrix times something: by LU or Cholesky factors, or a triangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.interpret import lapack, solvers
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import compared, is_zero
from hloopt.linear_algebra.systems.chains import (
    VIEWS,
    Labels,
    SolveChain,
    viewed_labels,
)
from hloopt.linear_algebra.systems.factor_uses import read_part
from hloopt.linear_algebra.systems.factors import reads_lower
from hloopt.linear_algebra.systems.row_exchanges import rows_of_factors
from hloopt.linear_algebra.systems.steps import IndexLabel, RowOrder, SolveStep, Triangle
from hloopt.rewrite import splat_literal

__all__ = [
    "FAMILIES",
    "Inverse",
    "ReadFactor",
    "is_factor",
    "matrix_labels",
    "outermost_inverse",
    "read_factor",
    "same_matrix",
    "viewed_matrix",
]

_CHECKS: Final = lapack.CHECKS | solvers.CHECKS
_MOST_VIEWS: Final = 16
FAMILIES: Final = frozenset({"custom", "indexing", "linear"})
"""Of ops that are steps of a solution."""
Kind: TypeAlias = Literal["getrf", "potrf"]


@dataclass(frozen=True)
class Inverse:
    """The outermost steps of a chain, which multiply by the inverse of a matrix.

    chain      of the value
    steps      how many of its steps these are
    matrix     [batch, n, n]
    is_turned  whether it is the inverse of the transposed matrix
    factor     what factors the matrix; None for a triangle, which is not factored
    """

    chain: SolveChain
    steps: int
    matrix: Instruction
    is_turned: bool
    factor: Instruction | None

    @property
    def acted(self) -> IndexLabel:
        """The index that the inverse acts on."""
        return self.chain.acted

    @property
    def right(self) -> tuple[Instruction, Labels]:
        """What is multiplied, with the labels of its dimensions."""
        return self.chain.inputs[self.steps - 1]


@dataclass(frozen=True)
class ReadFactor:
    """Which triangle of a factor a system reads, and how.

    source     of the factor: a ``cholesky``, or a call of ``getrf`` or ``potrf``
    is_turned  whether the transposed triangle is solved
    is_lower   whether the factor's lower triangle is read
    is_unit    whether its diagonal counts as 1
    """

    source: Instruction
    is_turned: bool
    is_lower: bool
    is_unit: bool

    @property
    def kind(self) -> Kind:
        """The routine."""
        name = "cholesky" if self.source.opcode == "cholesky" else self.source.custom_call_target
        return "getrf" if "getrf" in name else "potrf"


def outermost_inverse(chain: SolveChain, matrices: Matrices) -> Inverse | None:
    """The inverse that the first steps of a chain are; None where they are something else."""
    steps = [step for step, _ in chain.steps]
    if chain.value.array.dtype.is_complex:
        return None
    for found in (_by_lu(steps), _by_cholesky(steps, matrices)):
        if found is not None:
            source, is_turned, count = found
            return Inverse(chain, count, source.operands[0], is_turned, source)
    first = steps[0]
    if isinstance(first, Triangle):
        matrix = first.solve.operands[0]
        lower, is_unit = read_part(first.solve)
        rank = matrix.array.rank
        pair = (rank - 2, rank - 1) if lower else (rank - 1, rank - 2)
        if not is_unit and matrices.of(matrix).is_lower(*pair):
            return Inverse(chain, 1, matrix, _is_turned(first), None)
    return None


def _is_turned(triangle: Triangle) -> bool:
    """Whether the transposed triangle acts on the columns: from the right side it does so by itself."""
    return (triangle.transpose != "NO_TRANSPOSE") != (not triangle.left_side)


_Found: TypeAlias = "tuple[Instruction, bool, int] | None"


def _by_lu(steps: Sequence[SolveStep]) -> _Found:
    """``P A = L U``: inverse(A) is inverse(U) inverse(L) P, and transposed P' inverse(L') inverse(U')."""
    if len(steps) < 3:
        return None
    is_turned = isinstance(steps[0], RowOrder)
    rows, one, other = steps[:3] if is_turned else (steps[2], steps[0], steps[1])
    upper, lower = (other, one) if is_turned else (one, other)
    if not isinstance(rows, RowOrder):
        return None
    parts = [read_factor(step) for step in (upper, lower)]
    order = rows_of_factors(rows.indices)
    if parts[0] is None or parts[1] is None or order is None:
        return None
    source = order[0]
    # The transposed order is that of the inverse, or adds rows instead of reading them.
    fits = (order[1] != rows.is_turned) == is_turned
    wanted = [
        ReadFactor(source, is_turned, is_lower, is_unit=is_lower) for is_lower in (False, True)
    ]
    return (source, is_turned, 3) if fits and parts == wanted else None


def _by_cholesky(steps: Sequence[SolveStep], matrices: Matrices) -> _Found:
    """``A = L L'``, or ``U' U``: inverse(A) is inverse(L') inverse(L), or inverse(U) inverse(U')."""
    if len(steps) < 2:
        return None
    parts = [read_factor(step) for step in steps[:2]]
    if parts[0] is None or parts[1] is None or parts[0].kind != "potrf":
        return None
    source, lower = parts[0].source, parts[0].is_lower
    wanted = [
        ReadFactor(source, is_turned, lower, is_unit=False) for is_turned in (lower, not lower)
    ]
    rank = source.operands[0].array.rank
    if parts != wanted or lower != reads_lower(source):
        return None
    # One triangle of the matrix is read.
    if not matrices.of(source.operands[0]).is_symmetric(rank - 2, rank - 1):
        return None
    return source, False, 2


def read_factor(step: SolveStep) -> ReadFactor | None:
    """What a triangular system reads of the factors of a matrix; None where its triangle is none of these."""
    if not isinstance(step, Triangle):
        return None
    value = step.solve.operands[0]
    is_lower, is_unit = read_part(step.solve)
    is_turned = _is_turned(step)
    for _ in range(_MOST_VIEWS):
        rank = value.array.rank
        if value.opcode == "transpose":
            if tuple(value.dimensions) != (*range(rank - 2), rank - 1, rank - 2):
                return None
            is_lower, is_turned = not is_lower, not is_turned
        elif value.opcode == "select":
            if not _keeps(value, is_lower):
                return None
            value = value.operands[1]
            continue
        elif value.opcode == "reshape":
            inner = value.operands[0].array
            if inner.rank < 2 or inner.dims[-2:] != value.array.dims[-2:]:
                return None
        elif value.opcode != "copy":
            break
        value = value.operands[0]
    if value.opcode == "get-tuple-element" and value.tuple_index == 0:
        value = value.operands[0]
    if not is_factor(value):
        return None
    return ReadFactor(value, is_turned, is_lower, is_unit)


def is_factor(value: Instruction) -> bool:
    """Whether an instruction factors matrices as ``getrf`` or ``potrf`` do."""
    if value.opcode == "cholesky":
        return True
    if value.opcode != "custom-call":
        return False
    name = value.custom_call_target
    if not name.endswith(("getrf_ffi", "potrf_ffi")) or name not in _CHECKS:
        return False
    return _CHECKS[name](value) is None


def _keeps(select: Instruction, is_lower: bool) -> bool:
    """Whether a triangle stays, where NaN stands for missing factors, or zeros for the other triangle."""
    mask, value, other = select.operands
    literal, rank = splat_literal(other), value.array.rank
    if literal is not None and literal.array is not None and (literal.array != literal.array).all():
        return mask.opcode == "broadcast" and all(dim < rank - 2 for dim in mask.dimensions)
    found = compared(mask) if is_zero(other) else None
    if found is None:
        return False
    row, column, direction = found
    if (row, column) == (rank - 1, rank - 2):
        row, column = column, row
        direction = {"GE": "LE", "LE": "GE"}.get(direction, "")
    return (row, column) == (rank - 2, rank - 1) and direction == ("GE" if is_lower else "LE")


def matrix_labels(
    matrix: Instruction, batch: Sequence[IndexLabel], row: IndexLabel, column: IndexLabel
) -> Labels | None:
    """The labels of [batch, n, n], of which ``batch`` are those of more than one element."""
    rest = list(batch)
    found: list[IndexLabel | None] = []
    for size in matrix.array.dims[:-2]:
        if size > 1 and not rest:
            return None
        found.append(rest.pop(0) if size > 1 else None)
    return None if rest else (*found, row, column)


def same_matrix(
    one: Instruction, labels: Labels, other: Instruction, others: Labels, matrices: Matrices
) -> bool:
    """Whether two values have equal elements at equal indices: they are views of one matrix."""
    first, source = (viewed_matrix(*pair, matrices) for pair in ((one, labels), (other, others)))
    if first[0] is not source[0]:
        return False
    if first[1] == source[1]:
        return True
    differ = [
        dim for dim, pair in enumerate(zip(first[1], source[1], strict=True)) if pair[0] != pair[1]
    ]
    if len(differ) != 2:
        return False
    row, column = differ
    is_swapped = (first[1][row], first[1][column]) == (source[1][column], source[1][row])
    return is_swapped and matrices.of(first[0]).is_symmetric(row, column)


def viewed_matrix(
    value: Instruction, labels: Labels, matrices: Matrices
) -> tuple[Instruction, Labels]:
    """What a matrix is a view of, with the labels of its dimensions there."""
    for _ in range(_MOST_VIEWS):
        inner, rank = _halves(value), value.array.rank
        if inner is not None and matrices.of(inner).is_symmetric(rank - 2, rank - 1):
            value = inner
            continue
        before = viewed_labels(value, labels) if value.opcode in VIEWS else None
        if before is None:
            break
        value, labels = value.operands[0], before
    return value, labels


def _halves(value: Instruction) -> Instruction | None:
    """The matrix A of ``(A + A') / 2``, which is A itself where A is symmetric."""
    if value.opcode != "multiply" or value.operands[0].opcode != "add":
        return None
    literal = splat_literal(value.operands[1])
    if literal is None or literal.array is None or not (literal.array == 0.5).all():
        return None
    one, other = value.operands[0].operands
    if other.opcode != "transpose" or other.operands[0] is not one:
        one, other = other, one
    rank = value.array.rank
    is_half = (
        other.opcode == "transpose"
        and other.operands[0] is one
        and tuple(other.dimensions) == (*range(rank - 2), rank - 1, rank - 2)
    )
    return one if is_half else None

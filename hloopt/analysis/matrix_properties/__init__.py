"""What is known of matrices: triangles, bands, identities, symmetry, rank, and where it comes from.

``Matrices().of(instruction)`` are the ``MatrixProperties`` of its result, whatever the parameters are.
Masks of ``iota`` and ``compare`` (``masks.py``), constants (``constants.py``) and factorisations
(``factors.py``) are where properties begin; a rule for each op says which of its operands' properties its
result has (``moves.py``, ``arithmetic.py``, ``contractions.py``).  Nothing is derived from loops, and of a call
what holds for any operands.

Each instruction is looked at once, on demand: all queries about a computation together take time
proportional to it.  A rewrite that keeps values keeps answers true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final, TypeAlias

from hloopt.analysis.matrix_properties import contractions, factors, moves
from hloopt.analysis.matrix_properties.arithmetic import elementwise, holds_zeros
from hloopt.analysis.matrix_properties.constants import of_constant
from hloopt.analysis.matrix_properties.masks import affine_of
from hloopt.analysis.matrix_properties.moves import ViewedDims, view_of
from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    Band,
    Box,
    CountedIndices,
    DimPair,
    HotIndex,
    MatrixProperties,
)
from hloopt.analysis.values import Values
from hloopt.dataclass import dataclass
from hloopt.graphs import post_order
from hloopt.ir import Instruction
from hloopt.ops.traits import ALL, CONSTRAINTS, ELEMENTWISE, op_table
from hloopt.types import ArrayShape

__all__ = [
    "NOTHING",
    "Band",
    "Box",
    "CountedIndices",
    "DimPair",
    "HotIndex",
    "Matrices",
    "MatrixProperties",
    "ViewedDims",
    "view_of",
]

_MOST_DIMS: Final = 8


@dataclass
class Matrices:
    """Answers about the instructions of a module; ``values`` has the numbers in them."""

    values: Values = field(default_factory=Values)
    known: dict[Instruction, MatrixProperties] = field(default_factory=dict)

    def of(self, instruction: Instruction) -> MatrixProperties:
        """What is known of the result of an instruction."""
        found = self.known.get(instruction)
        if found is not None:
            return found
        for one in post_order((instruction,), _sources, self.known):
            self.known[one] = self._find(one)
        return self.known[instruction]

    def _find(self, value: Instruction) -> MatrixProperties:
        shape = value.shape
        if not isinstance(shape, ArrayShape) or not shape.dtype.is_array or shape.is_dynamic:
            return NOTHING
        if not value.is_understood or len(shape.dims) > _MOST_DIMS:
            return NOTHING
        if any(operand.shape.is_dynamic for operand in value.operands):
            return NOTHING
        rule = _RULES.get(value.opcode)
        found = NOTHING if rule is None else rule(self, value)
        return NOTHING if found == NOTHING else found.within(shape.dims)


def _sources(value: Instruction) -> tuple[Instruction, ...]:
    """What the properties of a value are made of."""
    if value.opcode == "get-tuple-element":
        (whole,) = value.operands
        if whole.opcode == "tuple":
            return (whole.operands[value.tuple_index],)
        return whole.operands if whole.opcode == "custom-call" else ()
    if value.opcode == "call":
        return (value.to_apply.root,)
    return value.operands if value.opcode in _RULES else ()


def _constant(_: Matrices, value: Instruction) -> MatrixProperties:
    array = value.constant_array
    if array is None or not holds_zeros(value.array.dtype):
        return NOTHING
    found = of_constant(array)
    if value.array.dtype.is_integer and array.size and len(found.constant) == array.ndim:
        number = int(array.reshape(-1)[0])
        return replace(found, affine=CountedIndices(number, {}))
    return found


def _iota(_: Matrices, value: Instruction) -> MatrixProperties:
    dims = frozenset(range(value.array.rank)) - {value.iota_dimension}
    return MatrixProperties(constant=dims, affine=affine_of(value, (), None))


def _slice(matrices: Matrices, value: Instruction) -> MatrixProperties:
    return moves.sliced(value, matrices.of(value.operands[0]), value.attributes["slice"])


def _dynamic_slice(matrices: Matrices, value: Instruction) -> MatrixProperties:
    return moves.sliced(value, matrices.of(value.operands[0]), [None] * value.array.rank)


def _element(matrices: Matrices, value: Instruction) -> MatrixProperties:
    (whole,) = value.operands
    if whole.opcode == "tuple":
        return matrices.of(whole.operands[value.tuple_index])
    if whole.opcode == "custom-call":
        return factors.called(whole, value.tuple_index, matrices.of)
    return NOTHING


def _reduce(matrices: Matrices, value: Instruction) -> MatrixProperties:
    """A sum from zero."""
    root = value.to_apply.root
    operands = {operand.opcode for operand in root.operands}
    if len(value.operands) != 2 or root.opcode != "add" or operands != {"parameter"}:
        return NOTHING
    start = matrices.of(value.operands[1])
    is_sum = root.operands[0] is not root.operands[1] and start.boxes == () and start.is_clean
    return contractions.summed(value, matrices.of) if is_sum else NOTHING


_Rule: TypeAlias = Callable[[Matrices, Instruction], MatrixProperties]
_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        **dict.fromkeys(ELEMENTWISE, lambda m, value: elementwise(value, m.of, m.values)),
        **dict.fromkeys(CONSTRAINTS, lambda m, value: m.of(value.operands[0])),
        "broadcast": lambda m, value: moves.broadcast(value, m.of(value.operands[0])),
        "call": lambda m, value: m.of(value.to_apply.root),
        "cholesky": lambda _, value: factors.cholesky(value),
        "concatenate": lambda m, value: moves.concatenated(
            value, [m.of(one) for one in value.operands]
        ),
        "constant": _constant,
        "custom-call": lambda m, value: factors.called(value, 0, m.of),
        "dot": lambda m, value: contractions.dotted(value, m.of, m.values),
        "dynamic-slice": _dynamic_slice,
        "get-tuple-element": _element,
        "iota": _iota,
        "pad": lambda m, value: moves.padded(value, *(m.of(one) for one in value.operands)),
        "reduce": _reduce,
        "reshape": lambda m, value: moves.reshaped(value, m.of),
        "reverse": lambda m, value: moves.reversed_(value, m.of(value.operands[0])),
        "slice": _slice,
        "transpose": lambda m, value: moves.transposed(value, m.of(value.operands[0])),
        "triangular-solve": lambda m, value: factors.triangular_solved(value, m.of),
    },
    ALL,
    "says nothing of matrices",
)

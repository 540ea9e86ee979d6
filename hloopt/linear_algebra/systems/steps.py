"""The linear maps that solving a system consists of: each acts on one index of a matrix, for all columns alike.

A map is read from an instruction, and written for other columns, as it is or transposed: a triangular system
(``triangular-solve``, and LAPACK's ``trsm`` that JAX calls on CPUs), the rows in another order, another sign.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.interpret.lapack import CHECKS, call_options
from hloopt.ir import Instruction
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, row_major
from hloopt.types import ArrayShape, Verbatim

__all__ = ["IndexLabel", "Negation", "RowOrder", "SolveStep", "Triangle", "triangle_of"]

IndexLabel: TypeAlias = int
"""Stands for an index of more than one value; dimensions of one element have none."""

_TRSM: Final = re.compile(r"lapack_[sdcz]trsm_ffi")
_TRANSPOSES: Final = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
_FLIPPED: Final = {"NO_TRANSPOSE": "TRANSPOSE", "TRANSPOSE": "NO_TRANSPOSE"}


class SolveStep(Protocol):
    """One of the maps; ``can_transpose`` says whether the transposed one can be written."""

    @property
    def can_transpose(self) -> bool:
        """Whether ``apply`` takes ``transposed``."""

    def apply(self, site: Site, columns: Instruction, *, transposed: bool) -> Instruction:
        """The map of [batch, n, m] columns."""


@dataclass(frozen=True, slots=True)
class Negation:
    """All elements with the other sign."""

    can_transpose: bool = True

    def apply(self, site: Site, columns: Instruction, *, transposed: bool) -> Instruction:
        """The same whichever way."""
        return site.make("negate", columns, shape=columns.array)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The rows at ``indices`` [batch, n], or, of one order for the whole batch, [n]; sizes of 1 do not count.

    If ``is_turned``, each row is added to the one at its index, which is the transposed map.
    """

    indices: Instruction
    is_turned: bool = False
    can_transpose: bool = True

    def apply(self, site: Site, columns: Instruction, *, transposed: bool) -> Instruction:
        """A gather of rows, or a scatter that adds rows."""
        adds = transposed is not self.is_turned
        rank = columns.array.rank
        row = rank - 2
        shape = self.indices.array
        long = tuple(size for size in shape.dims if size > 1)
        indices = site.reshape(self.indices, row_major(shape, long))
        if adds:
            # A gather reads the nearest row where an index is none.
            least, most = (site.splat(indices.array, at) for at in (0, long[-1] - 1))
            indices = site.make("clamp", least, indices, most, shape=indices.array)
        batch = tuple(range(indices.array.rank - 1))
        window = tuple(dim for dim in range(rank) if dim != row and dim not in batch)
        if adds:
            return self._added(site, columns, indices, batch, window)
        sizes = tuple(
            1 if dim == row or dim in batch else size for dim, size in enumerate(columns.array.dims)
        )
        batching = (
            {"operand_batching_dims": batch, "start_indices_batching_dims": batch} if batch else {}
        )
        return site.make(
            "gather",
            columns,
            indices,
            shape=row_major(columns.array, columns.array.dims),
            offset_dims=window,
            collapsed_slice_dims=(row,),
            start_index_map=(row,),
            index_vector_dim=indices.array.rank,
            slice_sizes=sizes,
            **batching,
        )

    def _added(
        self,
        site: Site,
        columns: Instruction,
        indices: Instruction,
        batch: tuple[int, ...],
        window: tuple[int, ...],
    ) -> Instruction:
        shape = row_major(columns.array, columns.array.dims)
        row = columns.array.rank - 2
        batching = (
            {"input_batching_dims": batch, "scatter_indices_batching_dims": batch} if batch else {}
        )
        return site.make(
            "scatter",
            site.splat(shape, 0),
            indices,
            columns,
            shape=shape,
            update_window_dims=window,
            inserted_window_dims=(row,),
            scatter_dims_to_operand_dims=(row,),
            index_vector_dim=indices.array.rank,
            to_apply=combiner_computation(columns.module, "add", shape.dtype.name),
            **batching,
        )


@dataclass(frozen=True, slots=True)
class Triangle:
    """The solution of a triangular system, by the instruction ``solve``."""

    solve: Instruction
    left_side: bool
    transpose: str

    @property
    def can_transpose(self) -> bool:
        """Of an adjoint the conjugate would be left."""
        return self.transpose in _FLIPPED or not self.solve.array.dtype.is_complex

    @property
    def rows(self) -> int:
        """Of the triangle."""
        return self.solve.operands[0].array.dims[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        """Sizes of the leading dimensions."""
        return self.solve.array.dims[:-2]

    def apply(self, site: Site, columns: Instruction, *, transposed: bool) -> Instruction:
        """The same solve of other right sides, of the triangle or of its transpose."""
        given = columns.array.dims
        shape = (*self.batch, *given[-2:])
        value = site.reshape(columns, row_major(columns.array, shape))
        if not self.left_side:
            value = _turned(site, value)
        word = self.transpose
        if transposed:
            word = _FLIPPED.get(word, "NO_TRANSPOSE")
        value = self._solved(site, value, word)
        if not self.left_side:
            value = _turned(site, value)
        return site.reshape(value, row_major(value.array, given))

    def _solved(self, site: Site, right: Instruction, word: str) -> Instruction:
        solve = self.solve
        shape = replace(solve.array, dims=right.array.dims)
        attributes: dict[str, Any] = dict(solve.attributes)
        # What it says of sizes is of the others.
        attributes.pop("frontend_attributes", None)
        attributes.pop("sharding", None)
        if solve.opcode == "triangular-solve":
            attributes["transpose_a"] = word
        else:
            letter = next(key for key, value in _TRANSPOSES.items() if value == word)
            text = re.sub(
                r"(trans_x\s*=\s*)\d+", rf"\g<1>{ord(letter)}", str(attributes["backend_config"])
            )
            attributes["backend_config"] = Verbatim(text)
            constraints = attributes.get("operand_layout_constraints")
            if constraints is not None:
                matrix, columns = constraints
                columns = replace(columns, dims=right.array.dims)
                attributes["operand_layout_constraints"] = (matrix, columns)
        return site.make(solve.opcode, solve.operands[0], right, shape=shape, **attributes)


def _turned(site: Site, value: Instruction) -> Instruction:
    rank = value.array.rank
    return site.transpose(value, (*range(rank - 2), rank - 1, rank - 2))


def triangle_of(solve: Instruction) -> Triangle | None:
    """The triangular system that an instruction solves; None for any other instruction."""
    if solve.opcode == "triangular-solve":
        options = solve.attributes
        word = str(options.get("transpose_a"))
        if word not in _TRANSPOSES.values():
            return None
        found = Triangle(solve, bool(options.get("left_side")), word)
    elif solve.opcode == "custom-call" and _TRSM.fullmatch(solve.custom_call_target):
        if CHECKS[solve.custom_call_target](solve) is not None:
            return None
        letters = {name: chr(code) for name, code in call_options(solve).items()}
        found = Triangle(solve, letters["side"] == "L", _TRANSPOSES[letters["trans_x"]])
    else:
        return None
    return found if _fits(found) else None


def _fits(triangle: Triangle) -> bool:
    shapes = [*(operand.shape for operand in triangle.solve.operands), triangle.solve.shape]
    arrays = [shape for shape in shapes if isinstance(shape, ArrayShape)]
    if len(arrays) != 3 or any(shape.rank < 2 or shape.is_dynamic for shape in arrays):
        return False
    matrix, right, result = arrays
    side = right.dims[-2] if triangle.left_side else right.dims[-1]
    return (
        right.dims == result.dims
        and matrix.dims == (*right.dims[:-2], side, side)
        and matrix.dtype is right.dtype is result.dtype
    )

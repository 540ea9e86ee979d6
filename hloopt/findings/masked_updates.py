"""Updates of a part of an array as a selection by position, which reads and writes all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.numbers import byte_size
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Dims

__all__ = ["selects"]

_LEAST: Final = 1 << 16
"""Bytes of an array that is worth a word."""


@dataclass(frozen=True)
class _MaskedUpdate:
    """``where(iota == index, update, array)``: ``index`` is a scalar, the update the same along ``dim``.

    ``update`` has all dimensions but that one, with the places ``dims`` of them, or is a scalar.
    """

    array: Instruction
    update: Instruction
    dims: Dims
    dim: int
    index: Instruction


def selects(subject: Subject) -> Iterator[FindingCandidate]:
    """Selections of what is at one computed place along a dimension."""
    for select in sites(subject.module, "select"):
        found = _update(select)
        if found is None or select.shape.byte_size < _LEAST:
            continue
        size = select.array.dims[found.dim]
        yield FindingCandidate(
            (select,),
            f"%{select.name} changes %{found.array.name} where its dimension {found.dim} is "
            f"%{found.index.name}, "
            f"one place of {size:,}, and reads and writes all {byte_size(select.shape.byte_size)} for it. An "
            "update in place writes that part alone, where the array is donated or carried by a loop.",
            (
                FindingRemedy(
                    "model",
                    "jax.lax.dynamic_update_index_in_dim(x, value, i, axis), or x.at[..., i].set(value), for "
                    "jnp.where(jnp.arange(n) == i, value, x); an index outside of the array is moved to its "
                    "end by the first and dropped by the other two",
                ),
            ),
            _in_place,
            (found.array,),
            narrows=True,
        )


def _update(select: Instruction) -> _MaskedUpdate | None:
    if not select.is_array or select.array.is_dynamic:
        return None
    where, update, array = select.operands
    place = _one_place(where)
    if place is None or where.array.dims != select.array.dims:
        return None
    dim, index = place
    dims: Dims = ()
    if update.opcode == "broadcast":
        update, dims = update.operands[0], update.dimensions
    if dim in dims or (update.array.rank and not dims) or splat_literal(array) is not None:
        return None
    return _MaskedUpdate(array, update, dims, dim, index)


def _one_place(where: Instruction) -> tuple[int, Instruction] | None:
    """The dimension along which a mask is true at one place alone, and the scalar that says at which."""
    dims: Dims = tuple(range(where.array.rank))
    if where.opcode == "broadcast":
        where, dims = where.operands[0], where.dimensions
    if where.opcode != "compare" or where.attributes["direction"] != "EQ":
        return None
    for one, other in (where.operands, where.operands[::-1]):
        counted = _counted_dim(one)
        if counted is None or other.opcode != "broadcast" or other.operands[0].array.rank:
            continue
        index = other.operands[0]
        if index.array.dtype.is_integer and index.literal is None:
            return dims[counted], index
    return None


def _counted_dim(value: Instruction) -> int | None:
    """The dimension along which a value counts from 0."""
    if value.opcode == "iota":
        return int(value.attributes["iota_dimension"])
    if value.opcode == "broadcast" and value.operands[0].opcode == "iota":
        return value.dimensions[int(value.operands[0].attributes["iota_dimension"])]
    return None


def _in_place(module: Module, places: Sequence[Instruction]) -> bool:
    """Write what is chosen there, and nothing else."""
    select = places[0]
    found = _update(select)
    if found is None:
        return False
    site, shape = Site(select), select.array
    dims = tuple(1 if dim == found.dim else size for dim, size in enumerate(shape.dims))
    part = site.make("broadcast", found.update, shape=row_major(shape, dims), dimensions=found.dims)
    zero = site.scalar(found.index.array.dtype.name, 0)
    starts = [found.index if dim == found.dim else zero for dim in range(shape.rank)]
    site.replace(site.make("dynamic-update-slice", found.array, part, *starts, shape=select.shape))
    return True

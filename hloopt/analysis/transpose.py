"""Transposes that a tiled kernel through shared memory makes faster (XLA's rules and constants)."""

from __future__ import annotations

from math import prod

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["PackedTile", "TiledTranspose", "normal_form", "packed_tile", "tiled_transpose"]

_BANKS = 32
_MIN_MOVED = 16
_MIN_MOVED_SMALL = 8
_MIN_MOVED_PRODUCT = 8192
_MAX_KEPT_BITS = 64
_MIN_PACKED_ROWS = 10


@dataclass(frozen=True, slots=True)
class PackedTile:
    """What a block of a packed transpose moves.

    vector   elements in 32 bits, the width of a bank of shared memory
    rows     of the result's minor dimension (T2)
    outer    of the dimension before the minor one, where it stays in its place (A), else 1
    columns  of the operand's minor dimension (T1)
    """

    vector: int
    rows: int
    outer: int
    columns: int


@dataclass(frozen=True, slots=True)
class TiledTranspose:
    """A transpose in normal form: dimensions of size 1 dropped, neighbours that stay together merged.

    ``dims`` are the result's; result dimension ``k`` is operand dimension ``permutation[k]``.
    ``shared_bytes`` is the shared memory of one block.
    """

    dims: tuple[int, ...]
    permutation: tuple[int, ...]
    shared_bytes: int

    @property
    def operand_dims(self) -> tuple[int, ...]:
        """The operand's dimensions in normal form."""
        sizes = [0] * len(self.dims)
        for size, source in zip(self.dims, self.permutation, strict=True):
            sizes[source] = size
        return tuple(sizes)


def tiled_transpose(instruction: Instruction) -> TiledTranspose | None:
    """The normal form where a tiled kernel pays, else None (not a transpose, or too small)."""
    if instruction.opcode != "transpose":
        return None
    source, result = instruction.operands[0].array, instruction.array
    if not _row_major(source) or not _row_major(result):
        return None
    dims, permutation = normal_form(result.dims, instruction.dimensions)
    if len(dims) < 2 or 0 in dims:
        return None
    form = TiledTranspose(dims, permutation, 0)
    shared = _shared_bytes(form, result.dtype.bits)
    return TiledTranspose(dims, permutation, shared) if shared else None


def _shared_bytes(form: TiledTranspose, bits: int) -> int:
    """Shared bytes a block needs; 0 where no tiled kernel applies."""
    minor_kept = form.permutation[-1] == len(form.dims) - 1
    if minor_kept:
        width = bits * form.dims[-1]
        shorter = min(form.operand_dims[-2], form.dims[-2])
        if width > _MAX_KEPT_BITS or width * shorter < 8 * _MIN_MOVED:
            return 0
        return -(-_BANKS * (_BANKS + 1) * width // 8)
    if packed_tile(form, bits) is not None:
        return _BANKS * 4 * _BANKS * (32 // bits)
    before, after = form.operand_dims[-1], form.dims[-1]
    large = before >= _MIN_MOVED and after >= _MIN_MOVED
    small = min(before, after) >= _MIN_MOVED_SMALL and before * after >= _MIN_MOVED_PRODUCT
    if bits == 4 or not (large or small):
        return 0
    return -(-_BANKS * (_BANKS + 1) * bits // 8)


def packed_tile(form: TiledTranspose, bits: int) -> PackedTile | None:
    """The tile with which several elements narrower than a bank move at once; None where that cannot be.

    In XLA's words the operand is ``[.., T2, .., A, T1]`` and the result ``[.., T1, .., A, T2]``: T1 is the
    operand's minor dimension and T2 the result's; A is the dimension before both where it stays, else 1.
    """
    rank = len(form.dims)
    if bits >= 32 or rank < 2 or form.permutation[-1] == rank - 1:
        return None
    vector = 32 // bits
    side = _BANKS * vector
    between = form.dims[-2] if rank > 2 and form.permutation[-2] == rank - 2 else 1
    columns = min(form.operand_dims[-1], side)
    outer = min(between, side // columns)
    rows = min(form.dims[-1], side)
    least = _MIN_PACKED_ROWS * vector
    fits = (
        rows >= least
        and outer * columns >= least
        and rows % vector == 0
        and outer * columns % vector == 0
        and form.dims[-1] % rows % vector == 0
    )
    return PackedTile(vector, rows, outer, columns) if fits else None


def normal_form(
    dims: tuple[int, ...], permutation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The result's dimensions and the permutation, without sizes of 1 and with merged neighbours."""
    groups: list[list[int]] = []
    last = None
    rank_of = {
        source: rank
        for rank, source in enumerate(
            sorted(source for at, source in enumerate(permutation) if dims[at] != 1)
        )
    }
    for at, source in enumerate(permutation):
        if dims[at] == 1:
            continue
        if last is not None and rank_of[source] == last + 1:
            groups[-1].append(at)
        else:
            groups.append([at])
        last = rank_of[source]
    starts = [rank_of[permutation[group[0]]] for group in groups]
    order = {start: rank for rank, start in enumerate(sorted(starts))}
    return (
        tuple(prod(dims[at] for at in group) for group in groups),
        tuple(order[start] for start in starts),
    )


def _row_major(shape: ArrayShape) -> bool:
    return shape.layout is None or shape.layout.is_descending

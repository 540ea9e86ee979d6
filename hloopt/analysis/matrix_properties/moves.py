"""What remains true of arrays whose elements are moved: transposed, repeated, cut, put side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, TypeAlias

from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    Band,
    Box,
    CountedIndices,
    DimPair,
    MatrixProperties,
    box_of,
)
from hloopt.analysis.matrix_properties.zeros import EMPTY, band_of, union
from hloopt.ir import Instruction
from hloopt.types import Dims, SliceRange

__all__ = [
    "Lookup",
    "ViewedDims",
    "broadcast",
    "concatenated",
    "is_mirrored",
    "padded",
    "reshaped",
    "reversed_",
    "sliced",
    "transposed",
    "view_of",
]

Lookup: TypeAlias = Callable[[Instruction], MatrixProperties]
ViewedDims: TypeAlias = tuple[int | None, ...]
"""Which dimension of a source each one of a value is; None where the value is the same along it."""
_MOST_PIECES: Final = 64
_MOST_VIEWS: Final = 8


def view_of(value: Instruction) -> tuple[Instruction, ViewedDims]:
    """What a value is made of by transposing and repeating."""
    order: ViewedDims = tuple(range(value.array.rank))
    for _ in range(_MOST_VIEWS):
        if value.opcode == "transpose":
            source = dict(enumerate(value.dimensions))
        elif value.opcode == "broadcast":
            source = {place: dim for dim, place in enumerate(value.dimensions)}
        elif value.opcode == "copy" and value.is_array:
            source = dict(enumerate(range(value.array.rank)))
        else:
            break
        order = tuple(None if dim is None else source.get(dim) for dim in order)
        value = value.operands[0]
    return value, order


def is_mirrored(value: Instruction, p: int, q: int) -> bool:
    """Whether both operands are the same but for two dimensions that are exchanged."""
    (source, order), (root, others) = map(view_of, value.operands)
    if source is not root:
        return False
    swapped = list(others)
    swapped[p], swapped[q] = swapped[q], swapped[p]
    return order == tuple(swapped)


def transposed(value: Instruction, source: MatrixProperties) -> MatrixProperties:
    """The same with other numbers of dimensions."""
    return source.moved({d: at for at, d in enumerate(value.dimensions)}, value.array.dims)


def broadcast(value: Instruction, source: MatrixProperties) -> MatrixProperties:
    """Constant along the dimensions that are new."""
    places = dict(enumerate(value.dimensions))
    dims, before = value.array.dims, value.operands[0].array.dims
    moved = source.moved(places, dims)
    new = set(range(len(dims))) - set(places.values())
    new |= {at for d, at in places.items() if before[d] == 1}
    symmetric = dict(moved.symmetric) | {
        (p, q): True for p, q in combinations(sorted(new), 2) if dims[p] == dims[q]
    }
    return replace(moved, constant=moved.constant | new, symmetric=symmetric)


def reshaped(value: Instruction, of: Lookup) -> MatrixProperties:
    """What is about dimensions that stay whole, dimensions of one element aside."""
    (operand,) = value.operands
    before, after = operand.array.dims, value.array.dims
    source = of(operand)
    if 0 in before:
        return NOTHING
    groups = list(_groups(before, after))
    kept = {old[0]: new[0] for old, new in groups if len(old) == len(new) == 1}
    constant = {dim for dim, size in enumerate(after) if size == 1}
    constant |= {dim for old, new in groups if source.constant >= set(old) for dim in new}
    found = source.moved(kept, after)
    return replace(
        found,
        constant=found.constant | constant,
        kronecker={**found.kronecker, **_kronecker(operand, groups, of)},
    )


def _groups(before: Dims, after: Dims) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions that are joined or split together, those of one element left out."""
    old = [dim for dim, size in enumerate(before) if size > 1][::-1]
    new = [dim for dim, size in enumerate(after) if size > 1][::-1]
    while old:
        one, other = [old.pop()], [new.pop()]
        left, right = before[one[0]], after[other[0]]
        while left != right:
            if left < right:
                one.append(old.pop())
                left *= before[one[-1]]
            else:
                other.append(new.pop())
                right *= after[other[-1]]
        yield one, other


def _kronecker(
    operand: Instruction, groups: Iterable[tuple[list[int], list[int]]], of: Lookup
) -> dict[DimPair, tuple[int, int]]:
    """``[a, b, c, d]`` joined to ``[a b, c d]``, where one side of a product has a and c, the other b and d."""
    if operand.opcode != "multiply":
        return {}
    joined = [(old, new[0]) for old, new in groups if len(old) == 2 and len(new) == 1]
    one, other = (of(side).constant for side in operand.operands)
    dims = operand.array.dims
    return {
        (row, column): (dims[b], dims[d])
        for ((a, b), row), ((c, d), column) in combinations(joined, 2)
        if ({b, d} <= one and {a, c} <= other) or ({b, d} <= other and {a, c} <= one)
    }


def sliced(
    value: Instruction, source: MatrixProperties, ranges: Sequence[SliceRange | None]
) -> MatrixProperties:
    """Bands are shifted, matrices along the diagonal stay what they are; None is a part not known."""
    before, after = value.operands[0].array.dims, value.array.dims
    same = {dim: dim for dim in range(len(after))}
    moved = source.moved(same, after)
    is_whole = [size == part for size, part in zip(before, after, strict=True)]
    squares = {
        (p, q)
        for p, q in combinations(same, 2)
        if (is_whole[p] and is_whole[q]) or (ranges[p] is not None and ranges[p] == ranges[q])
    }
    bands = _shifted(source.bands, ranges, is_whole)
    trues = _shifted(source.true_bands, ranges, is_whole)
    boxes = source.boxes and tuple(_within(box, ranges, is_whole, after) for box in source.boxes)
    return replace(
        moved,
        bands=bands,
        true_bands=trues,
        boxes=boxes,
        hot={dim: hot if all(is_whole) else None for dim, hot in source.hot.items()},
        units=moved.units & squares,
        symmetric=_only(moved.symmetric, squares),
        definite=_only(moved.definite, squares),
        orthonormal=frozenset((a, b) for a, b in source.orthonormal if is_whole[a]),
        kronecker=moved.kronecker if all(is_whole) else {},
        affine=_cut(source.affine, ranges, is_whole),
    )


def _only(claims: Mapping[DimPair, bool], pairs: Iterable[DimPair]) -> dict[DimPair, bool]:
    return {pair: claims[pair] for pair in pairs if pair in claims}


def _cut(
    affine: CountedIndices | None, ranges: Sequence[SliceRange | None], is_whole: Sequence[bool]
) -> CountedIndices | None:
    if affine is None:
        return None
    offset, factors = affine.offset, dict(affine.factors)
    for dim, by in affine.factors.items():
        part = ranges[dim]
        if is_whole[dim]:
            continue
        if part is None:
            return None
        offset += by * part.start
        factors[dim] = by * part.stride
    return CountedIndices(offset, factors)


def _shifted(
    bands: Mapping[DimPair, Band], ranges: Sequence[SliceRange | None], is_whole: Sequence[bool]
) -> dict[DimPair, Band]:
    found: dict[DimPair, Band] = {}
    for (p, q), (low, high) in bands.items():
        row, column = (SliceRange(0, 1) if is_whole[dim] else ranges[dim] for dim in (p, q))
        if row is None or column is None or row.stride != column.stride:
            continue
        # column' * stride + start - (row' * stride + start) is the diagonal before.
        apart, stride = column.start - row.start, row.stride
        found[p, q] = (-((apart - low) // stride), (high - apart) // stride)
        if low > high:
            found[p, q] = EMPTY
    return found


def _within(
    box: Box, ranges: Sequence[SliceRange | None], is_whole: Sequence[bool], after: Dims
) -> Box:
    found: list[tuple[int, int]] = []
    for (begin, end), part, whole, size in zip(box, ranges, is_whole, after, strict=True):
        if whole:
            found.append((begin, end))
        elif part is None:
            found.append((0, size if begin < end else 0))
        else:
            first = max(0, -((part.start - begin) // part.stride))
            last = (end - 1 - part.start) // part.stride
            found.append((first, max(first, min(last + 1, size))))
    return tuple(found)


def padded(
    value: Instruction, source: MatrixProperties, filled: MatrixProperties
) -> MatrixProperties:
    """Zeros around: the box is where the operand was; with other numbers around nothing is said."""
    before, after = value.operands[0].array.dims, value.array.dims
    dims = value.attributes["padding"]
    if filled.boxes != () or any(dim.interior for dim in dims):
        return NOTHING
    is_whole = [not (dim.low or dim.high) for dim in dims]
    bands = {
        (p, q): (
            EMPTY
            if low > high
            else (low + dims[q].low - dims[p].low, high + dims[q].low - dims[p].low)
        )
        for (p, q), (low, high) in (
            ((p, q), band_of(source, (p, q), before)) for p, q in combinations(range(len(dims)), 2)
        )
    }
    boxes = source.boxes if source.boxes is not None else (box_of(before),)
    moved = tuple(
        tuple(
            (min(max(begin + dim.low, 0), size), min(max(end + dim.low, 0), size))
            for (begin, end), dim, size in zip(box, dims, after, strict=True)
        )
        for box in boxes
    )
    same = {
        (p, q)
        for p, q in combinations(range(len(dims)), 2)
        if (dims[p].low, dims[p].high) == (dims[q].low, dims[q].high)
    }
    grows = any(dim.low > 0 or dim.high > 0 for dim in dims)
    return MatrixProperties(
        bands=bands,
        boxes=moved,
        is_clean=source.is_clean and filled.is_clean,
        constant=frozenset(dim for dim in source.constant if is_whole[dim]),
        hot=dict.fromkeys(source.hot) if filled.is_clean else {},
        symmetric=_only(source.symmetric, same),
        definite={
            pair: claim and not grows for pair, claim in _only(source.definite, same).items()
        },
        ranks=source.ranks,
    )


def concatenated(value: Instruction, pieces: Sequence[MatrixProperties]) -> MatrixProperties:
    """Pieces side by side, each with its own zeros."""
    (along,) = value.dimensions
    dims, at = value.array.dims, 0
    if len(pieces) > _MOST_PIECES:
        return NOTHING
    bands: dict[DimPair, list[Band]] = {}
    boxes: list[Box] = []
    for operand, piece in zip(value.operands, pieces, strict=True):
        own = operand.array.dims
        for box in piece.boxes if piece.boxes is not None else (box_of(own),):
            begin, end = box[along]
            boxes.append((*box[:along], (begin + at, end + at), *box[along + 1 :]))
        for p, q in combinations(range(len(dims)), 2):
            low, high = band_of(piece, (p, q), own)
            if low <= high and 0 not in own:
                shift = at if q == along else -at if p == along else 0
                bands.setdefault((p, q), []).append((low + shift, high + shift))
        at += own[along]
    pairs = combinations(range(len(dims)), 2)
    constants = [piece.constant - {along} for piece in pieces]
    hots = [{dim for dim in piece.hot if dim != along} for piece in pieces]
    return MatrixProperties(
        bands={pair: union(bands.get(pair, ())) for pair in pairs},
        boxes=tuple(boxes),
        is_clean=all(piece.is_clean for piece in pieces),
        constant=frozenset.intersection(*constants),
        hot=dict.fromkeys(set.intersection(*hots)),
    )


def reversed_(value: Instruction, source: MatrixProperties) -> MatrixProperties:
    """Matrices reversed both ways have their diagonals exchanged."""
    dims, turned = value.array.dims, set(value.dimensions)
    bands: dict[DimPair, Band] = {}
    trues: dict[DimPair, Band] = {}
    for found, given in ((bands, source.bands), (trues, source.true_bands)):
        for (p, q), (low, high) in given.items():
            if p in turned and q in turned:
                apart = dims[q] - dims[p]
                found[p, q] = (apart - high, apart - low) if low <= high else EMPTY
            elif p not in turned and q not in turned:
                found[p, q] = (low, high)
    boxes = source.boxes and tuple(
        tuple(
            (size - end, size - begin) if dim in turned else (begin, end)
            for dim, ((begin, end), size) in enumerate(zip(box, dims, strict=True))
        )
        for box in source.boxes
    )
    same = {pair for pair in combinations(range(len(dims)), 2) if len(turned & {*pair}) != 1}
    return replace(
        source,
        bands=bands,
        true_bands=trues,
        boxes=boxes,
        hot=dict.fromkeys(source.hot),
        units=frozenset(
            (p, q) for p, q in source.units & same if dims[p] == dims[q] or not {p, q} & turned
        ),
        symmetric=_only(source.symmetric, same),
        definite=_only(source.definite, same),
        kronecker={},
        affine=None,
    )

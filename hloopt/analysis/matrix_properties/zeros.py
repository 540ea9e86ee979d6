"""Where something is zero that is made of several values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

from hloopt.analysis.matrix_properties.properties import (
    Band,
    Box,
    DimPair,
    MatrixProperties,
    whole_band,
)
from hloopt.types import Dims

__all__ = ["EMPTY", "band_of", "in_all", "in_any", "intersection", "pairs_of", "union"]

EMPTY: Final[Band] = (1, 0)
"""Of what is zero."""
_MOST_PAIRED: Final = 16


def pairs_of(*several: MatrixProperties) -> Iterable[DimPair]:
    """Pairs of which a band is known."""
    return dict.fromkeys(pair for one in several for pair in one.bands)


def band_of(found: MatrixProperties, pair: DimPair, dims: Dims) -> Band:
    """Its band, which may be all."""
    if found.boxes == ():
        return EMPTY
    return found.bands.get(pair, whole_band(dims, pair))


def union(bands: Iterable[Band]) -> Band:
    """The smallest band around all of them."""
    some = [band for band in bands if band[0] <= band[1]]
    return (min(low for low, _ in some), max(high for _, high in some)) if some else EMPTY


def intersection(bands: Iterable[Band]) -> Band:
    """The band within all of them."""
    some = list(bands)
    return max(low for low, _ in some), min(high for _, high in some)


def in_all(dims: Dims, *several: MatrixProperties) -> MatrixProperties:
    """Zero where all of them are."""
    bands = {
        pair: union(band_of(one, pair, dims) for one in several) for pair in pairs_of(*several)
    }
    boxes: tuple[Box, ...] | None = ()
    for one in several:
        boxes = None if boxes is None or one.boxes is None else boxes + one.boxes
    is_clean = all(one.is_clean for one in several)
    return MatrixProperties(bands=bands, boxes=boxes, is_clean=is_clean)


def in_any(dims: Dims, *several: MatrixProperties) -> MatrixProperties:
    """Zero where any of them is."""
    bands = {
        pair: intersection(band_of(one, pair, dims) for one in several)
        for pair in pairs_of(*several)
    }
    known = [one.boxes for one in several if one.boxes is not None]
    boxes: tuple[Box, ...] | None = known[0] if known else None
    for others in known[1:]:
        assert boxes is not None, "the first is one"
        if len(boxes) * len(others) > _MOST_PAIRED:
            break
        boxes = tuple(_common(one, other) for one, other in product(boxes, others))
    is_clean = all(one.is_clean for one in several)
    return MatrixProperties(bands=bands, boxes=boxes, is_clean=is_clean)


def _common(one: Box, other: Box) -> Box:
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))

"""Distances of all pairs of points, written as differences that are squared and summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.summed_products import (
    SummedProduct,
    contraction,
    dot_of,
    sizes,
    summed_value,
)
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Verbatim

__all__ = ["pairwise"]

_PRECISION: Final = Verbatim("{highest,highest}")
"""Squares that nearly cancel need all digits of the product."""


def pairwise(subject: Subject) -> Iterator[FindingCandidate]:
    """Sums of squared differences of each two rows of two arrays."""
    for total in sites(subject.module, "reduce"):
        found = _distances(total)
        if found is None:
            continue
        square = summed_value(total)
        difference = square.operands[0]
        rows, columns, depth, batch = sizes(found, square)
        times = f"{batch:,} times " if batch > 1 else ""
        yield FindingCandidate(
            (total, square, difference),
            f"%{total.name} sums the squares of %{difference.name}: {times}all pairs of {rows:,} and "
            f"{columns:,} "
            f"rows, {depth:,} differences each. As |x|^2 + |y|^2 - 2 x.y nearly all of it is a matrix product, "
            "whose kernel keeps tiles of both. Rows that are nearly equal lose digits in it.",
            (
                FindingRemedy(
                    "model",
                    "jnp.maximum((x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * jnp.matmul(x, y.T, "
                    "precision='highest'), 0)",
                ),
            ),
            _expanded,
            (difference,),
        )


def _distances(total: Instruction) -> SummedProduct | None:
    """The product of a sum of squared differences; its factors are what is subtracted."""
    square = summed_value(total)
    if square.opcode != "multiply" or square.operands[0] is not square.operands[1]:
        return None
    difference = square.operands[0]
    if difference.opcode != "subtract" or difference.array.dtype.bits < 32:
        return None
    return contraction(total, difference.operands)


def _expanded(module: Module, places: Sequence[Instruction]) -> bool:
    """Replace the sum by those of both squares, less twice the product, and by 0 where that is below."""
    total = places[0]
    found = _distances(total)
    if found is None:
        return False
    site = Site(total)
    kept = [dim for dim in range(summed_value(total).array.rank) if dim not in found.summed]
    squares = [
        _squares(site, total, factor, own, found, kept)
        for factor, own in zip(found.factors, (found.lhs, found.rhs), strict=True)
    ]
    product = dot_of(site, found, total, _PRECISION)
    twice = site.make("multiply", product, site.splat(total.array, 2), shape=total.shape)
    both = site.make("add", *squares, shape=total.shape)
    less = site.make("subtract", both, twice, shape=total.shape)
    site.replace(site.make("maximum", less, site.splat(total.array, 0), shape=total.shape))
    return True


def _squares(
    site: Site,
    total: Instruction,
    factor: Instruction,
    own: dict[int, int],
    found: SummedProduct,
    kept: Sequence[int],
) -> Instruction:
    """The sum of a factor's squares, for each element of the result."""
    square = site.make("multiply", factor, factor)
    summed = tuple(sorted(own[dim] for dim in found.summed))
    rest = [dim for dim in range(factor.array.rank) if dim not in summed]
    shape = row_major(total.array, tuple(factor.array.dims[dim] for dim in rest))
    made = site.make(
        "reduce", square, total.operands[1], shape=shape, dimensions=summed, to_apply=total.to_apply
    )
    back = {place: dim for dim, place in own.items()}
    places = tuple(kept.index(back[dim]) for dim in rest)
    return _spread(site, made, places, total)


def _spread(
    site: Site, made: Instruction, places: tuple[int, ...], total: Instruction
) -> Instruction:
    """Repeated along the dimensions that it lacks; those that it has become rising ones."""
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    return site.make(
        "broadcast",
        site.transpose(made, order),
        shape=total.shape,
        dimensions=tuple(sorted(places)),
    )

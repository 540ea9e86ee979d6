"""Matrix products that a program writes as broadcast, multiply and sum: no element is kept to be used again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.regions import named_combiner
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Verbatim

__all__ = ["SummedProduct", "contraction", "dot_of", "sizes", "summed", "summed_value"]

_LEAST: Final = 8
"""The shortest side that is worth a dot: a step of a matrix unit has 8 columns or more (PTX ISA, mma.m16n8k8),
as native's own products have; what is shorter is often quicker as a sum."""


@dataclass(frozen=True)
class SummedProduct:
    """A sum of products as a dot: the factors, and which dimension of each is which one of the product.

    ``lhs`` and ``rhs`` map dimensions of the product to those of the factors; the others of the product are
    ``batch`` (of both factors), ``left`` and ``right`` (of one), and ``summed``.
    """

    factors: tuple[Instruction, Instruction]
    lhs: dict[int, int]
    rhs: dict[int, int]
    batch: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    summed: tuple[int, ...]


def summed(subject: Subject) -> Iterator[FindingCandidate]:
    """Sums of products of which each factor is repeated along a dimension that the other one has."""
    for total in sites(subject.module, "reduce"):
        found = _contraction(total)
        if found is None:
            continue
        product = summed_value(total)
        rows, columns, depth, batch = sizes(found, product)
        times = f"{batch:,} matrix products" if batch > 1 else "a matrix product"
        yield FindingCandidate(
            (total, product),
            f"%{total.name} sums %{product.name}, a product of repeated factors: it is {times} of M={rows:,}, "
            f"N={columns:,}, K={depth:,}, whose kernel as a sum reads each element of a factor again for every "
            "result instead of keeping tiles of both.",
            (
                FindingRemedy(
                    "model",
                    "write it as a @ b or jnp.einsum (on GPUs f32 factors are rounded to TF32 unless "
                    "precision='highest')",
                ),
            ),
            _as_dot,
            (product,),
        )


def sizes(found: SummedProduct, product: Instruction) -> tuple[int, int, int, int]:
    """Rows, columns, depth and number of the products."""
    dims = product.array.dims
    rows, columns, depth, batch = (
        prod(dims[dim] for dim in group)
        for group in (found.left, found.right, found.summed, found.batch)
    )
    return rows, columns, depth, batch


def summed_value(total: Instruction) -> Instruction:
    """What is summed, before it is widened."""
    value = total.operands[0]
    return value.operands[0] if value.opcode == "convert" else value


def _contraction(total: Instruction) -> SummedProduct | None:
    """The dot that a sum is, where each factor has a dimension of its own and no side is short."""
    product = summed_value(total)
    return contraction(total, product.operands) if product.opcode == "multiply" else None


def contraction(total: Instruction, factors: Sequence[Instruction]) -> SummedProduct | None:
    """The dot that a sum of products of these factors is; None where there is none, or it is short."""
    if len(total.operands) != 2 or named_combiner(total.to_apply) != "add":
        return None
    product, start = summed_value(total), total.operands[1]
    dtype = total.array.dtype
    if not (dtype.is_float and product.array.dtype.is_float):
        return None
    literal = splat_literal(start)
    if literal is None or literal.array is None or literal.array.any() or dtype.bits < 32:
        return None
    (lhs, here), (rhs, there) = (_factor(factor) for factor in factors)
    summed_dims = tuple(total.dimensions)
    kept = [dim for dim in range(product.array.rank) if dim not in summed_dims]
    if not all(dim in here and dim in there for dim in summed_dims):
        return None
    batch = tuple(dim for dim in kept if dim in here and dim in there)
    left = tuple(dim for dim in kept if dim in here and dim not in there)
    right = tuple(dim for dim in kept if dim in there and dim not in here)
    dims = product.array.dims
    if len(batch) + len(left) + len(right) < len(kept):
        return None
    if any(prod(dims[dim] for dim in group) < _LEAST for group in (left, right, summed_dims)):
        return None
    return SummedProduct((lhs, rhs), here, there, batch, left, right, summed_dims)


def _factor(value: Instruction) -> tuple[Instruction, dict[int, int]]:
    """What is repeated, and which of its dimensions is which one of the value."""
    if value.opcode == "broadcast":
        return value.operands[0], {dim: at for at, dim in enumerate(value.dimensions)}
    return value, {dim: dim for dim in range(value.array.rank)}


def _as_dot(module: Module, places: Sequence[Instruction]) -> bool:
    """Replace the sum by a dot in the type of the sum, in the order of its dimensions."""
    total = places[0]
    found = _contraction(total)
    if found is None:
        return False
    site = Site(total)
    site.replace(dot_of(site, found, total))
    return True


def dot_of(
    site: Site, found: SummedProduct, total: Instruction, precision: Verbatim | None = None
) -> Instruction:
    """The dot, in the type of the sum and in the order of its dimensions."""
    order = (*found.batch, *found.left, *found.right)
    dims = summed_value(total).array.dims
    dot = site.make(
        "dot",
        *found.factors,
        shape=row_major(total.array, tuple(dims[dim] for dim in order)),
        lhs_batch_dims=tuple(found.lhs[dim] for dim in found.batch),
        rhs_batch_dims=tuple(found.rhs[dim] for dim in found.batch),
        lhs_contracting_dims=tuple(found.lhs[dim] for dim in found.summed),
        rhs_contracting_dims=tuple(found.rhs[dim] for dim in found.summed),
        **({"operand_precision": precision} if precision else {}),
    )
    return site.transpose(dot, tuple(order.index(dim) for dim in sorted(order)))

"""Products of which one factor repeats the same matrices: fewer and larger products do with one of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.numbers import byte_size
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Dims, DotDims

__all__ = ["products"]

_LEAST: Final = 1 << 16
"""Bytes of a repeated factor that is worth a word."""


@dataclass(frozen=True)
class _Repetition:
    """The factor ``side`` of a dot, the same for ``times`` neighbours along the batch dimension ``batch``.

    steps      transpositions and conversions between the factor and ``shaped``, the last one first
    shaped     a broadcast, or the reshape of one, of which ``at`` is the dimension that repeats
    broadcast  of the ``source``; ``new`` is its dimension that the source lacks
    outer      whether all of the source comes before it is repeated
    """

    side: int
    batch: int
    times: int
    steps: tuple[Instruction, ...]
    shaped: Instruction
    at: int
    broadcast: Instruction
    new: int
    outer: bool

    @property
    def source(self) -> Instruction:
        return self.broadcast.operands[0]


def products(subject: Subject) -> Iterator[FindingCandidate]:
    """Dots that multiply the same matrix with several others, as many products."""
    if is_planned(subject.module):
        return
    for dot in sites(subject.module, "dot"):
        found = _repetition(dot)
        if found is None or dot.operands[found.side].shape.byte_size < _LEAST:
            continue
        factor, source = dot.operands[found.side], found.source
        yield FindingCandidate(
            (dot,),
            f"%{factor.name}, a factor of %{dot.name}, has each matrix of %{source.name} {found.times} times: "
            f"{byte_size(factor.shape.byte_size)} instead of {byte_size(source.shape.byte_size)}. The "
            "products of "
            "one such matrix are one product with all their rows.",
            (
                FindingRemedy(
                    "model",
                    "give the other factor a dimension for the repetitions instead, without jnp.repeat: of "
                    "attention q.reshape(b, t, groups, heads // groups, d) and "
                    "jnp.einsum('btgrd,bsgd->bgrts', q, k); jax.nn.dot_product_attention takes fewer "
                    "heads of k "
                    "and v as they are",
                ),
            ),
            _grouped,
            (factor,),
        )


def _repetition(dot: Instruction) -> _Repetition | None:
    dims = DotDims.of(dot.attributes)
    for side, own in enumerate((dims.lhs_batch, dims.rhs_batch)):
        for batch, dim in enumerate(own):
            found = _repeated(dot.operands[side], side, batch, dim)
            if found is not None:
                return found
    return None


def _repeated(factor: Instruction, side: int, batch: int, dim: int) -> _Repetition | None:
    steps, value = [], factor
    while value.opcode in ("transpose", "convert"):
        steps.append(value)
        dim = value.dimensions[dim] if value.opcode == "transpose" else dim
        value = value.operands[0]
    base = value.operands[0] if value.opcode == "reshape" else value
    if base.opcode != "broadcast" or not base.operands[0].array.rank:
        return None
    group = _group(base.array.dims, value.array.dims, dim)
    wide = [one for one in group if base.array.dims[one] > 1]
    new = [one for one in wide if one not in base.dimensions]
    if len(new) != 1 or new[0] not in (wide[0], wide[-1]):
        return None
    times, outer = base.array.dims[new[0]], new[0] == wide[-1]
    return _Repetition(side, batch, times, tuple(steps), value, dim, base, new[0], outer)


def _group(inner: Dims, outer: Dims, dim: int) -> range:
    """The neighbouring dimensions that a reshape merges into one; empty where it merges none."""
    before, size = prod(outer[:dim]), outer[dim]
    for start in range(len(inner)):
        if prod(inner[:start]) == before:
            for end in range(start + 1, len(inner) + 1):
                if prod(inner[start:end]) == size and prod(inner[end:]) == prod(outer[dim + 1 :]):
                    return range(start, end)
    return range(0)


def _grouped(module: Module, places: Sequence[Instruction]) -> bool:
    """One product for all repetitions, whose dimension is one of the other factor's rows."""
    dot = places[0]
    found = _repetition(dot)
    if found is None:
        return False
    site, dims = Site(dot), DotDims.of(dot.attributes)
    batch = [list(dims.lhs_batch), list(dims.rhs_batch)]
    contracting = [list(dims.lhs_contracting), list(dims.rhs_contracting)]
    other = 1 - found.side
    split = batch[other][found.batch]
    # Of the other factor's dimension become two: one of the source's matrices, one of their repetitions.
    kept, repeated = (split, split + 1) if found.outer else (split + 1, split)
    factors = list(dot.operands)
    factors[found.side] = _without(site, found)
    sizes = list(factors[other].array.dims)
    pair = [sizes[split] // found.times, found.times]
    sizes[split : split + 1] = pair if found.outer else pair[::-1]
    factors[other] = site.reshape(factors[other], row_major(factors[other].array, tuple(sizes)))

    def moved(dim: int) -> int:
        return dim + (dim > split)

    ranks = [one.array.rank for one in dot.operands]
    free = [
        [dim for dim in range(ranks[side]) if dim not in (*batch[side], *contracting[side])]
        for side in (0, 1)
    ]
    batch[other] = [kept if dim == split else moved(dim) for dim in batch[other]]
    contracting[other] = [moved(dim) for dim in contracting[other]]
    free[other] = [moved(dim) for dim in free[other]]
    labels = [(2, number) for number in range(len(batch[0]))]
    more = sorted([*free[other], repeated])
    rows = [[(side, dim) for dim in (more if side == other else free[side])] for side in (0, 1)]
    made = [*labels, *rows[0], *rows[1]]
    both = [(2, found.batch), (other, repeated)]
    wanted = [*labels]
    wanted[found.batch : found.batch + 1] = both if found.outer else both[::-1]
    wanted += [(side, dim) for side in (0, 1) for dim in free[side]]
    length = {(2, n): factors[0].array.dims[dim] for n, dim in enumerate(batch[0])}
    length |= {(side, dim): factors[side].array.dims[dim] for side, dim in [*rows[0], *rows[1]]}
    attributes = {
        **dot.attributes,
        "lhs_batch_dims": tuple(batch[0]),
        "rhs_batch_dims": tuple(batch[1]),
        "lhs_contracting_dims": tuple(contracting[0]),
        "rhs_contracting_dims": tuple(contracting[1]),
    }
    shape = row_major(dot.array, tuple(length[label] for label in made))
    product = site.make("dot", *factors, shape=shape, **attributes)
    turned = site.transpose(product, tuple(made.index(label) for label in wanted))
    site.replace(site.reshape(turned, dot.array))
    return True


def _without(site: Site, found: _Repetition) -> Instruction:
    """The factor with each matrix once."""
    base, source = found.broadcast, found.source
    dims = tuple(size for dim, size in enumerate(base.array.dims) if dim != found.new)
    places = tuple(dim - (dim > found.new) for dim in base.dimensions)
    value = source
    if places != tuple(range(len(dims))):
        value = site.make("broadcast", source, shape=row_major(base.array, dims), dimensions=places)
    sizes = list(found.shaped.array.dims)
    sizes[found.at] //= found.times
    value = site.reshape(value, row_major(base.array, tuple(sizes)))
    for step in reversed(found.steps):
        if step.opcode == "transpose":
            value = site.transpose(value, step.dimensions)
        else:
            value = site.make("convert", value, shape=row_major(step.array, value.array.dims))
    return value

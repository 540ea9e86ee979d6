"""Sums over products with a one-hot matrix: one element of each is picked, and all are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloopt.findings.chosen import ChosenPlaces, chosen
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.linear_algebra.masks import is_summing
from hloopt.passes.expand.writer import Term, Writer
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.site import sites
from hloopt.types import array

__all__ = ["picking"]


def picking(subject: Subject) -> Iterator[FindingCandidate]:
    """Sums along a dimension in which all but one element of each row are zero."""
    if is_planned(subject.module):
        return
    for root in sites(subject.module, "reduce"):
        found = _picked_from(root)
        if found is None:
            continue
        along, places = found
        summed = root.operands[0]
        yield FindingCandidate(
            (root,),
            f"%{root.name} adds up {summed.array.dims[along]:,} elements of %{summed.name} at a time, of which "
            f"all but one are zero (%{places.indices.name} is its index), and what is multiplied is computed "
            "for all of them.",
            (
                FindingRemedy(
                    "model",
                    "pick the element: jnp.take_along_axis(x, ids[..., None], axis=-1)[..., 0] for "
                    "(one_hot(ids, n) * x).sum(-1)",
                ),
            ),
            _pick,
            (places.indices,),
        )


def _picked_from(root: Instruction) -> tuple[int, ChosenPlaces] | None:
    """The dimension along which one element is not zero, and what says which."""
    if not is_summing(root) or root.operands[0].opcode not in ("multiply", "select"):
        return None
    summed = root.operands[0]
    for along in root.dimensions:
        places = chosen(summed, along)
        if places is None or summed.array.dims[along] == 1:
            continue
        if all(dim >= 0 for dim in places.dims) and list(places.dims) == sorted(places.dims):
            return along, places
    return None


def _pick(module: Module, sites: Sequence[Instruction]) -> bool:
    for root in sites:
        found = _picked_from(root)
        if found is None:
            return False
        along, places = found
        write = Writer.before(root)
        picked = _gathered(write, write.term(root.operands[0]), along, places)
        left = tuple(dim - (dim > along) for dim in root.dimensions if dim != along)
        start = write.term(root.operands[1])
        write.replace(root, picked.reduce("add", start, *left))
    parse_pipeline("dce").run(module)
    return True


def _gathered(write: Writer, source: Term, along: int, places: ChosenPlaces) -> Term:
    """The source without a dimension: at each place of the others the element that the indices name."""
    dims = [size for dim, size in enumerate(source.dims) if dim != along]
    number = write.term(places.indices)
    kept = tuple(dim - (dim > along) for dim in places.dims)
    batch = [dims[dim] for dim in kept]
    column = number.reshape(*batch, 1)
    rows = [write.iota(array(number.dtype, (*batch, 1)), at) for at in range(len(batch))]
    indices = write.concatenate(len(batch), *rows, column)
    rest = [dim for dim in range(len(source.dims)) if dim != along and dim not in places.dims]
    # Dimensions that the indices do not have come last in what is gathered.
    gathered = write.make(
        "gather",
        source,
        indices,
        shape=array(source.dtype, (*batch, *(source.dims[dim] for dim in rest))),
        offset_dims=tuple(range(len(batch), len(batch) + len(rest))),
        collapsed_slice_dims=tuple(sorted((*places.dims, along))),
        start_index_map=(*places.dims, along),
        index_vector_dim=len(batch),
        slice_sizes=tuple(
            source.dims[dim] if dim in rest else 1 for dim in range(len(source.dims))
        ),
    )
    now = [*kept, *(dim - (dim > along) for dim in rest)]
    return gathered.transpose(*(now.index(dim) for dim in range(len(now))))

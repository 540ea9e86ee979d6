"""Sorts of whole rows of which a few first or last elements are read: the largest or smallest of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.cost_models.sorting import sort_passes
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.interpret.comparator import SortKey, sort_keys
from hloopt.ir import Instruction, Module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.site import Site, sites
from hloopt.types import ArrayShape, TupleShape, dtype
from hloopt.types.shape import array

__all__ = ["MAY_CALL_CUB", "few_read", "is_of_few"]

MAY_CALL_CUB: Final = (
    "This is the price of that network; where XLA compiles with a GPU at hand it may call CUB's radix sort "
    "instead, which takes less."
)
_PART: Final = 8
"""How many times as many elements are sorted as are read at least."""


@dataclass(frozen=True)
class _FewRead:
    """A sort of keys, alone or with their places, of which ``count`` elements at one end are read.

    descending  whether the largest come first
    at_end      whether the last elements are read, not the first
    slices      what reads them, each with whether it reads places
    """

    sort: Instruction
    descending: bool
    at_end: bool
    count: int
    slices: tuple[tuple[Instruction, bool], ...]

    @property
    def largest(self) -> bool:
        """Whether the largest are read, not the smallest."""
        return self.descending != self.at_end

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.sort.operands[0].array.dims[-1]


def few_read(subject: Subject) -> Iterator[FindingCandidate]:
    """Sorts of f32 and bf16 along the last dimension, on a GPU, where XLA has a kernel for the largest."""
    if is_planned(subject.module) or not subject.planner.predictor.target.has_threads:
        return
    for sort in sites(subject.module, "sort"):
        found = _few_read(sort)
        if found is None:
            continue
        which = "largest" if found.largest else "smallest"
        call = f"jax.lax.top_k(x, {found.count})"
        if not found.largest:
            call = f"jax.lax.top_k(-x, {found.count}) (negate its values, not its places)"
        yield FindingCandidate(
            (sort,),
            f"%{sort.name} sorts rows of {found.length:,} elements, of which only the {found.count} {which} "
            f"{'is' if found.count == 1 else 'are'} read. {_cost(sort)}",
            (
                FindingRemedy(
                    "model",
                    f"{call} in place of jnp.sort or jnp.argsort and a slice: XLA has one kernel for up to "
                    "16 of rows of 1,024 or more (for more it sorts). Of equal elements it takes the first",
                ),
            ),
            _selected,
            tuple(one for one, _ in found.slices),
        )


def is_of_few(sort: Instruction) -> bool:
    """Whether a few elements at one end of each row are all that is read."""
    return _few_read(sort) is not None


def _cost(sort: Instruction) -> str:
    passes = sort_passes(sort)
    if passes == 1:
        return "XLA puts every row in order by a network of compare-and-swap steps."
    network = f"a network of {passes} kernels or more, each of which reads and writes all rows"
    return f"XLA sorts by {network}. {MAY_CALL_CUB}"


def _few_read(sort: Instruction) -> _FewRead | None:
    key = sort.operands[0].array
    if key.dtype.name not in ("f32", "bf16") or sort.dimensions != (key.rank - 1,):
        return None
    if sort.is_root or len(sort.operands) > 2:
        return None
    if len(sort.operands) == 2 and not _is_places(sort.operands[1], key.rank - 1):
        return None
    keys = sort_keys(sort.to_apply)
    if keys is None or len(keys) != 1 or not _is_order_of_floats(keys[0]):
        return None
    slices = list(_slices(sort))
    if not slices or any(one.opcode != "slice" for one, _ in slices):
        return None
    length = key.dims[-1]
    ranges = [one.attributes["slice"][-1] for one, _ in slices]
    if any(part.stride != 1 for part in ranges):
        return None
    first = max(part.limit for part in ranges)
    last = length - min(part.start for part in ranges)
    count = min(first, last)
    if count * _PART > length:
        return None
    return _FewRead(sort, keys[0].descending, last < first, count, tuple(slices))


def _slices(sort: Instruction) -> Iterator[tuple[Instruction, bool]]:
    """What reads the sorted operands."""
    if not sort.is_tuple:
        yield from ((user, False) for user in sort.users)
        return
    for part in sort.users:
        if part.opcode != "get-tuple-element" or part.is_root:
            yield part, False
        else:
            yield from ((user, part.tuple_index == 1) for user in part.users)


def _is_places(value: Instruction, dim: int) -> bool:
    """Whether each element is its place along a dimension."""
    if value.opcode == "broadcast":
        source = value.operands[0]
        return source.opcode == "iota" and source.array.rank == 1 and value.dimensions == (dim,)
    return value.opcode == "iota" and value.iota_dimension == dim


def _is_order_of_floats(key: SortKey) -> bool:
    """Whether elements are compared by value; zeros of both signs, and all NaN, may be made equal before."""
    function = key.function
    if function.root.opcode == "parameter":
        return function.root.parameter_number == 0
    return _passes(function.root, function.parameters[0])


def _passes(value: Instruction, source: Instruction) -> bool:
    """Whether a value is the source wherever its selects do not put a constant."""
    if value is source:
        return True
    if value.opcode != "select" or value.operands[0].opcode != "compare":
        return False
    compared, chosen, other = value.operands
    left, right = compared.operands
    constant = compared.direction == "EQ" and right is chosen and chosen.opcode == "constant"
    missing = compared.direction == "NE" and left is right and chosen.opcode == "constant"
    return left is source and (constant or missing) and _passes(other, source)


def _selected(module: Module, places: Sequence[Instruction]) -> bool:
    """Take the elements that are read by ``topk``."""
    for sort in places:
        found = _few_read(sort)
        if found is None:
            return False
        _select(found)
    parse_pipeline("dce").run(module)
    return True


def _select(found: _FewRead) -> None:
    key = found.sort.operands[0]
    site = Site(found.sort)
    source = key if found.largest else site.make("negate", key, shape=key.shape)
    dims = (*key.array.dims[:-1], found.count)
    shapes = tuple(array(kind, dims) for kind in (key.array.dtype, dtype("s32")))
    both = site.make("topk", source, shape=TupleShape(shapes), k=found.count, largest=True)
    parts = [_part(site, both, at, shape) for at, shape in enumerate(shapes)]
    if not found.largest:
        parts[0] = site.make("negate", parts[0], shape=parts[0].shape)
    if found.at_end:
        axis = (len(dims) - 1,)
        parts = [site.make("reverse", one, shape=one.shape, dimensions=axis) for one in parts]
    skipped = found.length - found.count if found.at_end else 0
    for read, is_places in found.slices:
        here, value = Site(read), parts[is_places]
        if value.array.dtype is not read.array.dtype:
            wide = ArrayShape(read.array.dtype, dims, value.array.layout)
            value = here.make("convert", value, shape=wide)
        ranges = list(read.attributes["slice"])
        ranges[-1] = type(ranges[-1])(ranges[-1].start - skipped, ranges[-1].limit - skipped)
        here.replace(here.make("slice", value, shape=read.shape, slice=tuple(ranges)))


def _part(site: Site, both: Instruction, at: int, shape: ArrayShape) -> Instruction:
    return site.make("get-tuple-element", both, shape=shape, index=at)

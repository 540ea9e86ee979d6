"""Writing a plan as instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import where_places
from hloopt.linear_algebra.nodes import Cut, PlanNode, PlanNodeKind, Use, is_elementwise
from hloopt.linear_algebra.terms import Coefficient, IndexAxes, IndexSpace, TensorIndex
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, row_major
from hloopt.types import ArrayShape, Dims, DType, SliceRange

__all__ = ["PlanWriter"]


@dataclass(frozen=True, slots=True)
class _Built:
    """An instruction with one dimension for each name."""

    value: Instruction
    names: tuple[TensorIndex, ...]

    def places(self, names: Sequence[TensorIndex]) -> Dims:
        """Where indices are."""
        return tuple(self.names.index(name) for name in names)


class PlanWriter:
    """Makes the instructions of the nodes of a cluster, each once; those of a value stand right before it.

    ``precision`` are the attributes that all dots have in common; ``replaced`` has what took the place of the
    values that were written before.
    """

    def __init__(
        self,
        space: IndexSpace,
        dtype: DType,
        precision: Mapping[str, Any],
        replaced: dict[Instruction, Instruction],
    ) -> None:
        self.replaced = replaced
        self.space = space
        self.dtype = dtype
        self.precision = precision
        self._made: dict[PlanNode, _Built] = {}

    def put(self, root: Instruction, use: Use, axes: IndexAxes) -> None:
        """Put the value of a node in the place of an instruction whose dimensions count through ``axes``."""
        site = Site(root)
        order = tuple(index for axis in axes for index in self.space.resolved(axis))
        own = tuple(use.names.index(name) for name in order if name in use.names)
        built = self._renamed(self._value(site, use.node, own), use)
        value = self._arranged(site, built, order)
        self.replaced[root] = site.replace(site.reshape(value, root.array))

    def zero(self, root: Instruction) -> None:
        """Put zeros in the place of an instruction."""
        site = Site(root)
        self.replaced[root] = site.replace(site.splat(root.array, 0))

    def _renamed(self, built: _Built, use: Use) -> _Built:
        return _Built(built.value, tuple(use.names[own] for own in built.names))

    def _value(self, site: Site, node: PlanNode, wanted: Sequence[int] = ()) -> _Built:
        """The instruction of a node, whose own indices are in the order ``wanted`` if that costs nothing."""
        found = self._made.get(node)
        if found is None:
            found = self._made[node] = self._MAKERS[node.kind](self, site, node, tuple(wanted))
        return found

    def _part(self, site: Site, part: Use) -> _Built:
        return self._renamed(self._value(site, part.node), part)

    def _leaf(self, site: Site, node: PlanNode, _: Sequence[int]) -> _Built:
        value = node.value
        assert value is not None, "a leaf is an instruction"
        value = self.replaced.get(value, value)
        if any(node.cuts):
            value = self._cut(site, value, node.cuts)
        return _Built(site.reshape(value, row_major(value.array, node.sizes)), _own(node))

    def _cut(self, site: Site, value: Instruction, cuts: Sequence[Sequence[Cut]]) -> Instruction:
        """Slices, one after the other where several were taken of a dimension."""
        for level in range(max(map(len, cuts))):
            taken = [dim[level] if level < len(dim) else None for dim in cuts]
            value = self._dynamic(site, value, taken)
            ranges = tuple(
                SliceRange(0, size)
                if cut is None or isinstance(cut[0], Instruction)
                else _range(cut)
                for size, cut in zip(value.array.dims, taken, strict=True)
            )
            dims = tuple(part.size for part in ranges)
            if dims != value.array.dims:
                shape = row_major(value.array, dims)
                value = site.make("slice", value, shape=shape, slice=ranges)
        return value

    def _dynamic(self, site: Site, value: Instruction, taken: Sequence[Cut | None]) -> Instruction:
        """The parts whose starts are computed; one dynamic-slice for each type of them."""
        starts: dict[DType, dict[int, Instruction]] = {}
        for dim, cut in enumerate(taken):
            if cut is not None and isinstance(cut[0], Instruction):
                start = self.replaced.get(cut[0], cut[0])
                starts.setdefault(start.array.dtype, {})[dim] = start
        for kind, given in starts.items():
            dims = tuple(
                cut[2] if dim in given and cut is not None else size
                for dim, (size, cut) in enumerate(zip(value.array.dims, taken, strict=True))
            )
            indices = [given.get(dim) or site.scalar(kind.name, 0) for dim in range(len(dims))]
            shape = row_major(value.array, dims)
            value = site.make(
                "dynamic-slice", value, *indices, shape=shape, dynamic_slice_sizes=dims
            )
        return value

    def _one(self, site: Site, node: PlanNode, _: Sequence[int]) -> _Built:
        return _Built(site.scalar(self.dtype.name, 1), ())

    def _identity(self, site: Site, node: PlanNode, _: Sequence[int]) -> _Built:
        mask = where_places(site, row_major(site.root.array, node.sizes), (0, 1), "EQ")
        shape = ArrayShape(self.dtype, mask.array.dims, mask.array.layout)
        return _Built(site.make("convert", mask, shape=shape), _own(node))

    def _reduce(self, site: Site, node: PlanNode, _: Sequence[int]) -> _Built:
        """What is summed, on the diagonal where an index comes twice."""
        built = self._part(site, node.parts[0])
        value, names = built.value, built.names
        for place, name in enumerate(names):
            first = names.index(name)
            if first != place:
                mask = where_places(site, value.array, (first, place), "EQ")
                value = site.make(
                    "select", mask, value, site.splat(value.array, 0), shape=value.array
                )
        gone = tuple(
            place
            for place, name in enumerate(names)
            if name not in node.kept or names.index(name) != place
        )
        return self._in_own_names(node, self._sum(site, value, gone), _without(names, gone))

    def _sum(self, site: Site, value: Instruction, gone: Dims) -> Instruction:
        if not gone:
            return value
        dims = _without(value.array.dims, gone)
        region = combiner_computation(value.module, "add", self.dtype.name)
        return site.make(
            "reduce",
            value,
            site.scalar(self.dtype.name, 0),
            shape=row_major(value.array, dims),
            dimensions=gone,
            to_apply=region,
        )

    def _contract(self, site: Site, node: PlanNode, wanted: Sequence[int]) -> _Built:
        masks = [part for part in node.parts if part.node.kind == "identity"]
        if masks:
            return self._masked(site, node, masks[0])
        one, other = (self._part(site, part) for part in node.parts)
        kept = set(node.kept)
        shared = [name for name in one.names if name in other.names]
        summed = [name for name in shared if name not in kept]
        batch = [name for name in shared if name in kept]
        sides = [[name for name in side.names if name not in shared] for side in (one, other)]
        if is_elementwise(node.parts, node.kept):
            return self._multiplied(site, node, one, other, wanted)
        order = [node.kept[own] for own in wanted]
        if order[: len(batch) + len(sides[1])] == batch + sides[1]:
            one, other, sides = other, one, sides[::-1]
        lists = {
            "lhs_batch_dims": one.places(batch),
            "lhs_contracting_dims": one.places(summed),
            "rhs_batch_dims": other.places(batch),
            "rhs_contracting_dims": other.places(summed),
        }
        names = (*batch, *sides[0], *sides[1])
        sizes = dict(zip(node.kept, node.sizes, strict=True))
        shape = row_major(one.value.array, tuple(sizes[name] for name in names))
        numbers = {name: dims for name, dims in lists.items() if dims}
        value = site.make("dot", one.value, other.value, shape=shape, **numbers, **self.precision)
        return self._in_own_names(node, value, names)

    def _masked(self, site: Site, node: PlanNode, mask: Use) -> _Built:
        """The diagonal alone of what is multiplied by an identity."""
        other = next(part for part in node.parts if part is not mask)
        built = self._part(site, other)
        names = tuple(dict.fromkeys((*built.names, *mask.names)))
        value = self._arranged(site, built, names, self._sizes_of(node))
        dims = tuple(names.index(name) for name in mask.names)
        selected = where_places(site, value.array, (dims[0], dims[1]), "EQ")
        value = site.make("select", selected, value, site.splat(value.array, 0), shape=value.array)
        return self._in_own_names(node, value, names)

    def _multiplied(
        self, site: Site, node: PlanNode, one: _Built, other: _Built, wanted: Sequence[int]
    ) -> _Built:
        """Element by element, then summed over what does not come back."""
        order = [node.kept[own] for own in wanted]
        rest = dict.fromkeys((*one.names, *other.names))
        names = tuple(dict.fromkeys((*order, *rest)))
        sizes = self._sizes_of(node)
        sides = [self._arranged(site, side, names, sizes) for side in (one, other)]
        value = site.make("multiply", *sides, shape=sides[0].array)
        gone = tuple(place for place, name in enumerate(names) if name not in node.kept)
        return self._in_own_names(node, self._sum(site, value, gone), _without(names, gone))

    def _total(self, site: Site, node: PlanNode, wanted: Sequence[int]) -> _Built:
        """A sum of parts with coefficients."""
        parts = [self._part(site, part) for part in node.parts]
        order = [node.kept[own] for own in wanted]
        longest = max(parts, key=lambda part: len(part.names))
        names = tuple(dict.fromkeys((*order, *longest.names, *node.kept)))
        sizes = self._sizes_of(node)
        total: Instruction | None = None
        ranked = sorted(zip(parts, node.weights, strict=True), key=lambda pair: pair[1] < 0)
        for part, weight in ranked:
            value = self._arranged(site, part, names, sizes)
            total = self._added(site, total, value, weight)
        assert total is not None, "a sum has parts"
        return self._in_own_names(node, total, names)

    def _added(
        self, site: Site, total: Instruction | None, value: Instruction, weight: Coefficient
    ) -> Instruction:
        if abs(weight) != 1:
            scale = abs(weight) if total is not None else weight
            value = site.make("multiply", value, site.splat(value.array, scale), shape=value.array)
        if total is None:
            return site.make("negate", value, shape=value.array) if weight == -1 else value
        return site.make("add" if weight > 0 else "subtract", total, value, shape=value.array)

    def _sizes_of(self, node: PlanNode) -> dict[int, int]:
        """The sizes of all names that the parts of a node have."""
        return {
            name: size
            for part in node.parts
            for name, size in zip(part.names, part.node.sizes, strict=True)
        }

    def _arranged(
        self,
        site: Site,
        built: _Built,
        names: Sequence[TensorIndex],
        sizes: Mapping[TensorIndex, int] | None = None,
    ) -> Instruction:
        """A value with its dimensions in this order, repeated along those that it lacks."""
        present = tuple(name for name in names if name in built.names)
        value = site.transpose(built.value, built.places(present))
        if len(present) == len(names):
            return value
        dims = tuple(self.space.size(name) if sizes is None else sizes[name] for name in names)
        shape = row_major(value.array, dims)
        places = tuple(place for place, name in enumerate(names) if name in present)
        return site.make("broadcast", value, shape=shape, dimensions=places)

    def _in_own_names(self, node: PlanNode, value: Instruction, names: Sequence[int]) -> _Built:
        return _Built(value, tuple(node.kept.index(name) for name in names))

    _MAKERS: ClassVar[
        Mapping[PlanNodeKind, Callable[[PlanWriter, Site, PlanNode, Sequence[int]], _Built]]
    ] = {
        "leaf": _leaf,
        "one": _one,
        "identity": _identity,
        "reduce": _reduce,
        "contract": _contract,
        "sum": _total,
    }


def _own(node: PlanNode) -> tuple[int, ...]:
    return tuple(range(len(node.sizes)))


def _range(cut: Cut) -> SliceRange:
    start, stride, size = cut
    assert isinstance(start, int), "a slice has numbers"
    return SliceRange(start, start + (size - 1) * stride + 1, stride)


def _without(items: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(item for place, item in enumerate(items) if place not in gone)

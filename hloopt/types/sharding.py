"""Shardings and meshes: which devices have which parts of an array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.types.annotations import Metadata, record_of
from hloopt.types.attrs import IotaList
from hloopt.types.strings import quote

__all__ = [
    "AxisRef",
    "DimSharding",
    "Domain",
    "Mesh",
    "MeshGroups",
    "NamedSharding",
    "Sharding",
    "Tiles",
]


@dataclass(frozen=True, slots=True)
class AxisRef:
    """``'x'``, or ``'x':(2)4``: the part of an axis of size 4 that has a part of size 2 before it."""

    name: str
    before: int = 1
    size: int | None = None

    def __str__(self) -> str:
        part = "" if self.size is None else f":({self.before}){self.size}"
        return f"{_name(self.name)}{part}"


@dataclass(frozen=True, slots=True)
class Mesh:
    """``mesh['x'=2,'y'=4]``: devices in a grid whose dimensions have names.

    ``device_ids`` has the devices in the order of the grid; None where they are numbered so.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | IotaList | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes by name."""
        return dict(self.axes)

    @property
    def count(self) -> int:
        """How many positions the grid has."""
        return prod(size for _, size in self.axes)

    @property
    def listed(self) -> int:
        """How many devices it names."""
        ids = self.device_ids
        if ids is None:
            return self.count
        return prod(ids.reshape) if isinstance(ids, IotaList) else len(ids)

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each position."""
        ids = self.device_ids
        if ids is None:
            return tuple(range(self.count))
        return ids.numbers if isinstance(ids, IotaList) else ids

    def __str__(self) -> str:
        ids = "" if self.device_ids is None else f", {_device_ids(self.device_ids)}"
        return f"mesh[{','.join(_axes(self))}]{ids}"


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """``mesh['x'=2,'y'=4] {'x'}``: groups of devices along axes."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    def __str__(self) -> str:
        return f"{self.mesh} {{{','.join(map(str, self.axes))}}}"


@dataclass(frozen=True, slots=True)
class Tiles:
    """``devices=[2,2]<=[4] last_tile_dim_replicate``: the device of each tile of a grid.

    The last dimensions of the grid cut no dimension of the array where they are ``replicated_last``, or where
    ``last_dims`` says what devices have in them.
    """

    dims: tuple[int, ...]
    ids: tuple[int, ...] | IotaList
    replicated_last: bool = False
    last_dims: tuple[str, ...] | None = None

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each tile."""
        return self.ids.numbers if isinstance(self.ids, IotaList) else self.ids

    @property
    def subgroups(self) -> int:
        """How many of the last dimensions cut no dimension of the array."""
        return len(self.last_dims) if self.last_dims is not None else int(self.replicated_last)

    def __str__(self) -> str:
        ids = self.ids
        if isinstance(ids, IotaList):
            parts = [f"devices={ids}"]
        else:
            parts = [f"devices=[{_listed(self.dims)}]{_listed(ids)}"]
        if self.replicated_last:
            parts.append("last_tile_dim_replicate")
        if self.last_dims is not None:
            parts.append(f"last_tile_dims={{{', '.join(self.last_dims)}}}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class DimSharding:
    """``{'x', ?}``: the axes that cut a dimension; an open one may be cut further."""

    axes: tuple[AxisRef, ...]
    is_open: bool = False

    def __str__(self) -> str:
        return f"{{{', '.join([*map(str, self.axes), *['?'] * self.is_open])}}}"


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """``mesh['x'=2,'y'=4], [{'x'}, {?}], replicated={'y'}``: dimensions cut along the axes of a mesh.

    dims       None where the text has no list of dimensions
    others     axes that cut no dimension, under ``replicated``, ``unreduced`` or ``manual``
    reduction  how what is unreduced is put together: ``max``, or empty
    """

    mesh: Mesh
    dims: tuple[DimSharding, ...] | None = None
    others: tuple[tuple[str, tuple[AxisRef, ...]], ...] = ()
    reduction: str = ""

    @property
    def uses(self) -> Iterator[AxisRef]:
        """Every mention of an axis."""
        for dim in self.dims or ():
            yield from dim.axes
        for _, axes in self.others:
            yield from axes

    def __str__(self) -> str:
        mesh, parts = self.mesh, []
        if not mesh.axes and mesh.device_ids is not None:  # all of the array on one device
            parts.append(f"maximal_mesh[device_ids={_listed(mesh.devices)}]")
        else:
            parts.append(f"mesh[{','.join(_axes(mesh))}]")
            if mesh.device_ids is not None:
                parts.append(_device_ids(mesh.device_ids))
        if self.dims is not None:
            parts.append(f"[{', '.join(map(str, self.dims))}]")
        for word, axes in self.others:
            reduction = self.reduction if word == "unreduced" else ""
            parts.append(f"{word}={reduction}{{{', '.join(map(str, axes))}}}" if axes else word)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Sharding:
    """One of: a tuple's ``elements``, ``tiles``, axes of a mesh (``named``), or a ``word``.

    word   ``replicated``, ``maximal`` (on one ``device``), ``manual``, ``unknown`` or ``unreduced``
    group  ``shard_as`` or ``shard_like`` and its number: instructions of a group are sharded alike
    """

    word: str = ""
    device: int | None = None
    tiles: Tiles | None = None
    named: NamedSharding | None = None
    elements: tuple[Sharding, ...] | None = None
    group: tuple[str, int] | None = None
    metadata: tuple[Metadata, ...] = ()

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> Sharding | None:
        """The sharding in an instruction's attributes; None where there is none, or its form is not known."""
        return record_of(attributes, "sharding", Sharding)

    @property
    def leaves(self) -> tuple[Sharding, ...]:
        """Those of a tuple's elements, or this alone."""
        return (self,) if self.elements is None else self.elements

    def without_metadata(self) -> Sharding:
        """The same sharding without its metadata."""
        elements = self.elements
        if elements is not None:
            elements = tuple(element.without_metadata() for element in elements)
        return replace(self, elements=elements, metadata=())

    def __str__(self) -> str:
        if self.elements is not None:
            return f"{{{', '.join(map(str, self.elements))}}}"
        parts = [*filter(None, (self.word,)), *map(str, filter(None, (self.tiles, self.named)))]
        if self.device is not None:
            parts.append(f"device={self.device}")
        if self.group is not None:
            parts.append(f"{self.group[0]} {self.group[1]}")
        if len(self.metadata) == 1:
            parts.append(f"metadata={self.metadata[0]}")
        elif self.metadata:
            parts.append(f"metadata={{{', '.join(map(str, self.metadata))}}}")
        return f"{{{(', ' if self.named else ' ').join(parts)}}}"


@dataclass(frozen=True, slots=True)
class Domain:
    """``{kind="sharding", entry={...}, exit={...}}``: where one sharding ends and another begins."""

    kind: str
    entry: Sharding
    exit: Sharding

    def without_metadata(self) -> Domain:
        """The same domain, its shardings without metadata."""
        return Domain(self.kind, self.entry.without_metadata(), self.exit.without_metadata())

    def __str__(self) -> str:
        return f"{{kind={quote(self.kind)}, entry={self.entry}, exit={self.exit}}}"


def _name(name: str) -> str:
    return f"'{quote(name)[1:-1]}'"


def _axes(mesh: Mesh) -> Iterator[str]:
    return (f"{_name(name)}={size}" for name, size in mesh.axes)


def _device_ids(ids: tuple[int, ...] | IotaList) -> str:
    listed = str(ids).partition("<=")[2] if isinstance(ids, IotaList) else _listed(ids)
    return f"device_ids=({listed})"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))

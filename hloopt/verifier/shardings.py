"""Shardings against the shapes of their instructions, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

from hloopt.ir import Computation, Instruction
from hloopt.types import (
    ArrayShape,
    AxisRef,
    BufferShape,
    IotaList,
    Mesh,
    NamedSharding,
    Shape,
    Sharding,
    Tiles,
    leaves,
)
from hloopt.verifier.constraints import Fault

__all__ = ["Shardings"]


class Shardings:
    """The shardings of a module; each is checked once for a shape."""

    def __init__(self) -> None:
        # The text and the shape decide; the value keeps the shape's id from being used again.
        self._checked: dict[tuple[str, int], tuple[Shape, str]] = {}

    def faults(self, instruction: Instruction) -> Iterator[Fault]:
        """A sharding that does not fit the shape."""
        sharding, shape = Sharding.of(instruction.attributes), instruction.shape
        if sharding is None:
            return
        text = instruction.attributes["sharding"].text
        known = self._checked.get((text, id(shape)))
        if known is None:
            known = self._checked[text, id(shape)] = shape, _message(sharding, shape)
        if known[1]:
            yield Fault(instruction, "sharding", f"sharding={text}: {known[1]}")

    def agreement_faults(self, instruction: Instruction) -> Iterator[Fault]:
        """A while is sharded like its state, a conditional like what its branches return."""
        first: Instruction | None = None
        for other in _related(instruction):
            if "sharding" not in other.attributes:
                continue
            if first is None:
                first = other
            elif _spelled(first) != _spelled(other):
                yield Fault(
                    instruction,
                    "sharding-agreement",
                    f"%{first.name} has sharding={first.attributes['sharding']}, %{other.name} "
                    f"has {other.attributes['sharding']}; they must agree",
                )
                return


def _spelled(instruction: Instruction) -> Any:
    """The sharding without metadata; one of a form that is not known as it is written."""
    sharding = Sharding.of(instruction.attributes)
    return instruction.attributes["sharding"] if sharding is None else sharding.without_metadata()


def _message(sharding: Sharding, shape: Shape) -> str:
    if _is_token(shape):
        return ""
    arrays = list(leaves(shape))
    if sharding.elements is None:
        # One sharding on a tuple is that of each of its leaves.
        found = (_leaf_message(sharding, leaf) for leaf in arrays)
        return next((message for message in found if message), "")
    if arrays == [shape]:
        return f"it is for a tuple, the shape is {shape}"
    if not arrays and len(sharding.elements) <= 1:
        return ""
    if len(arrays) != len(sharding.elements):
        return f"it has {len(sharding.elements)} elements, {shape} has {len(arrays)} leaves"
    for number, (element, part) in enumerate(zip(sharding.elements, arrays, strict=True)):
        message = _leaf_message(element, part)
        if message:
            return f"leaf {number}: {message}"
    return ""


def _is_token(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and shape.dtype.name == "token"


def _related(instruction: Instruction) -> Iterator[Instruction]:
    yield instruction
    attributes = instruction.attributes
    if instruction.opcode == "while":
        body, condition = attributes.get("body"), attributes.get("condition")
        if isinstance(body, Computation):
            yield body.root
            yield from body.parameters[:1]
        if isinstance(condition, Computation):
            yield from condition.parameters[:1]
        return
    branches = attributes.get("branch_computations") or (
        attributes.get("true_computation"),
        attributes.get("false_computation"),
    )
    for branch in branches:
        if isinstance(branch, Computation):
            yield branch.root


# ---- one array --------------------------------------------------------------------------------------


def _leaf_message(sharding: Sharding, leaf: ArrayShape | BufferShape) -> str:
    if sharding.device is not None and sharding.device < 0:
        return f"device {sharding.device} is negative"
    if sharding.word == "maximal" and sharding.device is None:
        return "a maximal sharding names its device"
    rank = leaf.rank if isinstance(leaf, ArrayShape) else leaf.element.rank
    if sharding.tiles is not None:
        return _tiles_message(sharding.tiles, rank)
    if sharding.named is not None:
        return _named_message(sharding.named, rank)
    return ""


def _tiles_message(tiles: Tiles, rank: int) -> str:
    shown = f"the grid [{','.join(map(str, tiles.dims))}]"
    count = prod(tiles.dims)
    if tiles.replicated_last and tiles.last_dims is not None:
        return "last_tile_dim_replicate and last_tile_dims= exclude each other"
    if any(size < 1 for size in tiles.dims):
        return f"{shown} has a size that is not positive"
    message = _devices_message(tiles.ids, count, f"{shown} has {count} tiles")
    if message or count == 1:
        return message
    cut = len(tiles.dims) - tiles.subgroups
    if cut != rank:
        return f"{shown} cuts {cut} dimensions, the shape has {rank}"
    return ""


def _devices_message(ids: tuple[int, ...] | IotaList, count: int, shown: str) -> str:
    """What is wrong with a list of so many devices."""
    if isinstance(ids, IotaList):
        sizes, order = ids.reshape, ids.permutation
        if prod(sizes) != count or any(size < 1 for size in sizes):
            return f"{shown}, the iota has {prod(sizes)} devices"
        if order and sorted(order) != list(range(len(sizes))):
            return f"T({','.join(map(str, order))}) is not a permutation of rank {len(sizes)}"
        return ""
    if len(ids) != count:
        return f"{shown}, {len(ids)} devices are listed"
    seen: set[int] = set()
    for device in ids:
        if device < 0:
            return f"device {device} is negative"
        if device in seen:
            return f"device {device} is listed twice"
        seen.add(device)
    return ""


def _named_message(named: NamedSharding, rank: int) -> str:
    mesh = named.mesh
    if len(mesh.sizes) < len(mesh.axes):
        names = [name for name, _ in mesh.axes]
        name = next(name for at, name in enumerate(names) if name in names[:at])
        return f"the mesh has the axis {name!r} twice"
    if any(size < 1 for _, size in mesh.axes):
        return "an axis of the mesh has a size that is not positive"
    if mesh.device_ids is not None:
        shown = f"the mesh has {mesh.count} positions"
        message = _devices_message(mesh.device_ids, mesh.count, shown)
        if message:
            return message
    uses = list(named.uses)
    message = _uses_message(mesh, uses)
    if message:
        return message
    if uses and named.dims and len(named.dims) != rank:
        return f"it cuts {len(named.dims)} dimensions, the shape has {rank}"
    return ""


def _uses_message(mesh: Mesh, uses: list[AxisRef]) -> str:
    """Axes exist; parts of an axis divide it and do not overlap."""
    parts: dict[str, list[tuple[int, int]]] = {}
    for use in uses:
        whole = mesh.sizes.get(use.name)
        if whole is None:
            return f"the mesh has no axis {use.name!r}"
        end = whole if use.size is None else use.before * use.size
        if use.size is not None and (use.before < 1 or use.size < 1 or whole % end):
            return f"{use} is not a part of the axis, whose size is {whole}"
        parts.setdefault(use.name, []).append((use.before, end))
    for name, spans in parts.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            if start < end:
                return f"the axis {name!r} is used twice"
    return ""

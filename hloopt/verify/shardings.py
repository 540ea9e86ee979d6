"""Shardings against the shapes of their instructions, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, BufferShape, Shape, Verbatim, leaves
from hloopt.verify.places import Fault
from hloopt.verify.readings import Tokens
from hloopt.verify.sharding_text import Mesh, Sharding, Tiles, read_sharding

__all__ = ["Shardings"]


class Shardings:
    """The shardings of a module; each distinct text is read once."""

    def __init__(self) -> None:
        self._read: dict[str, Sharding | None] = {}
        self._tokens: dict[str, tuple[str, ...]] = {}
        # The text and the shape decide; the value keeps the shape's id from being used again.
        self._checked: dict[tuple[str, int], tuple[Shape, str]] = {}

    def faults(self, instruction: Instruction) -> Iterator[Fault]:
        """A sharding that does not fit the shape."""
        value = instruction.attributes["sharding"]
        if not isinstance(value, Verbatim):
            return
        key = value.text, id(instruction.shape)
        known = self._checked.get(key)
        if known is None:
            known = instruction.shape, self._message(value.text, instruction.shape)
            self._checked[key] = known
        if known[1]:
            yield Fault(instruction, "sharding", f"sharding={value.text}: {known[1]}")

    def agreement_faults(self, instruction: Instruction) -> Iterator[Fault]:
        """A while is sharded like its state, a conditional like what its branches return."""
        first: Instruction | None = None
        for other in _related(instruction):
            value = other.attributes.get("sharding")
            if not isinstance(value, Verbatim):
                continue
            if first is None:
                first = other
            elif self._spelled(first.attributes["sharding"].text) != self._spelled(value.text):
                yield Fault(
                    instruction,
                    "sharding-agreement",
                    f"%{first.name} has sharding={first.attributes['sharding']}, %{other.name} "
                    f"has {value}; they must agree",
                )
                return

    def _spelled(self, text: str) -> tuple[str, ...]:
        """The tokens of a sharding, without metadata."""
        known = self._tokens.get(text)
        if known is None:
            known = self._tokens[text] = tuple(_without_metadata(text))
        return known

    def _message(self, text: str, shape: Shape) -> str:
        if text not in self._read:
            self._read[text] = read_sharding(text)
        sharding = self._read[text]
        if sharding is None or _is_token(shape):
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


def _without_metadata(text: str) -> Iterator[str]:
    tokens = Tokens(text)
    while word := tokens.take():
        if word == "metadata" and tokens.accept("="):
            try:
                tokens.skip_braces()
            except ValueError:
                return
        elif word != ",":
            yield word


# ---- one array --------------------------------------------------------------------------------------


def _leaf_message(sharding: Sharding, leaf: ArrayShape | BufferShape) -> str:
    if sharding.device is not None and sharding.device < 0:
        return f"device {sharding.device} is negative"
    if sharding.maximal and sharding.device is None:
        return "a maximal sharding names its device"
    rank = leaf.rank if isinstance(leaf, ArrayShape) else leaf.element.rank
    if sharding.tiles is not None:
        return _tiles_message(sharding.tiles, rank)
    if sharding.mesh is not None:
        return _mesh_message(sharding.mesh, rank)
    return ""


def _tiles_message(tiles: Tiles, rank: int) -> str:
    shown = f"[{','.join(map(str, tiles.dims))}]"
    count = prod(tiles.dims)
    if tiles.both:
        return "last_tile_dim_replicate and last_tile_dims= exclude each other"
    if any(size < 1 for size in tiles.dims):
        return f"the grid {shown} has a size that is not positive"
    if tiles.devices is None:
        message = _iota_message(tiles, count, shown)
    else:
        message = _devices_message(tiles.devices, count, shown)
    if message or count == 1:
        return message
    cut = len(tiles.dims) - tiles.subgroups
    if cut != rank:
        return f"the grid {shown} cuts {cut} dimensions, the shape has {rank}"
    return ""


def _iota_message(tiles: Tiles, count: int, shown: str) -> str:
    if prod(tiles.iota) != count or any(size < 1 for size in tiles.iota):
        return f"the grid {shown} has {count} tiles, the iota has {prod(tiles.iota)} devices"
    order = tiles.permutation
    if order and sorted(order) != list(range(len(tiles.iota))):
        return f"T({','.join(map(str, order))}) is not a permutation of rank {len(tiles.iota)}"
    return ""


def _devices_message(devices: tuple[int, ...], count: int, shown: str) -> str:
    if len(devices) != count:
        return f"the grid {shown} has {count} tiles, {len(devices)} devices are listed"
    return _listed_message(devices)


def _listed_message(devices: tuple[int, ...]) -> str:
    seen: set[int] = set()
    for device in devices:
        if device < 0:
            return f"device {device} is negative"
        if device in seen:
            return f"device {device} is listed twice"
        seen.add(device)
    return ""


def _mesh_message(mesh: Mesh, rank: int) -> str:
    if mesh.repeated:
        return f"the mesh has the axis {mesh.repeated!r} twice"
    if any(size < 1 for size in mesh.sizes.values()):
        return "an axis of the mesh has a size that is not positive"
    if mesh.devices is not None and mesh.sizes:
        if len(mesh.devices) != mesh.count:
            return f"the mesh has {mesh.count} devices, {len(mesh.devices)} are listed"
        message = _listed_message(mesh.devices)
        if message:
            return message
    message = _uses_message(mesh)
    if message:
        return message
    if mesh.uses and mesh.dimensions and mesh.dimensions != rank:
        return f"it cuts {mesh.dimensions} dimensions, the shape has {rank}"
    return ""


def _uses_message(mesh: Mesh) -> str:
    """Axes exist; parts of an axis divide it and do not overlap."""
    parts: dict[str, list[tuple[int, int]]] = {}
    for name, before, size in mesh.uses:
        whole = mesh.sizes.get(name)
        if whole is None:
            return f"the mesh has no axis {name!r}"
        end = whole if size is None else before * size
        if size is not None and (before < 1 or size < 1 or whole % end):
            return f"'{name}':({before}){size} is no part of the axis, whose size is {whole}"
        parts.setdefault(name, []).append((before, end))
    for name, spans in parts.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            if start < end:
                return f"the axis {name!r} is used twice"
    return ""

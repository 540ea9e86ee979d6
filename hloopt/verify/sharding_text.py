"""Shardings as they are written, read for the verifier.

A tuple sharding is flat: one sharding for each leaf of the shape.
"""

from __future__ import annotations

from itertools import product
from math import prod

from hloopt.dataclass import dataclass
from hloopt.verify.readings import Tokens

__all__ = ["Mesh", "Sharding", "Tiles", "read_mesh", "read_sharding"]


@dataclass(frozen=True, slots=True)
class Tiles:
    """``devices=[2,2]<=[4] last_tile_dim_replicate``: a grid of tiles, ``devices`` is None for an iota.

    The last ``subgroups`` dimensions of the grid cut no dimension of the array.
    """

    dims: tuple[int, ...]
    devices: tuple[int, ...] | None
    iota: tuple[int, ...] = ()
    permutation: tuple[int, ...] = ()
    subgroups: int = 0
    both: bool = False  # last_tile_dim_replicate beside last_tile_dims


@dataclass(frozen=True, slots=True)
class Mesh:
    """``mesh['x'=2]``: the sizes of the axes, and their uses: name, size before, own size (or None)."""

    sizes: dict[str, int]
    repeated: str
    devices: tuple[int, ...] | None
    dimensions: int
    uses: tuple[tuple[str, int, int | None], ...]

    @property
    def count(self) -> int:
        """The number of devices."""
        return prod(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Sharding:
    """One of: a tuple's ``elements``, a grid of ``tiles``, a ``mesh``, a ``device``, or none of them.

    Without any the array is whole on each device, or nobody knows.
    """

    elements: tuple[Sharding, ...] | None = None
    tiles: Tiles | None = None
    mesh: Mesh | None = None
    device: int | None = None
    maximal: bool = False


def read_sharding(text: str) -> Sharding | None:
    """A sharding, or None for a form that is not known."""
    tokens = Tokens(text)
    try:
        found = _sharding(tokens, nested=False)
    except ValueError:
        return None
    return None if tokens.next else found


def read_mesh(text: str) -> Mesh | None:
    """``mesh['x'=2] {'x'}``, or None for a form that is not known."""
    tokens = Tokens(text)
    try:
        tokens.expect("mesh")
        sizes, repeated, devices = _axes_of_mesh(tokens)
        uses = tuple(_uses(tokens))
    except ValueError:
        return None
    return None if tokens.next else Mesh(sizes, repeated, devices, 0, uses)


def _sharding(tokens: Tokens, *, nested: bool) -> Sharding:
    tokens.expect("{")
    if tokens.next in ("{", "}"):
        if nested:
            raise ValueError("tuples of shardings are flat")
        elements = []
        while not tokens.accept("}"):
            elements.append(_sharding(tokens, nested=True))
            tokens.accept(",")
        return Sharding(elements=tuple(elements))
    if tokens.accept("mesh"):
        return Sharding(mesh=_mesh(tokens))
    if tokens.accept("maximal_mesh"):
        tokens.expect("[")
        tokens.expect("device_ids")
        tokens.expect("=")
        device = int(tokens.take())
        tokens.expect("]")
        _rest(tokens)
        return Sharding(device=device, maximal=True)
    return _parts(tokens)


def _parts(tokens: Tokens) -> Sharding:
    device: int | None = None
    maximal = False
    grid: tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]] | None
    grid = None
    subgroups: list[int] = []
    while not tokens.accept("}"):
        word = tokens.take()
        if word == "devices":
            tokens.expect("=")
            grid = _grid(tokens)
        elif word == "device":
            tokens.expect("=")
            device = int(tokens.take())
        elif word == "last_tile_dim_replicate":
            subgroups.append(1)
        elif word == "last_tile_dims":
            tokens.expect("=")
            subgroups.append(_count_words(tokens))
        elif word == "metadata":
            tokens.expect("=")
            tokens.skip_braces()
        elif word == "maximal":
            maximal = True
        elif not word:
            raise ValueError("a brace is missing")
    if grid is None:
        return Sharding(device=device, maximal=maximal)
    both = len(subgroups) > 1
    return Sharding(tiles=Tiles(*grid, subgroups=sum(subgroups[:1]), both=both))


def _grid(
    tokens: Tokens,
) -> tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]:
    dims = tokens.integers("[", "]")
    if tokens.accept("<="):
        iota = tokens.integers("[", "]")
        permutation = tokens.integers("(", ")") if tokens.accept("T") else ()
        return dims, None, iota, permutation
    devices = [int(tokens.take())]
    while tokens.accept(","):
        devices.append(int(tokens.take()))
    return dims, tuple(devices), (), ()


def _count_words(tokens: Tokens) -> int:
    tokens.expect("{")
    count = 0
    while not tokens.accept("}"):
        if not tokens.take():
            raise ValueError("a brace is missing")
        count += 1
        tokens.accept(",")
    return count


# ---- meshes -----------------------------------------------------------------------------------------


def _mesh(tokens: Tokens) -> Mesh:
    sizes, repeated, devices = _axes_of_mesh(tokens)
    dimensions = 0
    uses: list[tuple[str, int, int | None]] = []
    while not tokens.accept("}"):
        if tokens.accept(","):
            continue
        if tokens.accept("["):
            while not tokens.accept("]"):
                uses += _uses(tokens)
                dimensions += 1
                tokens.accept(",")
            continue
        word = tokens.take()
        if word == "metadata":
            tokens.expect("=")
            tokens.skip_braces()
        elif word in ("replicated", "unreduced", "manual"):
            if tokens.accept("="):
                if tokens.next != "{":
                    tokens.take()
                uses += _uses(tokens)
        elif word == "device_ids":
            tokens.expect("=")
            devices = _device_ids(tokens)
        else:
            raise ValueError(f"{word!r} is no part of a sharding")
    return Mesh(sizes, repeated, devices, dimensions, tuple(uses))


def _axes_of_mesh(tokens: Tokens) -> tuple[dict[str, int], str, tuple[int, ...] | None]:
    sizes: dict[str, int] = {}
    repeated = ""
    devices: tuple[int, ...] | None = None
    tokens.expect("[")
    while not tokens.accept("]"):
        name = tokens.take()
        tokens.expect("=")
        if name == "device_ids":
            devices = _device_ids(tokens)
        else:
            name = name[1:-1]
            repeated = repeated or (name if name in sizes else "")
            sizes[name] = int(tokens.take())
        tokens.accept(",")
    return sizes, repeated, devices


def _device_ids(tokens: Tokens) -> tuple[int, ...] | None:
    """The devices in the mesh's order; None where they are in their own, or the form is not known."""
    if not tokens.accept("("):
        return (int(tokens.take()),)
    listed: list[int] = []
    iota: list[tuple[int, ...]] = []
    while not tokens.accept(")"):
        if tokens.next == "[":
            iota.append(tokens.integers("[", "]"))
        elif tokens.accept("T"):
            iota.append(tokens.integers("(", ")"))
        elif not tokens.accept("<=") and not tokens.accept(","):
            listed.append(int(tokens.take()))
    if len(iota) == 3:
        _, dims, order = iota
        if sorted(order) != list(range(len(dims))):
            raise ValueError(f"{order} is no permutation")
        return _transposed(dims, order)
    return tuple(listed) or None


def _transposed(dims: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers 0, 1, ... of an array of ``dims``, read with its dimensions in another order."""
    strides = [prod(dims[at + 1 :]) for at in range(len(dims))]
    steps = (range(0, dims[at] * strides[at], strides[at]) for at in order)
    return tuple(map(sum, product(*steps)))


def _uses(tokens: Tokens) -> list[tuple[str, int, int | None]]:
    """``{'x', 'y':(2)4, ?}``."""
    tokens.expect("{")
    found: list[tuple[str, int, int | None]] = []
    while not tokens.accept("}"):
        if not tokens.accept("?"):
            name = tokens.take()[1:-1]
            before, size = 1, None
            if tokens.accept(":"):
                tokens.expect("(")
                before = int(tokens.take())
                tokens.expect(")")
                size = int(tokens.take())
            found.append((name, before, size))
        tokens.accept(",")
    return found


def _rest(tokens: Tokens) -> None:
    """Go on behind the brace that ends a sharding."""
    while not tokens.accept("}"):
        if tokens.next == "{":
            tokens.skip_braces()
        elif not tokens.take():
            raise ValueError("a brace is missing")

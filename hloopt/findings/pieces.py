"""Arrays that are written piece by piece: each piece is a kernel, and waits for the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.rewrite.site import Site, is_replaceable, row_major, sites
from hloopt.types import SliceRange

__all__ = ["chains"]

_LEAST: Final = 4
"""Updates of a chain that is worth a word."""
_MOST: Final = 1 << 20
"""Places along the dimension of the updates that are looked at."""


@dataclass(frozen=True)
class _Chain:
    """Updates of one array along a dimension, the first to be made first, with the place where each begins."""

    base: Instruction
    dimension: int
    updates: tuple[tuple[Instruction, int], ...]


def chains(subject: Subject) -> Iterator[FindingCandidate]:
    """Updates of an array at constant places, one after the other, which nothing reads in between."""
    for last in sites(subject.module, "dynamic-update-slice"):
        if _following(last) is not None:
            continue
        found = _chain(last)
        if found is None or len(found.updates) < _LEAST:
            continue
        others = tuple(one for one, _ in reversed(found.updates))[1:]
        count = len(found.updates)
        yield FindingCandidate(
            (last, *others),
            f"%{last.name} is the last of {count:,} updates of {last.array}, of which each writes "
            f"a piece and waits for the one before it. Their places along dimension {found.dimension} are "
            "constants: one kernel can write all pieces side by side.",
            (
                FindingRemedy(
                    "model",
                    "keep the pieces in a list and call jnp.stack or jnp.concatenate once (torch.stack, "
                    "tf.stack) instead of out = out.at[k].set(piece) in a Python loop, or make them by "
                    "jax.vmap or jax.lax.map",
                ),
            ),
            _at_once,
        )


def _following(update: Instruction) -> Instruction | None:
    """The next update of the same chain; None where there is none, or something else reads this one."""
    if len(update.users) != 1 or update.is_root:
        return None
    (user,) = update.users
    if user.opcode != "dynamic-update-slice" or user.operands.count(update) != 1:
        return None
    return user if user.operands[0] is update and is_replaceable(user) else None


def _chain(last: Instruction) -> _Chain | None:
    """The updates up to the last; None where it has no constant place along one dimension."""
    dimension = _dimension(last)
    if dimension is None or last.array.dims[dimension] > _MOST:
        return None
    found: list[tuple[Instruction, int]] = []
    update = last
    while True:
        begin = _begin(update, dimension)
        if begin is None:
            break
        found.append((update, begin))
        before = update.operands[0]
        if before.opcode != "dynamic-update-slice" or _following(before) is not update:
            break
        update = before
    if not found:
        return None
    return _Chain(found[-1][0].operands[0], dimension, tuple(reversed(found)))


def _dimension(update: Instruction) -> int | None:
    """The one along which an update is a part; None where it is of several, or all there is."""
    whole, part = update.array.dims, update.operands[1].array.dims
    parts = [dim for dim, (size, of) in enumerate(zip(part, whole, strict=True)) if size != of]
    return parts[0] if len(parts) == 1 else None


def _begin(update: Instruction, dimension: int) -> int | None:
    """Where it begins, clamped as the update is."""
    starts = update.operands[2:]
    if _dimension(update) != dimension or len(starts) != update.array.rank:
        return None
    literal = starts[dimension].literal
    if literal is None or literal.array is None:
        return None
    room = update.array.dims[dimension] - update.operands[1].array.dims[dimension]
    return min(max(int(literal.array.reshape(-1)[0]), 0), room)


def _at_once(module: Module, places: Sequence[Instruction]) -> bool:
    """All pieces one after another, and between them what was there before."""
    last = places[0]
    chain = _chain(last)
    if chain is None:
        return False
    site, dimension = Site(last), chain.dimension
    size = last.array.dims[dimension]
    owners = np.full(size, -1)
    for number, (update, begin) in enumerate(chain.updates):
        owners[begin : begin + update.operands[1].array.dims[dimension]] = number
    cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), size]
    pieces = []
    for begin, end in pairwise(cuts):
        owner = int(owners[begin])
        source, first = chain.base, 0
        if owner >= 0:
            update, first = chain.updates[owner]
            source = update.operands[1]
        pieces.append(_part(site, source, dimension, begin - first, end - first))
    if len(pieces) == 1:
        site.replace(pieces[0])
    else:
        site.replace(site.result("concatenate", *pieces, dimensions=(dimension,)))
    return True


def _part(site: Site, source: Instruction, dimension: int, begin: int, end: int) -> Instruction:
    dims = source.array.dims
    if (begin, end) == (0, dims[dimension]):
        return source
    ranges = [SliceRange(0, size) for size in dims]
    ranges[dimension] = SliceRange(begin, end)
    shape = row_major(source.array, tuple(one.size for one in ranges))
    return site.make("slice", source, shape=shape, slice=tuple(ranges))

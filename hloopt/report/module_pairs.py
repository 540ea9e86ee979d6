"""Which module of one dump corresponds to which of another: numbers and names differ between versions."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.dumps import parse_name
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.types import without_layout

__all__ = ["GivenModule", "match_modules"]


@dataclass(frozen=True)
class GivenModule:
    """A module and the file it was read from."""

    file: str
    module: Module

    @property
    def label(self) -> Hashable:
        """The directory, and what XLA calls the module there: the same in all stages of one compilation."""
        path = Path(self.file)
        parts = parse_name(path.name)
        return (
            None if parts.number is None else (str(path.parent.resolve()), parts.number, parts.name)
        )


def match_modules(
    before: Sequence[GivenModule], after: Sequence[GivenModule]
) -> tuple[list[tuple[GivenModule, GivenModule]], list[GivenModule], list[GivenModule]]:
    """Pairs in the order of ``before``, and what is left of either side.

    First what is one module of one dump, then files that users gave the same name, then modules that are
    equal, then those of the same name that also have the same ops of the program, or shapes, or nothing else;
    in the end those that have the same ops.
    """
    pairs: dict[int, tuple[GivenModule, GivenModule]] = {}
    left, right = dict(enumerate(before)), dict(enumerate(after))
    for key in _KEYS:
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for number, one in right.items():
            waiting[key(one)].append(number)
        for number, one in list(left.items()):
            found = key(one)
            if found is not None and waiting[found]:
                pairs[number] = one, right.pop(waiting[found].popleft())
                del left[number]
    return [pairs[number] for number in sorted(pairs)], [*left.values()], [*right.values()]


def _label(one: GivenModule) -> Hashable:
    return one.label


def _file_name(one: GivenModule) -> Hashable:
    """Of files that users named: XLA's have numbers, which shift."""
    path = Path(one.file)
    return path.name if parse_name(path.name).number is None else None


def _fingerprint(one: GivenModule) -> Hashable:
    return fingerprint(one.module)


def _name_and_ops(one: GivenModule) -> Hashable:
    ops = _ops(one)
    return None if ops is None else (one.module.name, ops)


def _name_and_shapes(one: GivenModule) -> Hashable:
    entry = one.module.entry
    shapes = (*entry.parameter_shapes, entry.result_shape)
    return one.module.name, tuple(str(without_layout(shape)) for shape in shapes)


def _name(one: GivenModule) -> Hashable:
    return one.module.name


def _ops(one: GivenModule) -> Hashable:
    """The ops of the user's program that the module computes; None where its text names none."""
    names = {
        str(entry.metadata.fields["op_name"])
        for entry in one.module.instructions()
        if entry.metadata is not None and "op_name" in entry.metadata.fields
    }
    return frozenset(names) or None


_KEYS: Final[tuple[Callable[[GivenModule], Hashable], ...]] = (
    _label, _file_name, _fingerprint, _name_and_ops, _name_and_shapes, _name, _ops,
)  # fmt: skip

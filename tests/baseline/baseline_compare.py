"""Two records side by side: what must be equal, and how much longer machine code may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.baseline.baseline_store import Key, Record

__all__ = ["LONGER", "Comparison", "Difference", "compare", "report"]

LONGER = 1.02
"""How many times as many instructions a kernel may have as before."""
_SIZE = "tokens"


@dataclass(frozen=True)
class Difference:
    """What is otherwise: the word of the kind, and how."""

    part: str
    item: str
    kind: str
    word: str
    how: str

    def __str__(self) -> str:
        return f"{self.item}  {self.kind} {self.word}: {self.how}"


@dataclass
class Comparison:
    """Counts by part and kind, and all differences.

    ``compared`` are values; ``silent`` those where the old record has none, because the process hung or died;
    ``instructions`` are those of all kernels, before and after.
    """

    compared: Counter[Key] = field(default_factory=Counter)
    silent: Counter[Key] = field(default_factory=Counter)
    differing: Counter[Key] = field(default_factory=Counter)
    instructions: list[int] = field(default_factory=lambda: [0, 0])
    differences: list[Difference] = field(default_factory=list)
    size: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))


def compare(old: Record, new: Record, wanted: Callable[[str, str, str], bool]) -> Comparison:
    """Everything of the old record whose item, part and kind are wanted."""
    found = Comparison()
    for key, row in sorted(old.rows.items()):
        part, kind = row["part"], row["kind"]
        other = new.rows.get(key, {"found": {}})
        if kind == _SIZE:
            found.size = row["found"], other["found"]
        elif wanted(row["item"], part, kind):
            for word, value in row["found"].items():
                place = part, kind
                if _is_silent(value):
                    found.silent[place] += 1
                    continue
                found.compared[place] += 1
                for how in _differs(value, other["found"].get(word), found.instructions):
                    found.differing[place] += 1
                    found.differences.append(Difference(part, row["item"], kind, word, how))
    return found


def _is_silent(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("no answer: ")


def _differs(old: Any, new: Any, instructions: list[int]) -> Iterator[str]:
    if new is None:
        yield "not in the new record"
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _kernels(old["kernels"], new["kernels"], instructions)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        numbers = [str(at) for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if numbers:
            yield f"other bits in result {', '.join(numbers)}"
    elif old != new:
        yield _otherwise(old, new)


def _otherwise(old: Any, new: Any) -> str:
    said = [value if isinstance(value, str) and ": " in value else "" for value in (old, new)]
    if not any(said):
        return "another text" if isinstance(old, str) else f"{len(new)} results, not {len(old)}"
    return f"{said[1] or 'an answer'}; before: {said[0] or 'an answer'}"


def _kernels(
    old: dict[str, list[int]], new: dict[str, list[int]], instructions: list[int]
) -> Iterator[str]:
    for name, (_, spills, _, length) in old.items():
        if name not in new:
            yield f"kernel {name} is gone"
            continue
        _, spills_now, _, length_now = new[name]
        instructions[0] += length
        instructions[1] += length_now
        if spills_now > spills:
            yield f"{name} spills {spills_now} bytes, before {spills}"
        if length_now > LONGER * length:
            yield f"{name} has {length_now} instructions, before {length}: {length_now / length - 1:+.1%}"
    yield from (f"kernel {name} is new" for name in new if name not in old)


def report(found: Comparison, most: int = 40) -> Iterator[str]:
    """The table, the differences (``most`` of them), and the figures that only tell."""
    yield f"{'part':<18} {'kind':<9} {'compared':>9} {'differ':>7} {'silent':>7}"
    for part, kind in sorted(found.compared.keys() | found.silent.keys()):
        key = part, kind
        yield (
            f"{part:<18} {kind:<9} {found.compared[key]:>9} {found.differing[key]:>7} {found.silent[key]:>7}"
        )
    before, after = found.instructions
    if before:
        yield f"instructions of all kernels: {before:,} -> {after:,} ({after / before - 1:+.2%})"
    old, new = found.size
    for name in old.keys() & new.keys():
        yield f"{name}: {old[name]:,} -> {new[name]:,} ({new[name] / old[name] - 1:+.2%})"
    yield from map(str, found.differences[:most])
    if len(found.differences) > most:
        yield f"... and {len(found.differences) - most} more"

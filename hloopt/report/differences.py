"""What differs between two modules, instruction by instruction: the last part of ``hloopt diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.differences import Difference
from hloopt.ir import Instruction
from hloopt.report.console import say

__all__ = ["differences_json", "show_differences"]

_MOST: Final = 12
_ONE_SIDED: Final = frozenset({"instruction", "computation"})


def differences_json(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Differences as JSON values; ``old`` and ``new`` are text."""
    return [
        {
            "what": one.what,
            "computation": one.computation or None,
            "before": _instruction_json(one.before),
            "after": _instruction_json(one.after),
            "old": one.old or None,
            "new": one.new or None,
        }
        for one in found
    ]


def _instruction_json(entry: Instruction | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    module = entry.computation.module if entry.computation is not None else None
    return {
        "name": entry.name,
        "opcode": entry.opcode,
        "line": _line(entry) or None,
        "place": module.user_line(entry.metadata) if module is not None else "",
    }


def _line(entry: Instruction) -> int:
    """The line in the module's text, 0 where it was not read from one."""
    module = entry.computation.module if entry.computation is not None else None
    if module is None or module.source is None or entry.offset < 0:
        return 0
    return module.source.line(entry.offset)


def show_differences(
    found: Sequence[Difference], instructions: int, console: Console, *, every: bool = False
) -> None:
    """Print what differs in both modules, then what only one of them has.

    Of many only the first; of modules that have little in common, by their number of ``instructions``, only how
    many; all of them where ``every`` is wanted.
    """
    changed = [one for one in found if one.what not in _ONE_SIDED]
    single = [one for one in found if one.what in _ONE_SIDED]
    if not found:
        return
    parts = [f"{len({_place(one) for one in changed})} changed"] if changed else []
    counts = Counter("before" if one.old else "after" for one in single)
    parts += [f"{counts[side]} only {side}" for side in ("before", "after") if counts[side]]
    _print(console, f"\nthe modules differ: {', '.join(parts)}")
    strange = len(found) > _MOST and 2 * len(found) > instructions
    shown = changed if every else changed[: 0 if strange else _MOST]
    rest = [] if len(single) > _MOST and not every else single
    for _, group in groupby([*shown, *rest], key=_place):
        for line in _lines(list(group)):
            _print(console, line)
    left = len(found) - len(shown) - len(rest)
    if left:
        _print(console, "  --all lists them" if left == len(found) else f"and {left} more (--all)")


def _place(one: Difference) -> tuple[Any, ...]:
    if one.before is None and one.after is None:
        return one.what, one.computation
    return one.before, one.after


def _lines(group: Sequence[Difference]) -> Iterator[str]:
    first = group[0]
    if first.what in _ONE_SIDED:
        side, text = ("-", first.old) if first.old else ("+", first.new)
        entry = first.before or first.after
        name = f"%{entry.name} = " if entry is not None else f"{first.what} "
        yield f"  {side} {name}{text}{_where(entry, first.computation)}"
        return
    if first.before is None or first.after is None:
        where = f" of %{first.computation}" if first.computation else ""
        yield f"  {first.what}{where}: {_sides(first)}"
        return
    before, after = first.before, first.after
    renamed = f" (after: %{after.name})" if after.name != before.name else ""
    lines = f"line {_line(before)}" if _line(before) else ""
    if lines and _line(after) != _line(before):
        lines += f", after: line {_line(after)}" if _line(after) else ""
    user = _user_line(before) or _user_line(after)
    place = ", ".join(part for part in (lines, f"in %{first.computation}", user) if part)
    yield f"  %{before.name}{renamed}, {place}"
    for one in group:
        yield f"      {one.what}: {_sides(one)}"


def _sides(one: Difference) -> str:
    return f"{one.old or 'none'} before, {one.new or 'none'} after"


def _where(entry: Instruction | None, computation: str) -> str:
    if entry is None:
        return ""
    line = f", line {_line(entry)}" if _line(entry) else ""
    user = f", {_user_line(entry)}" if _user_line(entry) else ""
    return f"{line}, in %{computation}{user}"


def _user_line(entry: Instruction) -> str:
    module = entry.computation.module if entry.computation is not None else None
    return module.user_line(entry.metadata).rpartition("/")[2] if module is not None else ""


def _print(console: Console, line: str) -> None:
    say(console, line)

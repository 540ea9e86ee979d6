"""What each run of a pass changed of the text of a module: a watcher that keeps differences only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.report.picture import short_text
from hloopt.rewrite import PassRun, Watcher
from hloopt.rewrite.spec import pass_text

__all__ = ["PassDiffs"]

_MOST_LINES: Final = 400
"""Lines of one run that are kept: more of them nobody reads."""


@dataclass
class PassDiffs(Watcher):
    """The runs of one pipeline over one module, as JSON values, with the instructions that each changed."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[str, dict[str, tuple[object, str]]] = field(default_factory=dict)

    def begin(self, module: Module) -> None:
        self._known = {
            home.name: {one.name: (_made_of(one), short_text(one)) for one in home}
            for home in module
        }

    def after(self, run: PassRun, module: Module) -> None:
        diff = list(self._changes(module)) if run.changed else []
        left, blocks = _MOST_LINES, []
        for computation, lines in diff:
            if left > 0:
                blocks.append({"computation": computation, "lines": lines[:left]})
            left -= len(lines)
        self.runs.append({
            "number": run.number,
            "name": run.instance.name,
            "title": f"run {run.number}: {pass_text(run.instance)}",
            "changed": run.changed,
            "seconds": run.seconds,
            "instructions": run.instructions,
            "hits": run.hits.most_common(),
            "diff": blocks,
            "more": max(-left, 0),
        })  # fmt: skip

    def _changes(self, module: Module) -> Iterator[tuple[str, list[str]]]:
        """By computation the lines that went, and those that came in their place."""
        known = self._known
        self._known = {}
        for home in module:
            before, now = known.pop(home.name, {}), dict[str, tuple[object, str]]()
            lines = []
            for one in home:
                mark, had = _made_of(one), before.pop(one.name, None)
                if had is not None and had[0] == mark:
                    now[one.name] = had
                    continue
                now[one.name] = mark, short_text(one)
                if had is not None and had[1] != now[one.name][1]:
                    lines.append(f"- {had[1]}")
                if had is None or had[1] != now[one.name][1]:
                    lines.append(f"+ {now[one.name][1]}")
            lines += [f"- {text}" for _, text in before.values()]
            self._known[home.name] = now
            if lines:
                yield home.name, lines
        for name, gone in known.items():
            yield name, [f"- {text}" for _, text in gone.values()]


def _made_of(instruction: Instruction) -> tuple[object, ...]:
    """What the text is made of; values of attributes are compared by identity, as they are never changed."""
    return (
        instruction.opcode,
        instruction.shape,
        instruction.is_root,
        tuple(one.name for one in instruction.operands),
        tuple(one.name for one in instruction.control_predecessors),
        *((name, _Same(value)) for name, value in instruction.attributes.items()),
    )


class _Same:
    """A value that is equal to itself only, and is kept as long as it is compared."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

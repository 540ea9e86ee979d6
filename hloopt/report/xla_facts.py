"""What is known of XLA's own fusion decisions, as JSON values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from hloopt.analysis.value_digests import ValueDigests
from hloopt.errors import UsageError
from hloopt.fusion.decision import REASONS
from hloopt.fusion.matching import match_kernels
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.xla_story import Border, Moment, XlaStory, readers
from hloopt.ir import Instruction, Module, build
from hloopt.report.cost import KernelCost, Predictor, kernel_costs, source_line
from hloopt.report.fusion_diff import computes
from hloopt.rewrite.spec import did_you_mean
from hloopt.runtime.kernels import is_kernel

__all__ = ["UNKNOWN", "XlaDump", "instruction_facts", "pair_facts", "summary_facts"]

MOST: Final = 10
"""Refusals and differences that a summary tells, the most costly ones."""

_FIGURE = re.compile(r"\{[^}]*\}")

UNKNOWN: Final = (
    "why XLA decided so is not in this text: that is in priority_fusion_dump.txt, which XLA writes with "
    "--xla_dump_to=DIR --xla_dump_hlo_pass_re=priority-fusion"
)


@dataclass(frozen=True)
class XlaDump:
    """What there is of one module; one of story and after at least.

    before  right before XLA's priority fusion, where there is a log
    story   the log, replayed
    after   as XLA left it in the end
    """

    before: Module | None
    story: XlaStory | None
    after: Module | None
    predictor: Predictor

    @cached_property
    def names_after(self) -> _NamesAfter:
        """Where values are in the module XLA ended with."""
        return _NamesAfter(self.after)

    @cached_property
    def digests_before(self) -> ValueDigests | None:
        """Of the module before fusion."""
        return ValueDigests(self.before) if self.before is not None else None

    @cached_property
    def digests_fused(self) -> ValueDigests | None:
        """Of the module after priority fusion."""
        return ValueDigests(self.story.module) if self.story is not None else None


class _NamesAfter:
    """Kernels and lines of values in the module XLA ended with, found by what is computed."""

    def __init__(self, module: Module | None) -> None:
        self.module = module
        self.kernels: dict[str, Instruction] = {}
        self._held: dict[bytes, list[tuple[Instruction, Instruction]]] = {}
        if module is None:
            return
        for kernel, digests in ValueDigests(module).kernels.items():
            if is_kernel(kernel):
                self.kernels[kernel.name] = kernel
                for digest, inner in digests.inner:
                    self._held.setdefault(digest, []).append((kernel, inner))

    def of(self, digests: Iterable[bytes]) -> list[Instruction]:
        """The kernels that compute the first of these values that any computes."""
        for digest in digests:
            if digest in self._held:
                return list(dict.fromkeys(kernel for kernel, _ in self._held[digest]))
        return []

    def line(self, digests: Iterable[bytes]) -> str:
        """The user's line of the first of these values that has one."""
        if self.module is None:
            return ""
        for digest in digests:
            for _, inner in self._held.get(digest, ()):
                line = self.module.user_line(inner.metadata)
                if line:
                    return line
        return ""

    def named(self, name: str) -> list[Instruction]:
        """The kernels that are called so, or compute something that is.  Raises ``UsageError`` for none."""
        if name in self.kernels:
            return [self.kernels[name]]
        pairs = [pair for held in self._held.values() for pair in held]
        found = [kernel for kernel, inner in pairs if inner.name == name]
        if not found:
            known = [*self.kernels, *(inner.name for _, inner in pairs)]
            raise UsageError(
                f"the module XLA ended with computes nothing called '{name}'{did_you_mean(name, known)}"
            )
        return list(dict.fromkeys(found))


def _digests(found: ValueDigests | None, instruction: Instruction | None) -> list[bytes]:
    """What an instruction computes: its results first."""
    kernel = (
        found.kernels.get(instruction) if found is not None and instruction is not None else None
    )
    if kernel is None:
        return []
    return [*kernel.outputs, *(digest for digest, _ in reversed(kernel.inner))]


def _kernel_facts(dump: XlaDump, kernel: Instruction) -> dict[str, Any]:
    """A kernel after priority fusion, with its name and line in the end."""
    digests = _digests(dump.digests_fused, kernel)
    final = dump.names_after.of(digests)
    return {
        "name": kernel.name,
        "computes": computes(kernel),
        "line": dump.names_after.line(digests) or source_line(_module(kernel), kernel),
        "after": [one.name for one in final],
    }


def _module(instruction: Instruction) -> Module:
    home = instruction.computation
    assert home is not None, "of a computation"
    assert home.module is not None, "of a module"
    return home.module


def _meaning(code: str) -> str:
    """A reason in our words; XLA's log does not tell its figures."""
    return _FIGURE.sub("…", REASONS.get(code, ""))


def _moment_facts(moment: Moment | None) -> dict[str, Any] | None:
    if moment is None:
        return None
    times = moment.times
    return {
        "step": moment.number,
        "place": moment.place,
        "action": moment.action,
        "producer": moment.producer,
        "consumers": list(moment.consumers),
        "fusion": moment.fusion or None,
        "unfused_us": times.unfused_us if times is not None else None,
        "fused_us": times.fused_us if times is not None else None,
        "gain_us": moment.gain_us,
        "words": moment.words,
        "code": moment.code,
        "meaning": _meaning(moment.code),
    }


def _border_facts(dump: XlaDump, border: Border) -> dict[str, Any]:
    """A result between kernels: what going through memory costs at most, and XLA's last word on it."""
    target = dump.predictor.target
    passes = 1 + len(border.readers)
    cost = dump.predictor.launch_seconds + passes * border.bytes / target.memory_bandwidth
    last = border.last
    if last is not None and last.gain_us is not None:
        cost = max(0.0, last.gain_us * 1e-6)
    return {
        "producer": _kernel_facts(dump, border.producer),
        "readers": [reader.name for reader in border.readers],
        "bytes": border.bytes,
        "at_most_seconds": cost,
        "last": _moment_facts(last),
    }


def instruction_facts(dump: XlaDump, name: str) -> dict[str, Any]:
    """Where an instruction is computed, and every step that names it.

    Raises ``UsageError`` for a name that nothing had.
    """
    story = dump.story
    if story is None:
        homes = dump.names_after.named(name)
        return {"name": name, "kernels": [_after_facts(dump, one) for one in homes], "steps": None}
    kernels = story.kernels
    homes = [kernels[home] for home in story.kernels_of(name) if home in kernels]
    names = dict.fromkeys((name, *(home.name for home in homes)))
    steps = sorted(
        {moment.number: moment for one in names for moment in story.about(one)}.values(),
        key=lambda moment: moment.number,
    )
    return {
        "name": name,
        "kernels": [_kernel_facts(dump, home) for home in homes],
        "steps": [_moment_facts(step) for step in steps],
        "last": [_moment_facts(story.last_word(home.name)) for home in homes],
    }


def _after_facts(dump: XlaDump, kernel: Instruction) -> dict[str, Any]:
    line = source_line(_module(kernel), kernel)
    return {"name": kernel.name, "computes": computes(kernel), "line": line, "after": [kernel.name]}


def pair_facts(dump: XlaDump, first: str, second: str) -> dict[str, Any]:
    """Whether two instructions are in one kernel; since when, or what stands between them.

    Raises ``UsageError`` for a name that nothing had.
    """
    story = dump.story
    if story is None:
        return _pair_after(dump, first, second)
    relation = story.relation(first, second)
    kernels = story.kernels
    borders = {border.producer.name: border for border in story.borders()}
    later = [] if relation.together else _joined_later(dump, first, second)
    return {
        "first": first,
        "second": second,
        "together": [_kernel_facts(dump, kernels[name]) for name in relation.together],
        "joined": _moment_facts(relation.joined),
        "price": _moment_facts(relation.price),
        "path": [_kernel_facts(dump, kernels[name]) for name in relation.path],
        "reverse": relation.reverse,
        "borders": [_border_facts(dump, borders[name]) for name in relation.path[:-1]],
        "joined_later": [kernel.name for kernel in later],
        "known": True,
    }


def _joined_later(dump: XlaDump, first: str, second: str) -> list[Instruction]:
    """Kernels in the end that compute both, though priority fusion left them apart."""
    homes = []
    for name in (first, second):
        known = dump.before.entry.by_name.get(name) if dump.before is not None else None
        homes.append(dump.names_after.of(_digests(dump.digests_before, known)))
    return [kernel for kernel in homes[0] if kernel in homes[1]]


def _pair_after(dump: XlaDump, first: str, second: str) -> dict[str, Any]:
    """What the module in the end tells by itself."""
    homes = [dump.names_after.named(name) for name in (first, second)]
    together = [kernel for kernel in homes[0] if kernel in homes[1]]
    path: list[Instruction] = []
    reverse = False
    if not together:
        for reverse in (False, True):
            starts, ends = homes[::-1] if reverse else homes
            direct = ((one, reader) for one in starts for reader in readers(one) if reader in ends)
            path = list(next(direct, ()))
            if path:
                break
    return {
        "first": first,
        "second": second,
        "together": [_after_facts(dump, kernel) for kernel in together],
        "joined": None,
        "price": None,
        "path": [_after_facts(dump, kernel) for kernel in path],
        "reverse": reverse and bool(path),
        "borders": [],
        "joined_later": [],
        "known": False,
    }


def summary_facts(dump: XlaDump) -> dict[str, Any]:
    """What XLA did in all, its most costly refusals, and where hloopt would decide otherwise."""
    story = dump.story
    if story is None:
        assert dump.after is not None, "there is a log or a module"
        rows = kernel_costs(dump.after, dump.predictor)
        return {
            "known": False,
            "device": dump.predictor.target.title,
            "kernels_after": len(rows),
            "seconds": _sum(rows),
        }
    actions = Counter(moment.action for moment in story.moments)
    borders = [_border_facts(dump, border) for border in story.borders()]
    borders.sort(key=lambda row: -row["at_most_seconds"])
    last = Counter(
        row["last"]["code"] or row["last"]["words"]
        for row in borders
        if row["last"] is not None and row["last"]["action"] == "refused"
    )
    assert dump.before is not None, "a log has the module before fusion"
    return {
        "known": True,
        "steps": dict(actions),
        "kernels_before": len(kernel_costs(dump.before)),
        "kernels_fused": len(kernel_costs(story.module)),
        "kernels_after": len(dump.names_after.kernels) if dump.after is not None else None,
        "reasons": [
            {"code": code, "count": count, "meaning": _meaning(code)}
            for code, count in last.most_common()
        ],
        "refusals": borders[:MOST],
        "ours": _ours(dump, dump.before, story.module),
    }


def _ours(dump: XlaDump, before: Module, theirs: Module) -> dict[str, Any]:
    """The kernels that our priority fusion makes otherwise, with the times of the same model."""
    model = dump.predictor.model
    assert model is not None, "XLA's devices have blocks and threads"
    ours = build.clone_module(before)
    PriorityFusion(cost_model=model.name).fuse(ours, device=dump.predictor.target)
    rows = [kernel_costs(module, dump.predictor) for module in (theirs, ours)]
    costs = [{row.instruction: row for row in side} for side in rows]
    groups = match_kernels(
        theirs,
        [row.instruction for row in rows[0]],
        ours,
        [row.instruction for row in rows[1]],
    )
    found: list[dict[str, Any]] = []
    for group in groups:
        if group.status == "same":
            continue
        sides = (group.before, group.after)
        spent = [
            _sum([costs[side][kernel] for kernel in kernels]) for side, kernels in enumerate(sides)
        ]
        found.append(
            {
                "status": group.status,
                "xla": [_kernel_facts(dump, kernel) for kernel in group.before],
                "ours": [
                    {"name": kernel.name, "computes": computes(kernel)} for kernel in group.after
                ],
                "xla_seconds": spent[0],
                "our_seconds": spent[1],
                "gain_seconds": spent[0] - spent[1],
            }
        )
    found.sort(key=lambda row: -abs(row["gain_seconds"]))
    return {
        "xla_seconds": _sum(rows[0]),
        "our_seconds": _sum(rows[1]),
        "xla_kernels": len(rows[0]),
        "our_kernels": len(rows[1]),
        "differences": len(found),
        "largest": found[:MOST],
    }


def _sum(rows: Sequence[KernelCost]) -> float:
    return sum(row.seconds for row in rows)

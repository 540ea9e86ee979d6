"""XLA's dump of one module: its log replayed, what it ended with, and what hloopt makes of the same."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

from hloopt.analysis.value_digests import ValueDigests
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.matching import KernelGroup, match_kernels
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.xla_history import XlaHistory
from hloopt.ir import Instruction, Module, build
from hloopt.kernels import is_kernel
from hloopt.kernels.costs import KernelCost, kernel_costs
from hloopt.report.fusion_diff import computes
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.rewrite.spec import did_you_mean

__all__ = ["Ours", "XlaDump", "kernel_facts"]

_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True)
class XlaDump:
    """What there is of one module; one of history and after at least.

    before  right before XLA's priority fusion, where there is a log
    history   the log, replayed
    after   as XLA left it in the end
    is_cpu  whether XLA's CPU compiler made it, which prices no fusion and logs none
    """

    before: Module | None
    history: XlaHistory | None
    after: Module | None
    predictor: Predictor
    is_cpu: bool = False

    def values(self, name: str) -> list[Hashable]:
        """What an instruction before fusion is found by in other modules; nothing for other names."""
        known = self._before.get(name)
        return [] if known is None or self._digests is None else _keys(self._digests, known)

    @cached_property
    def _before(self) -> dict[str, Instruction]:
        if self.before is None:
            return {}
        computations = fusible_computations(self.before)
        return {entry.name: entry for computation in computations for entry in computation}

    @cached_property
    def _digests(self) -> ValueDigests | None:
        return ValueDigests(self.before) if self.before is not None else None

    @cached_property
    def ours(self) -> Ours | None:
        """What our priority fusion makes of the module before fusion; None without a log."""
        if self.before is None or self.history is None:
            return None
        return Ours(self.before, self.history.module, self.predictor)

    @cached_property
    def names_after(self) -> _Kernels:
        """Where values are in the module XLA ended with."""
        return _Kernels(self.after)

    @cached_property
    def digests_fused(self) -> ValueDigests | None:
        """Of the module after priority fusion."""
        return ValueDigests(self.history.module) if self.history is not None else None


def _keys(digests: ValueDigests, kernel: Instruction) -> list[Hashable]:
    """What a kernel is found by in another module, the surest first.

    The digests of its results, the name of its last instruction (for what lies behind something that later
    passes have changed), the digests of all else that it computes.
    """
    found = digests.kernels.get(kernel)
    if found is None:
        return []
    inner = list(reversed(found.inner))
    last = [_name_key(entry) for _, entry in inner[:1]]
    return [*found.outputs, *last, *(digest for digest, _ in inner)]


def _name_key(instruction: Instruction) -> Hashable:
    """Copies of an instruction have another number at the end of its name."""
    return instruction.opcode, _NUMBER.sub("", instruction.name)


class _Kernels:
    """Kernels of a module and lines of values, found by what is computed."""

    def __init__(self, module: Module | None) -> None:
        self.module = module
        self.kernels: dict[str, Instruction] = {}
        self._held: dict[Hashable, list[tuple[Instruction, Instruction]]] = {}
        if module is None:
            return
        for kernel, digests in ValueDigests(module).kernels.items():
            if is_kernel(kernel):
                self.kernels[kernel.name] = kernel
                for digest, inner in digests.inner:
                    for key in (digest, _name_key(inner)):
                        self._held.setdefault(key, []).append((kernel, inner))

    def of(self, keys: Iterable[Hashable]) -> list[Instruction]:
        """The kernels that compute the first of these values that any computes."""
        for key in keys:
            if key in self._held:
                return list(dict.fromkeys(kernel for kernel, _ in self._held[key]))
        return []

    def line(self, keys: Iterable[Hashable]) -> str:
        """The user's line of the first of these values that has one."""
        if self.module is None:
            return ""
        for key in keys:
            for _, inner in self._held.get(key, ()):
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


class Ours:
    """What our priority fusion makes of a module, beside what XLA's made.

    plan    of our run
    groups  the kernels of both that are not the same, with their times in seconds
    """

    def __init__(self, before: Module, theirs: Module, predictor: Predictor) -> None:
        model = predictor.model
        self.module = build.clone_module(before)
        fusion = PriorityFusion(cost_model=model.name)
        self.plan: FusionPlan = fusion.fuse(self.module, device=predictor.target)
        self.rows = tuple(kernel_costs(module, predictor) for module in (theirs, self.module))
        costs = [{row.instruction: row for row in side} for side in self.rows]
        groups = match_kernels(
            theirs,
            [row.instruction for row in self.rows[0]],
            self.module,
            [row.instruction for row in self.rows[1]],
        )
        self.groups: list[tuple[KernelGroup, float, float]] = [
            (
                group,
                _sum(costs[0][kernel] for kernel in group.before),
                _sum(costs[1][kernel] for kernel in group.after),
            )
            for group in groups
            if group.status != "same"
        ]

    @cached_property
    def kernels(self) -> _Kernels:
        """Our kernels."""
        return _Kernels(self.module)

    def seconds(self) -> tuple[float, float]:
        """Of all XLA's kernels and of all of ours."""
        return _sum(self.rows[0]), _sum(self.rows[1])


def _sum(rows: Iterable[KernelCost]) -> float:
    return sum(row.seconds for row in rows)


def kernel_facts(dump: XlaDump, kernel: Instruction) -> dict[str, Any]:
    """A kernel after priority fusion, or without a log in the end, with its name and line in the end."""
    keys = _keys(dump.digests_fused, kernel) if dump.digests_fused is not None else []
    final = dump.names_after.of(keys) if dump.history is not None else [kernel]
    lines = kernel_lines(_module_of(kernel), kernel)
    return {
        "name": kernel.name,
        "computes": computes(kernel),
        "line": dump.names_after.line(keys) or next(iter(lines), ""),
        "lines": list(lines),
        "after": [one.name for one in final],
    }


def _module_of(instruction: Instruction) -> Module:
    home = instruction.home
    assert home.module is not None, "of a module"
    return home.module

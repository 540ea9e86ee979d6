"""What a study is to do: modules, strategies, devices."""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.fusion.lock_file import Decisions
from hloopt.kernels.selection import KernelSelection
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import aimed

__all__ = ["MEASURED", "ModuleRow", "Strategy", "StrategyKind", "StudyPlan"]

MEASURED: Final = ("cpu", "native", "gpu", "xla-cpu")
"""Devices whose time is taken; on ``emulator`` results are verified, every other name is predicted."""

StrategyKind: TypeAlias = Literal["strategy", "ladder", "ablation"]


@dataclass(frozen=True)
class Strategy:
    """One way of optimising.

    name       unique in the study
    label      what a row is called among its family
    pipeline   the passes
    text       the passes as they can be typed
    kind       of the row: a strategy by itself, a rung of a ladder, a pipeline with something left out
    family     the strategy of the file that this row is one of; its own name where it stands alone
    before     on a ladder: the row below which this one adds something
    whole      of an ablation: the row from which something was left out
    modules    patterns of the names of modules it is for; all where there are none
    selection  which kernels run it on ``gpu`` and ``emulator``, beside the target
    lock       what is fused with what, where a lock file says it
    rules      texts of ``--fusion-rule`` that count for it
    """

    name: str
    label: str
    pipeline: Pipeline
    text: str
    kind: StrategyKind = "strategy"
    family: str = ""
    before: str = ""
    whole: str = ""
    modules: tuple[str, ...] = ()
    selection: KernelSelection = field(default_factory=KernelSelection)
    lock: Decisions | None = None
    rules: tuple[str, ...] = ()

    def is_for(self, module: str) -> bool:
        """Whether it is for the module of a name."""
        return not self.modules or any(fnmatchcase(module, one) for one in self.modules)

    def aimed(self, target: str | None) -> Pipeline:
        """The pipeline whose passes decide for a device, where they name none themselves; as it is for None."""
        if target is None:
            return self.pipeline
        return Pipeline(aimed(self.pipeline.entries, target))

    def digest(self) -> str:
        """Equal for strategies that do the same, files that they name included."""
        files = [text.partition(":")[0] for text in self.rules]
        files += [self.lock.name] if self.lock is not None else []
        parts = [self.name, self.text, str(self.pipeline), *self.rules, str(self.selection)]
        found = blake2b("\0".join(parts).encode(), digest_size=6)
        for path in map(Path, files):
            if path.is_file():
                found.update(path.read_bytes())
        return found.hexdigest()

    @property
    def chooses_kernels(self) -> bool:
        """Whether it says more of kernels than what the device does by itself."""
        return bool(self.selection.kernel or self.selection.selector != KernelSelection.selector)


@dataclass(frozen=True)
class ModuleRow:
    """A module of the file: ``variant_of`` is the name of the one whose baseline counts for it, too.

    ``inputs`` is an .npz or a folder, None for what lies beside the file.  ``rtol`` and ``atol`` are of
    results recorded there; None leaves them to the element type.
    """

    file: str
    name: str
    variant_of: str = ""
    inputs: str | None = None
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class StudyPlan:
    """All of it; ``baseline`` is the name of the strategy that ratios are to.

    ``devices`` and ``cost_model`` are None where the file leaves them open.
    """

    strategies: tuple[Strategy, ...]
    baseline: str
    modules: tuple[ModuleRow, ...] = ()
    devices: tuple[str, ...] | None = None
    cost_model: str | None = None
    title: str = ""

    def strategy(self, name: str) -> Strategy:
        """The strategy of a name."""
        return next(one for one in self.strategies if one.name == name)

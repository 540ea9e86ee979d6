"""Kernel selection as the options of a command configure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from hloopt.backends.device_compile import choices_of, lock_entries, lower, notes_of
from hloopt.backends.trial import try_kernel
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.dataclass import dataclass
from hloopt.driver.writing import write_text
from hloopt.errors import UsageError
from hloopt.fusion.lock_file import decisions_text, head_text, read_tables
from hloopt.fusion.strategies import has_strategy
from hloopt.kernels.lock import lock_text
from hloopt.kernels.registry import registered
from hloopt.kernels.selection import Choice, KernelSelection
from hloopt.kernels.selection.selectors import load_rule
from hloopt.kernels.user import load_kernels, verify_with
from hloopt.rewrite.entries import select
from hloopt.targets import find_gpu, find_target
from hloopt.targets.target import HOST

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hloopt.driver.options import KernelOptions
    from hloopt.fusion.lock_adviser import LockWatcher
    from hloopt.ir import Module
    from hloopt.kernels.lock import LockEntry
    from hloopt.rewrite import Pipeline, PipelineReport

__all__ = ["Selecting", "selecting"]


@dataclass
class Selecting:
    """Kernel selection by options; ``is_given``: whether there were any.  ``entries`` are for the lock file,
    ``has_chosen`` says whether there is anything about kernels in it.

    ``fixed`` options are the command's own; ``has_files`` says that kernels were read from files.
    ``notes`` are for stderr.
    """

    options: dict[str, Any]
    fixed: dict[str, Any]
    write_lock: str | None = None
    has_files: bool = False
    entries: list[LockEntry] = field(default_factory=list)
    has_chosen: bool = False
    made: KernelSelection | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def instance(self) -> KernelSelection:
        """The pass, made lazily: a run on the CPU needs none."""
        if self.made is None:
            self.made = KernelSelection(**{**self.options, **self.fixed})
        return self.made

    @property
    def is_native(self) -> bool:
        """Whether kernels are those of the device ``native``."""
        return self.fixed.get("device") == "native"

    @property
    def has_kernels(self) -> bool:
        """Whether there are kernels for the target; else its times can only be predicted."""
        return self.is_native or find_target(self.instance.target).kind == "cuda"

    @property
    def is_given(self) -> bool:
        """Whether any of the options was given, other than a lock file that is about fusion alone."""
        return bool(self.options) or self.write_lock is not None

    def applied(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with the options given to its kernel selections; with one at the end if it has none.

        A lock file of a pipeline that fuses is about that, unless other options are about kernels.  A device
        whose times can only be predicted is for fusion alone, and so is the host: its fusions are still cut and
        joined when a program is made of them, which those with a kernel are not.
        """

        def give(instance: Any) -> Any:
            if isinstance(instance, KernelSelection):
                return replace(instance, **self.options)
            return instance

        if not self.is_given:
            return pipeline
        if any(isinstance(instance, KernelSelection) for instance in pipeline.passes()):
            return type(pipeline)(select(pipeline.entries, give))
        if not self.options and has_strategy(pipeline):
            return pipeline
        if not self.has_kernels or (self.is_native and self.options.keys() <= {"target"}):
            return pipeline
        return type(pipeline)((*pipeline.entries, self.instance))

    def choose(self, module: Module) -> tuple[Module, list[Choice], list[str]]:
        """Make a module ready for a device and choose kernels: a copy that has them, the choices, and notes."""
        ready, report = lower(module, self.instance)
        self.lock(report)
        return ready, choices_of(report), notes_of(report)

    def predictor(self) -> Predictor:
        """What predicts the times of kernels on the target, as for every other report."""
        return Predictor(model_for(DEFAULT, find_target(self.instance.target)))

    def lock(self, report: PipelineReport) -> None:
        """Remember what passes chose for the lock file."""
        if self.write_lock is not None:
            self.entries += lock_entries(choices_of(report))
            self.has_chosen |= any(run.instance.name == self.instance.name for run in report.runs)

    def finish(self, watcher: LockWatcher | None = None) -> None:
        """Write the lock file, if one is wanted, with what ``watcher`` saw fused.  Raises ``UsageError``."""
        if self.write_lock is None:
            return
        decisions = (watcher.groups, watcher.unfused, watcher.loops) if watcher else ([], [], [])
        if self.entries or (self.has_chosen and not any(decisions)):
            text = lock_text(self.entries, self.instance.target, self.instance.device)
        else:
            text = head_text({})
        write_text(self.write_lock, text + decisions_text(*decisions), "kernels.toml")


def _is_about_fusion(lock: str) -> bool:
    """Whether a lock file says nothing about kernels.  Raises ``UsageError``."""
    found = read_tables(lock)
    decisions = any(found.get(key) for key in ("fusion", "loop", "unfused", "fuse", "nofuse"))
    return not found.get("kernel") and (decisions or "target" not in found)


def selecting(
    given: KernelOptions,
    enter: Callable[[AbstractContextManager[None]], object],
    *,
    predicted: bool = False,
    **fixed: Any,
) -> Selecting:
    """Kernel selection by the options of a command; ``fixed`` options are the command's own.

    ``enter`` enters a context that lasts as long as the command: in it the kernels of files are known.
    ``predicted`` lets devices pass that kernels are only timed for, never made: where no other option is
    about kernels.  Raises ``UsageError`` for what cannot be, before any module is read.
    """
    options: dict[str, Any] = {
        name: value
        for name in ("target", "kernel", "lock", "frozen")
        if (value := getattr(given, name))
    }
    if given.lock and _is_about_fusion(given.lock):
        options = {name: value for name, value in options.items() if name not in ("lock", "frozen")}
    if given.frozen and not given.lock:
        raise UsageError("--frozen says that a lock file has to suit: give --lock FILE as well")
    verify_with(try_kernel)
    for path in given.kernel_file:
        enter(registered(load_kernels(path)))
    if given.kernel_rule:
        options["rule"] = load_rule(given.kernel_rule)
    if str(options.get("target")).lower() == HOST.name:
        fixed = {"device": "native", "target": HOST.name, **fixed}
    selected = Selecting(options, fixed, given.write_lock, bool(given.kernel_file))
    must_exist = not predicted or options.keys() - {"target"} or given.write_lock
    if options and must_exist and selected.instance.device == "gpu":
        find_gpu(selected.instance.target)
    return selected

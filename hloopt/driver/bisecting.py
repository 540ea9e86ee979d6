"""A bisection from options to the record: the passes of a module, then the kernels of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from hloopt.dataclass import dataclass
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.dumps import DumpModule, pick, read_dump
from hloopt.dumps import Stage as DumpedStage
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.pipelines import Given, parse_pipeline
from hloopt.prover.bisection import Bisection, Examined
from hloopt.prover.checks import CommandCheck, ModuleCheck, ResultCheck
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import snapshot_of, stages_of
from hloopt.prover.eager import EagerSearch, eager_trials
from hloopt.prover.executor import Executor
from hloopt.prover.pipeline_bisect import PipelineSearch
from hloopt.prover.stage_check import StageCheck
from hloopt.prover.trials import TrialInputs, TrialOptions
from hloopt.reading import is_dump
from hloopt.rewrite import Pipeline
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.spelling import first_of

if TYPE_CHECKING:
    from hloopt.kernels.selection import KernelSelection
    from hloopt.proto.snapshot import Snapshot
    from hloopt.prover.kernel_bisect import KernelSearch

__all__ = ["BisectOptions", "Bisecting", "bisect_module", "dump_search", "dumped_modules"]

_WITH_KERNELS = ("native", "gpu", "emulator")


@dataclass(frozen=True)
class BisectOptions:
    """What a bisection of a module is to do.

    ``executor`` has the device whose kernels are searched where passes are right.  ``check`` is a command that
    decides in the place of results; ``executor.seconds`` is how long it may take.  ``eager`` searches inputs on
    which the module gives NaN as a whole and numbers one instruction at a time, or the reverse.

    The rest is for dump directories:
    ``dumped`` is the module of one, as its files are called, ``every`` finds all stages that change results,
    ``expect`` is a file or folder with the results of the compiled program, ``xla_flags`` are ``XLA_FLAGS`` of
    compilations that try the remedy.
    """

    passes: PassOptions = PassOptions()
    kernels: KernelOptions = KernelOptions()
    trials: TrialOptions = TrialOptions()
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    check: str | None = None
    eager: bool = False
    dumped: str | None = None
    every: bool = False
    expect: Path | None = None
    xla_flags: str = ""


@dataclass
class Bisecting:
    """Bisects modules, one after the other; ``at`` is the search that runs, for its ``stage``."""

    options: BisectOptions
    chosen: Chosen
    selection: KernelSelection | None
    at: PipelineSearch | KernelSearch | EagerSearch | None = None

    @classmethod
    def of(
        cls, options: BisectOptions, enter: Callable[[AbstractContextManager[None]], object]
    ) -> Bisecting:
        """``enter`` enters a context that lasts as long as this is used.

        Raises ``UsageError`` and ``DeviceError`` for options that cannot be.
        """
        runs, kernels, selection = options.executor, options.kernels, None
        runs.check()
        is_native = runs.device == "native"
        if runs.device in _WITH_KERNELS and options.check is None:
            # A device's kernels are loaded where they are searched.
            from hloopt.driver.selecting import selecting

            own: dict[str, Any] = {"device": "native", "target": "host"} if is_native else {}
            selection = selecting(kernels, enter, **own).instance
        chosen = choose_passes(options.passes, kernels, "host" if is_native else None)
        return cls(options, chosen, selection)

    @property
    def stage(self) -> str:
        """What it is at; for another thread."""
        return "the module as given" if self.at is None else self.at.stage

    @property
    def examined(self) -> list[Examined]:
        """The runs of passes whose results are known."""
        search = self.at
        return [*search.examined.values()] if isinstance(search, PipelineSearch) else []

    def run(self, module: Module, name: str, snapshot: Snapshot | None = None) -> Bisection:
        """Search the passes, and then the kernels where these are right.

        ``name`` is the file's.  Raises ``UsageError`` where the given module fails already, what running it
        raises, ``UnsupportedError`` for what the device cannot run.
        """
        options, inputs = self.options, list[TrialInputs]()
        if options.eager:
            self.at = EagerSearch(module, eager_trials(module, options.trials))
            return self.at.run(name)
        check: ModuleCheck
        if options.check is not None:
            check = CommandCheck(options.check, options.executor.seconds)
        else:
            inputs += options.trials.all(module, snapshot)
            check = ResultCheck(module, self._stages, inputs, options.tolerance)
        controls = self.chosen.controls
        search = PipelineSearch(module, self._pipeline, check, controls, self._typed_passes())
        self.at = search
        record = search.run(name, tuple(one.origin for one in inputs))
        record = replace(record, notes=(*self.chosen.notes, *record.notes))
        is_over = options.check is not None or self._stages is options.executor
        return record if record.culprits or is_over else self._kernels(module, inputs, record)

    @property
    def _stages(self) -> Executor:
        """What runs the module after each pass: the interpreter, unless XLA is asked for."""
        runs = self.options.executor
        return (
            runs
            if runs.device in ("interpreter", "xla-cpu")
            else replace(runs, device="interpreter")
        )

    @property
    def _pipeline(self) -> Pipeline:
        """The passes that are chosen, and those of the device."""
        own = self.chosen.pipeline.entries
        if self.selection is None:
            return Pipeline(own)
        entries = parse_pipeline(f"device-{self.options.executor.device}").entries[:-1]
        return Pipeline((*own, *entries, self.selection))

    def _kernels(
        self, module: Module, inputs: Sequence[TrialInputs], passes: Bisection
    ) -> Bisection:
        # A device's back end, loaded where its kernels are searched.
        from hloopt.prover.kernel_bisect import KernelSearch

        optimised = clone_module(module)
        self.chosen.run(optimised)
        search = KernelSearch(
            module,
            optimised,
            self.options.executor.device,
            inputs,
            self.selection,
            self.options.tolerance,
            self.chosen.text,
        )
        self.at = search
        record = search.run(passes.file)
        return replace(record, examined=(*passes.examined, *record.examined))

    def _typed_passes(self) -> str:
        """The options that select the pipeline, as they are typed."""
        given = self.options.passes
        words = [f"-O{given.level}"] if given.level is not None else []
        passes = None if given.passes is None else str(given.passes)
        if self.selection is not None:
            device = f"device-{self.options.executor.device}"
            words, passes = [], f"{passes or 'O' + (given.level or '2')},{device}"
        named = {
            "passes": () if passes is None else (passes,),
            "pass-file": given.pass_file,
            "fusion-rule": given.fusion_rule,
            "only": given.only,
            "disable": given.disable,
        }
        words += [f"--{name} {quote(one)}" for name, values in named.items() for one in values]
        return " ".join(words + ["--fast-math"] * given.fast_math)


def dump_search(
    module: DumpModule,
    folder: str,
    options: BisectOptions,
    picked: Sequence[DumpedStage] | None = None,
) -> DumpBisect | StageCheck:
    """The search over the stages of a module of a dump, or over those ``picked``."""
    stages = stages_of(module, picked)
    if options.check is not None:
        command = CommandCheck(options.check, options.executor.seconds)
        return StageCheck(module.label, folder, stages, command)
    return DumpBisect(
        module.label,
        folder,
        stages,
        options.trials,
        options.executor,
        options.tolerance,
        options.every,
        snapshot_of(module),
        flags=options.xla_flags,
        expect=options.expect,
    )


def dumped_modules(folder: str, wanted: str | None) -> list[DumpModule]:
    """The modules of a dump that are picked; of all those that have several stages, where any has.

    Raises ``UsageError`` where there is none.
    """
    try:
        dump = read_dump(Path(folder))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    modules = [module for module, _ in pick(dump, wanted)]
    several = [module for module in modules if len(stages_of(module)) > 1]
    return modules if wanted or not several else several


def _bisect_dump(folder: str, options: BisectOptions) -> Bisection:
    modules = dumped_modules(folder, options.dumped)
    if len(modules) > 1:
        names = first_of([module.label for module in modules], 5)
        raise UsageError(f"{folder}: it has {len(modules)} modules ({names}); name one by 'dumped'")
    return dump_search(modules[0], folder, options).run()


def bisect_module(
    source: Module | str | Path,
    pipeline: Given | None,
    device: str,
    options: BisectOptions | None,
    changes: dict[str, Any],
) -> Bisection:
    """The whole of a bisection, from options to the record; see ``hloopt.bisect``."""
    options = replace(options or BisectOptions(), **changes)
    if pipeline is not None:
        passes = replace(options.passes, level=None, passes=pipeline)
        options = replace(options, passes=passes)
    if device != "interpreter":
        options = replace(options, executor=replace(options.executor, device=device))
    if isinstance(source, str | Path) and is_dump(Path(source)):
        return _bisect_dump(str(source), options)
    task = read_task(source)
    with ExitStack() as stack:
        bisecting = Bisecting.of(options, stack.enter_context)
        return bisecting.run(task.module, task.name, task.snapshot)

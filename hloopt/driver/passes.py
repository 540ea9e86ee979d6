"""Which passes run, and how far, as options say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice, advised
from hloopt.fusion.lock_adviser import LockWatcher
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.strategies import has_strategy
from hloopt.fusion.user_rules import load_rule
from hloopt.ir.build import clone_module
from hloopt.passes.dots.precision import DotPrecision
from hloopt.pipelines import load_passes, make_pipeline, parse_pipeline, read_pipeline
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.entries import aimed, select, with_options
from hloopt.rewrite.runner import check_names
from hloopt.rewrite.spec import did_you_mean, pass_text, value_text
from hloopt.spelling import first_of

if TYPE_CHECKING:
    from hloopt.driver.options import KernelOptions, PassOptions
    from hloopt.fusion.history import Histories
    from hloopt.fusion.lock_file import Decisions
    from hloopt.ir import Module
    from hloopt.rewrite import Pass, PipelineReport, Watcher

__all__ = ["Chosen", "choose_passes", "pass_files"]


@dataclass(frozen=True)
class Chosen:
    """The pipeline that the options choose: ``label`` is its name in tables, ``text`` its full form.

    The controls carry what the user wants fused or kept apart; ``watcher`` records it for a lock file.
    ``notes`` say which of the options have no effect.
    """

    pipeline: Pipeline
    controls: Controls
    label: str
    text: str
    watcher: LockWatcher | None = None
    notes: tuple[str, ...] = ()

    def meant(self, module: Module) -> Module:
        """The module that results are judged by: a copy whose dots say how the pipeline lets them round."""
        rounding = [one for one in self.pipeline.passes() if isinstance(one, DotPrecision)]
        if not rounding:
            return module
        copy = clone_module(module)
        Pipeline(tuple(rounding)).run(copy)
        return copy

    @property
    def histories(self) -> Histories:
        """Where the strategies record what they fuse."""
        advice = self.controls.advice
        assert isinstance(advice, Advice), "there always is one"
        return advice.histories

    def run(
        self,
        module: Module,
        watchers: Sequence[Watcher] = (),
        *,
        verify_each: bool = False,
        remarks: bool = False,
    ) -> PipelineReport:
        """Run the pipeline over a module, in place; the other arguments as in ``Controls``."""
        own = () if self.watcher is None else (self.watcher,)
        controls = replace(self.controls, verify_each=verify_each, remarks=remarks)
        return self.pipeline.run(module, controls=controls, watchers=(*own, *watchers))


def choose_passes(options: PassOptions, kernels: KernelOptions, aim: str | None = None) -> Chosen:
    """The pipeline and controls that options choose.

    ``aim`` is the device that fusions are for where ``--target`` names none.  Raises ``UsageError`` for several
    pipelines at once, and for unknown names.
    """
    extra = pass_files(options.pass_file)
    pipeline, label = _named(options, extra)
    changes = []
    if options.fast_math and options.level != "0":  # which has no passes, and says so
        entries = with_options(pipeline.entries, "the pipeline", (("fast_math", "true"),))
        pipeline = Pipeline(entries)
        changes.append("fast_math=true")
    target = kernels.target or aim
    if target:
        entries = aimed(pipeline.entries, target)
        if entries != pipeline.entries:
            pipeline = Pipeline(entries)
            changes.append(f"target={value_text(target)}")
    shown = _cut(pipeline, options.only, options.disable)
    is_cut = shown != pipeline
    typed = options.passes
    if label and not is_cut:
        label += f"{{{','.join(changes)}}}" if changes else ""
        text = label
    elif isinstance(typed, str) and not (changes or is_cut or _is_long(typed)):
        text = typed.strip()
    else:
        text = str(shown)
    label = "passes" if is_cut else label or "passes"
    if options.precision is not None:
        first = DotPrecision(options.precision, target or DotPrecision.target)
        shown = Pipeline((first, *shown.entries))
        label, text = (
            f"{label} {options.precision}",
            ",".join(filter(None, (pass_text(first), text))),
        )
    decisions = (read_decisions(kernels.lock) or None) if kernels.lock is not None else None
    pipeline, advice, watcher = shown, Advice(), None
    notes: tuple[str, ...] = ()
    if has_strategy(shown):
        rules = [*map(load_rule, options.fusion_rule)]
        pipeline, advice = advised(shown, rules, decisions, frozen=kernels.frozen)
        watcher = LockWatcher(advice.histories) if kernels.write_lock is not None else None
    elif options.fusion_rule or decisions:
        notes = (_unused_note(options.fusion_rule, decisions, kernels.frozen),)
    unused = extra.keys() - {one.name for one in shown.passes()}
    if unused:
        notes += (_not_run_note(options.pass_file, sorted(unused), label),)
    controls = Controls(fuel=options.fuel, stop_after=options.stop_after, advice=advice)
    controls.check(shown.entries)
    return Chosen(pipeline, controls, label, text, watcher, notes)


def _named(options: PassOptions, extra: Mapping[str, type[Pass]]) -> tuple[Pipeline, str]:
    """The pipeline that is named, and its level; empty for one that is spelt out."""
    level, given = options.level, options.passes
    if level is not None and given is not None:
        raise UsageError(f"--passes and -O{level} each name a pipeline: give one of them")
    if given is None:
        label = f"O{level or '2'}"
        return parse_pipeline(label), label
    if not isinstance(given, str):
        return make_pipeline(given), ""
    read = read_pipeline if given.endswith(".toml") else parse_pipeline
    return read(given, extra), ""


def _is_long(typed: str) -> bool:
    """Whether the text of a pipeline is a file's name, or has lines and comments."""
    return typed.endswith(".toml") or bool({"#", "\n"} & set(typed))


def _not_run_note(paths: Sequence[str], names: Sequence[str], label: str) -> str:
    """The note on passes of files that the pipeline does not name."""
    start = label if label.isalnum() else "O2"
    return (
        f"--pass-file {paths[-1]}: {first_of(names, 3)} is not in the pipeline; "
        f"--passes '{start},{names[0]}' runs it"
    )


def _unused_note(rules: Sequence[str], decisions: Decisions | None, frozen: bool) -> str:
    """The note on a lock file where nothing is fused; raises ``UsageError`` for rules and a frozen one."""
    name = f"--fusion-rule {rules[0]}" if rules else decisions.name if decisions else ""
    problem = f"{name}: no pass of the pipeline fuses anything"
    if rules or frozen:
        raise UsageError(problem)
    return problem


def pass_files(paths: Sequence[str]) -> Mapping[str, type[Pass]]:
    """The passes of files.  Raises ``UsageError``."""
    found: dict[str, type[Pass]] = {}
    for path in paths:
        for name, kind in load_passes(path).items():
            if name in found:
                raise UsageError(f"{path}: another file has a '{name}' already")
            found[name] = kind
    return found


def _cut(pipeline: Pipeline, only: tuple[str, ...], disable: tuple[str, ...]) -> Pipeline:
    """The pipeline less what ``--only`` and ``--disable`` leave out."""
    check_names(only, pipeline.entries, "run only")
    names = {instance.name for instance in pipeline.passes()}
    rules = {
        rule
        for instance in pipeline.passes()
        if hasattr(instance, "disable")
        for rule in type(instance).rules
    }
    equations = {"".join(rule.split()): rule for rule in rules}  # blanks do not matter
    disable = tuple(equations.get("".join(name.split()), name) for name in disable)
    wrong = [name for name in disable if name not in names and name not in rules]
    for name in wrong:
        hint = did_you_mean(name, [*names, *rules])
        raise UsageError(f"no pass or rule of the pipeline is called '{name}'{hint}")

    def keep(instance: Pass) -> Pass | None:
        if instance.name in disable or (only and instance.name not in only):
            return None
        off = [rule for rule in disable if rule in type(instance).rules]
        if not off:
            return instance
        present: tuple[str, ...] = instance.disable  # type: ignore[attr-defined]
        return replace(instance, disable=tuple(dict.fromkeys((*present, *off))))  # type: ignore[type-var]

    return Pipeline(select(pipeline.entries, keep))

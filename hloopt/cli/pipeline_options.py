"""Options that say which passes run, and how far: for every command that runs a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.cli.words import complete_fuel, complete_pass, complete_pipeline
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.hand import advised
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.lock_watcher import LockWatcher
from hloopt.fusion.strategies import has_strategy
from hloopt.fusion.user_rules import load_rule
from hloopt.pipelines import load_passes, parse_pipeline, read_pipeline
from hloopt.rewrite import Controls
from hloopt.rewrite.entries import select, with_options
from hloopt.rewrite.runner import check_names
from hloopt.rewrite.spec import did_you_mean, value_text

if TYPE_CHECKING:
    from hloopt.cli.kernel_options import KernelOptions
    from hloopt.fusion.advice import Advice
    from hloopt.ir import Module
    from hloopt.rewrite import Pass, Pipeline, PipelineReport, Watcher

__all__ = ["PASSES", "Chosen", "PassOptions", "chosen", "pass_files"]


def _fuel(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, int]:
    fuel: dict[str, int] = {}
    for text in value:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount.isascii() and amount.isdigit()):
            raise click.BadParameter(f"'{text}' is not of the form PASS=NUMBER", ctx, param)
        if name in fuel:
            raise click.BadParameter(f"the fuel of {name} is given twice", ctx, param)
        fuel[name] = int(amount)
    return fuel


PASSES = OptionGroup(
    "passes",
    option(
        "-O",
        "level",
        type=click.Choice(["0", "1", "2", "3"]),
        help="A named pipeline.  0 does nothing; 1 cleans up and folds what is known; 2, the default, also "
        "simplifies as a whole and fuses as XLA's GPU compiler does; 3 also trades work for fewer kernels "
        "and makes one kernel of a loop.  XLA's own order of passes is --passes xla-gpu-2026.",
    ),
    option(
        "--passes",
        metavar="TEXT|FILE.toml",
        shell_complete=complete_pipeline,
        help="A pipeline, such as 'simplify,fix(cse,dce)', or a file of one.",
    ),
    option(
        "--pass-file",
        multiple=True,
        metavar="FILE.py",
        help="Run a Python file and take the passes it defines (may be repeated).",
    ),
    option(
        "--fast-math",
        is_flag=True,
        help="Let passes change floating-point results as XLA does by default: x/3 becomes x*(1/3), sums "
        "are regrouped.  Without it results keep every bit.",
    ),
    option(
        "--only",
        multiple=True,
        metavar="PASS",
        shell_complete=complete_pass,
        help="Run only this pass of the pipeline (may be repeated).",
    ),
    option(
        "--disable",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_pass,
        help="Leave out a pass, or a rule by its equation (may be repeated).",
    ),
    option(
        "--fuel",
        multiple=True,
        metavar="PASS=N",
        shell_complete=complete_fuel,
        callback=_fuel,
        help="Let a pass make N rewrites in all its runs together, to find the one that matters.",
    ),
    option(
        "--stop-after",
        type=click.IntRange(0),
        metavar="N",
        help="Stop after N runs of passes.",
    ),
    option(
        "--fusion-rule",
        multiple=True,
        metavar="MODULE:FUNCTION",
        help="Let a Python function say what is fused: it gets producer and consumer, and answers True, False, "
        "None or (False, 'reason'); also FILE.py:FUNCTION (may be repeated; the first answer counts).",
    ),
)


@dataclass(frozen=True)
class PassOptions:
    """What the options ``PASSES`` say."""

    level: str | None = None
    passes: str | None = None
    pass_file: tuple[str, ...] = ()
    fast_math: bool = False
    only: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    fuel: Mapping[str, int] = field(default_factory=dict)
    stop_after: int | None = None
    fusion_rule: tuple[str, ...] = ()

    @classmethod
    def given(cls) -> PassOptions:
        """Those of the running command."""
        return cls(**PASSES.given())


@dataclass(frozen=True)
class Chosen:
    """What the options ask for: ``label`` is what a table calls the pipeline, ``text`` says all of it.

    The controls carry what the user wants fused or kept apart; ``watcher`` looks on for a lock file.
    """

    pipeline: Pipeline
    controls: Controls
    label: str
    text: str
    watcher: LockWatcher | None = None

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """What looks on while the passes run."""
        return () if self.watcher is None else (self.watcher,)

    def run(self, module: Module) -> PipelineReport:
        """Run the pipeline over a module, in place."""
        return self.pipeline.run(module, controls=self.controls, watchers=self.watchers)


def chosen(options: PassOptions, kernels: KernelOptions, aim: str | None = None) -> Chosen:
    """The pipeline and controls that options ask for.

    ``aim`` is the device that fusions are for where ``--target`` names none.  Raises ``UsageError`` for several
    pipelines at once, and for names that nothing has.
    """
    pipeline, label = _named(options)
    typed = options.passes
    if typed is not None and (typed.endswith(".toml") or options.fast_math):
        typed = None
    if options.fast_math and options.level != "0":  # which has no passes, and says so
        entries = with_options(pipeline.entries, "the pipeline", (("fast_math", "true"),))
        pipeline = type(pipeline)(entries)
        label = f"{label}{{fast_math=true}}" if label != "passes" else label
    target = kernels.target or aim
    if target and (other := _aimed(pipeline, target)) != pipeline:
        pipeline, typed = other, None
        option = f"target={value_text(target)}"
        label = f"{label[:-1]},{option}}}" if label.endswith("}") else f"{label}{{{option}}}"
        label = "passes" if label.startswith("passes") else label
    shown = _cut(pipeline, options.only, options.disable)
    if shown != pipeline:
        label, typed = "passes", None
    pipeline, advice, watcher = _advised(shown, options.fusion_rule, kernels)
    controls = Controls(fuel=options.fuel, stop_after=options.stop_after, advice=advice)
    controls.check(shown.entries)
    short_name = label
    if label == "passes":
        is_short = typed and not {"#", "\n"} & set(typed)
        short_name = typed.strip() if typed and is_short else str(shown)
    return Chosen(pipeline, controls, label, short_name, watcher)


def _named(options: PassOptions) -> tuple[Pipeline, str]:
    """The pipeline that is named, and what a table calls it."""
    level, text = options.level, options.passes
    if level is not None and text is not None:
        raise UsageError(f"--passes and -O{level} each name a pipeline: give one of them")
    extra = pass_files(options.pass_file)
    if text is None:
        label = f"O{level or '2'}"
        return parse_pipeline(label), label
    read = read_pipeline if text.endswith(".toml") else parse_pipeline
    return read(text, extra), "passes"


def _advised(
    pipeline: Pipeline, rules: Sequence[str], kernels: KernelOptions
) -> tuple[Pipeline, Advice | None, LockWatcher | None]:
    """The pipeline with the fusions of a lock file made first, what is to be fused, and a watcher for a lock.

    Raises ``UsageError`` for rules that cannot be loaded, or that no pass asks.
    """
    decisions = (read_decisions(kernels.lock) or None) if kernels.lock is not None else None
    if not has_strategy(pipeline):
        if rules:
            raise UsageError(f"--fusion-rule {rules[0]}: no pass of the pipeline fuses anything")
        if decisions:
            problem = f"{decisions.name}: no pass of the pipeline fuses anything"
            if kernels.frozen:
                raise UsageError(problem)
            click.echo(f"note: {problem}", err=True)
        return pipeline, None, None
    pipeline, advice = advised(pipeline, [*map(load_rule, rules)], decisions, frozen=kernels.frozen)
    return pipeline, advice, LockWatcher(advice.ledgers) if kernels.write_lock is not None else None


def _aimed(pipeline: Pipeline, target: str) -> Pipeline:
    """The pipeline whose fusion strategies decide for a device, those that name another one left."""

    def give(instance: Any) -> Any:
        if not type(instance).__module__.startswith("hloopt.fusion."):
            return instance
        known = {field.name: field.default for field in fields(instance)}
        own = "target" in known and instance.target == known["target"]
        return replace(instance, target=target) if own else instance

    return type(pipeline)(select(pipeline.entries, give))


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
    rules = _rules(pipeline)
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

    return type(pipeline)(select(pipeline.entries, keep))


def _rules(pipeline: Pipeline) -> set[str]:
    """The equations of the rules that can be left out one by one."""
    return {
        rule
        for instance in pipeline.passes()
        if hasattr(instance, "disable")
        for rule in type(instance).rules
    }

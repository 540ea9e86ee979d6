"""Options that say which passes run, and how far: for every command that runs a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hloopt.cli.fusion_options import LOCKS, advising, fusion_rule_option
from hloopt.cli.words import complete_fuel, complete_pass, complete_pipeline
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.ir import Module
    from hloopt.rewrite import Controls, Pass, Pipeline, PipelineReport, Watcher

__all__ = ["PASS_OPTIONS", "Chosen", "chosen", "pass_file_option", "pass_files", "pipeline_options"]

Function = TypeVar("Function", bound=Callable[..., Any])

PASS_OPTIONS = (
    "level", "passes", "pass_file", "fast_math", "only", "disable", "fuel", "stop_after",
    "fusion_rule",
)  # fmt: skip
"""The names of the parameters, for the groups of a command's help."""

_CHOSEN = "hloopt.chosen"
"""In ``click.Context.meta``: the values of these options by their names."""


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(_CHOSEN, {})[str(param.name)] = value


def _fuel(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    fuel: dict[str, int] = {}
    for text in value:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount.isascii() and amount.isdigit()):
            raise click.BadParameter(f"'{text}' is not of the form PASS=NUMBER", ctx, param)
        if name in fuel:
            raise click.BadParameter(f"the fuel of {name} is given twice", ctx, param)
        fuel[name] = int(amount)
    _keep(ctx, param, fuel)


def _option(*names: str, **keywords: Any) -> Callable[[Function], Function]:
    return click.option(*names, expose_value=False, callback=_keep, **keywords)


pass_file_option = _option(
    "--pass-file",
    "pass_file",
    multiple=True,
    metavar="FILE.py",
    help="Run a Python file and take the passes it defines (may be repeated).",
)

_OPTIONS = (
    _option(
        "-O",
        "level",
        type=click.Choice(["0", "1", "2", "3"]),
        help="A named pipeline.  0 does nothing; 1 cleans up and folds what is known; 2, the default, also "
        "simplifies as a whole and fuses as XLA's GPU compiler does; 3 also trades work for fewer kernels "
        "and makes one kernel of a loop.  XLA's own order of passes is --passes xla-gpu-2026.",
    ),
    _option(
        "--passes",
        metavar="TEXT|FILE.toml",
        shell_complete=complete_pipeline,
        help="A pipeline, such as 'simplify,fix(cse,dce)', or a file of one.",
    ),
    pass_file_option,
    _option(
        "--fast-math",
        is_flag=True,
        help="Let passes change floating-point results as XLA does by default: x/3 becomes x*(1/3), sums "
        "are regrouped.  Without it results keep every bit.",
    ),
    _option(
        "--only",
        multiple=True,
        metavar="PASS",
        shell_complete=complete_pass,
        help="Run only this pass of the pipeline (may be repeated).",
    ),
    _option(
        "--disable",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_pass,
        help="Leave out a pass, or a rule by its equation (may be repeated).",
    ),
    click.option(
        "--fuel",
        multiple=True,
        metavar="PASS=N",
        shell_complete=complete_fuel,
        expose_value=False,
        callback=_fuel,
        help="Let a pass make N rewrites in all its runs together, to find the one that matters.",
    ),
    _option(
        "--stop-after",
        type=click.IntRange(0),
        metavar="N",
        help="Stop after N runs of passes.",
    ),
)


def pipeline_options(function: Function) -> Function:
    """``-O``, ``--passes``, ``--pass-file``, ``--fast-math``, ``--only``, ``--disable``,
    ``--fuel``, ``--stop-after``, ``--fusion-rule``: what ``chosen`` makes a pipeline of.
    """
    for option in reversed((*_OPTIONS, fusion_rule_option)):
        function = option(function)
    return function


@dataclass(frozen=True)
class Chosen:
    """What the options ask for: ``label`` is what a table calls the pipeline, ``text`` says all of it.

    The controls carry what the user wants fused or kept apart; ``watchers`` look on for a lock file.
    """

    pipeline: Pipeline
    controls: Controls
    label: str
    text: str
    watchers: tuple[Watcher, ...] = ()

    def run(self, module: Module) -> PipelineReport:
        """Run the pipeline over a module, in place."""
        return self.pipeline.run(module, controls=self.controls, watchers=self.watchers)


def chosen(aim: str | None = None) -> Chosen:
    """The pipeline and controls that the options of the running command ask for.

    ``aim`` is the device that fusions are for where ``--target`` names none.  Raises ``UsageError`` for several
    pipelines at once, and for names that nothing has.
    """
    from hloopt.pipelines import parse_pipeline, read_pipeline
    from hloopt.rewrite import Controls
    from hloopt.rewrite.entries import with_options
    from hloopt.rewrite.spec import value_text

    given = click.get_current_context().meta.get(_CHOSEN, {})
    level, text = given.get("level"), given.get("passes")
    if level is not None and text is not None:
        raise UsageError(f"--passes and -O{level} each name a pipeline: give one of them")
    extra = pass_files()
    is_file = text is not None and text.endswith(".toml")
    if text is not None and is_file:
        pipeline, label = read_pipeline(text, extra), "passes"
    elif text is not None:
        pipeline, label = parse_pipeline(text, extra), "passes"
    else:
        label = f"O{level or '2'}"
        pipeline = parse_pipeline(label)
    if given.get("fast_math") and level != "0":  # which has no passes, and says so
        entries = with_options(pipeline.entries, "the pipeline", (("fast_math", "true"),))
        pipeline = type(pipeline)(entries)
        label = f"{label}{{fast_math=true}}" if label != "passes" else label
    typed_whole = not given.get("fast_math")
    target = click.get_current_context().meta.get(LOCKS, {}).get("target") or aim
    if target and (aimed := _aimed(pipeline, target)) != pipeline:
        pipeline, typed_whole = aimed, False
        option = f"target={value_text(target)}"
        label = f"{label[:-1]},{option}}}" if label.endswith("}") else f"{label}{{{option}}}"
        label = "passes" if label.startswith("passes") else label
    shown = _cut(pipeline, given.get("only", ()), given.get("disable", ()))
    hand = advising(shown)
    controls = Controls(
        fuel=given.get("fuel") or {}, stop_after=given.get("stop_after"), advice=hand.advice
    )
    controls.check(shown.entries)
    if shown != pipeline:
        label = "passes"
    if label != "passes":
        return Chosen(hand.pipeline, controls, label, label, hand.watchers)
    typed = text if not is_file and shown == pipeline and typed_whole else None
    short = typed is not None and not {"#", "\n"} & set(typed)
    told = typed.strip() if typed and short else str(shown)
    return Chosen(hand.pipeline, controls, label, told, hand.watchers)


def _aimed(pipeline: Pipeline, target: str) -> Pipeline:
    """The pipeline whose fusion strategies decide for a device, those that name another one left."""
    from hloopt.rewrite.entries import select

    def give(instance: Any) -> Any:
        if not type(instance).__module__.startswith("hloopt.fusion."):
            return instance
        known = {field.name: field.default for field in fields(instance)}
        own = "target" in known and instance.target == known["target"]
        return replace(instance, target=target) if own else instance

    return type(pipeline)(select(pipeline.entries, give))


def pass_files() -> Mapping[str, type[Pass]]:
    """The passes of ``--pass-file``.  Raises ``UsageError``."""
    found: dict[str, type[Pass]] = {}
    for path in click.get_current_context().meta.get(_CHOSEN, {}).get("pass_file") or ():
        from hloopt.pipelines import load_passes

        for name, kind in load_passes(path).items():
            if name in found:
                raise UsageError(f"{path}: another file has a '{name}' already")
            found[name] = kind
    return found


def _cut(pipeline: Pipeline, only: tuple[str, ...], disable: tuple[str, ...]) -> Pipeline:
    """The pipeline less what ``--only`` and ``--disable`` leave out."""
    from hloopt.rewrite.entries import select
    from hloopt.rewrite.runner import check_names

    check_names(only, pipeline.entries, "run only")
    names = {instance.name for instance in pipeline.passes()}
    rules = _rules(pipeline)
    equations = {"".join(rule.split()): rule for rule in rules}  # blanks do not matter
    disable = tuple(equations.get("".join(name.split()), name) for name in disable)
    wrong = [name for name in disable if name not in names and name not in rules]
    for name in wrong:
        from hloopt.rewrite.spec import did_you_mean

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

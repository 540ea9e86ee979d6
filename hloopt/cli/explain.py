"""``hloopt explain``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.explain_fusion import Questions
from hloopt.cli.explain_trials import Trials
from hloopt.cli.explain_xla import explain_xla, xla_option
from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.options import json_option, pick_options, strict_option
from hloopt.cli.pipeline_options import PASSES, chosen_passes
from hloopt.cli.profile_option import Measuring, profile_option
from hloopt.cli.words import complete_instruction
from hloopt.dataclass import dataclass
from hloopt.driver.passes import Chosen
from hloopt.driver.selecting import Selecting, selecting
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.provenance import Provenance
from hloopt.ir import Module, build
from hloopt.kernels.selection import Choice
from hloopt.report.console import product, show_name
from hloopt.report.cost import costs_by_place
from hloopt.report.explain import explanation_json, show_explanation, show_summary, summary
from hloopt.targets import Target, find_target

if TYPE_CHECKING:
    from rich.console import Console

    from hloopt.cli.explain_fusion import FusionAnswer
    from hloopt.report.cost import KernelCost, KernelCosts

__all__ = ["command"]

_MOST_NAMES = 2
_SUFFIXES = (".hlo", ".txt", ".pb", ".gz")
"""Endings of words that are files, not instructions."""


@click.command(
    "explain",
    cls=GroupedCommand,
    groups={
        "Passes": PASSES.names,
        "Kernels": KERNELS.names,
        "Input": ("xla_dump", "module", "stage", "strict"),
    },
)
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE|DIR]... [INSTRUCTION]...",
    type=click.Path(),
    shell_complete=complete_instruction,
)
@pick_options
@strict_option()
@xla_option
@profile_option
@PASSES
@KERNELS
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List kernels for other opcodes, too.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    xla_dump: str | None,
    profile: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Explain why instructions are fused or apart, and their kernels: [FILE] [INSTRUCTION [INSTRUCTION]].

    Two instructions: whether they are in one kernel, what keeps them apart, what that costs, which option,
    rule or line of a lock file would change it. One: its kernel, what joined that, why its neighbours did not;
    and which kernels could run it, which limit ruled out the others, what each is estimated to cost. None: the
    ten refusals that cost the most time, the arrays that stay in memory between kernels with the codes of the
    refusals that keep them there, and a summary by kernel and reason.

    An INSTRUCTION is a name of the file as it is given, or after optimisation; a glob, /regex/, op:OPCODE or
    op_name:GLOB mean several.

    With --xla DUMP: why XLA fused two instructions, or did not, as far as its dump shows: [INSTRUCTION
    [INSTRUCTION]].

    With --profile: how long the instructions took in a real run, too; if none is named, the longest.

    \b
    Example:
      hloopt explain dump.txt
      hloopt explain dump.txt fusion.3
      hloopt explain dump.txt multiply.7 reduce.9 --passes priority-fusion
      hloopt optimize dump.txt | hloopt explain -O0 - dot.1 --target a100_sxm_80
    """
    kernels = kernel_options()
    if xla_dump is not None:
        target = selecting(kernels, ctx.with_resource).options.get("target")
        explain_xla(xla_dump, files, target=target, as_json=as_json)
        return
    paths, names = _split(files)
    selection = selecting(kernels, ctx.with_resource, predicted=True)
    choice = chosen_passes(kernels)
    measuring = None if profile is None else Measuring.of(profile, paths)
    texts = open_texts(paths) if measuring is None else measuring.texts
    several = len(texts) > 1
    explaining = _Explaining(selection, choice, names, every, as_json, several, measuring)
    if not selection.has_kernels:
        note = f"kernels are CUDA: for {explaining.target.name} fusion alone is explained"
        click.echo(f"note: {note}", err=True)
    if names:
        one_text(texts, "an INSTRUCTION belongs")
    rows, code = each_input(texts, explaining.explained, "explaining")
    selection.finish(choice.watcher)
    end(ctx, rows, code)


@dataclass(frozen=True)
class _Explaining:
    """The options of one call; ``several`` says whether it is about several modules."""

    selection: Selecting
    choice: Chosen
    names: tuple[str, ...]
    every: bool
    as_json: bool
    several: bool
    measuring: Measuring | None

    @property
    def target(self) -> Target:
        return find_target(self.selection.instance.target)

    def explained(self, found: Input) -> dict[str, Any]:
        """Explain one module: shown unless it is for JSON, and the JSON of it."""
        module, selection, names = found.module, self.selection, self.names
        times = None
        if self.measuring is not None:
            kept = build.clone_module(module)  # passes rename what was measured
            times = self.measuring.measured(replace(found, module=kept))
        answer, refused, notes, is_about_fusion = self._fusion(module)
        ready, rows = module, list[Choice]()
        if selection.has_kernels:
            ready, rows, more = selection.choose(module)
            notes = [*notes, *more]
        costs = costs_by_place(ready, selection.predictor()) if rows else {}
        for note in notes:
            click.echo(f"{found.name}: note: {note}", err=True)
        head: dict[str, Any] = {"module": module.name, "target": selection.instance.target}
        if answer is not None:
            head["fusion"] = answer.json
        limits = selection.instance.limits()
        shown = _choices(rows, names, answer) if len(names) == 1 else []
        if answer is None and not shown:
            raise UsageError(refused)
        if not self.as_json:
            if self.several:
                show_name(module.name, found.name, product())
            blocks: list[Callable[[Console], None]] = [
                partial(show_explanation, row, _cost(costs, row), limits, every=self.every)
                for row in shown
            ]
            if answer is not None and (is_about_fusion or answer.rewritten):
                blocks.insert(0, answer.show)
            if not names and rows:
                blocks.append(partial(show_summary, rows, costs))
            if times is not None:
                blocks.append(partial(times.show_named, names=_kernels(names, answer)))
            _show(blocks, several=self.several)
        if times is not None:
            head["measured"] = times.to_json()
        if not names:
            return {**head, "summary": summary(rows, costs)}
        choices = [explanation_json(row, _cost(costs, row), limits) for row in shown]
        return {**head, "choices": choices}

    def _fusion(self, module: Module) -> tuple[FusionAnswer | None, str, list[str], bool]:
        """Run the passes; return the answer about fusion, or why there is none; notes; whether it matters."""
        is_pair = len(self.names) == _MOST_NAMES
        trials = None
        if is_pair:
            aim = self.selection.instance.target
            trials = Trials(build.clone_module(module), self.choice, self.target, aim)
        advice = self.choice.controls.advice
        assert isinstance(advice, Advice), "there always is one"
        provenance = Provenance(advice.histories)
        report = self.choice.run(module, (provenance,), remarks=True)
        questions = Questions(module, provenance, self.target, trials)
        matters = questions.is_about_fusion or is_pair or not self.selection.has_kernels
        return *_answer(questions, self.names), report.notes, matters


def _answer(questions: Questions, names: tuple[str, ...]) -> tuple[FusionAnswer | None, str]:
    """The answer about fusion, or why there is none: a single name may be one of the device's."""
    try:
        return questions.answer(names), ""
    except UsageError as error:
        if len(names) == 1:
            return None, error.message
        raise


def _show(blocks: list[Callable[[Console], None]], *, several: bool) -> None:
    for number, block in enumerate(blocks):
        if number:
            click.echo()
        block(product())
    if several:
        click.echo()


def _split(files: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files and the instructions' names: the last words, two at most, that are not files.

    Behind a file a plain word is an instruction, even where a file or directory is called so.
    """
    names: list[str] = []
    while files and len(names) < _MOST_NAMES and not _is_file(files):
        names.insert(0, files[-1])
        files = files[:-1]
    if len(names) == _MOST_NAMES:
        if Path(names[0]).suffix in _SUFFIXES:
            raise UsageError(f"{names[0]}: no such file or directory")
        if files and not (files[-1] == "-" or Path(files[-1]).exists() or _may_be_file(files[-1])):
            names_given = ", ".join((files[-1], *names))
            raise UsageError(f"one instruction is explained, or two; no such file: {names_given}")
    return files, tuple(names)


def _is_file(words: tuple[str, ...]) -> bool:
    """Whether the last word is a file, not an instruction."""
    word = words[-1]
    return word == "-" or (Path(word).exists() and (len(words) == 1 or _may_be_file(word)))


def _may_be_file(word: str) -> bool:
    return "/" in word or Path(word).suffix in _SUFFIXES


def _cost(costs: KernelCosts, row: Choice) -> KernelCost | None:
    return costs.get((row.computation, row.instruction))


def _choices(
    rows: list[Choice], names: tuple[str, ...], answer: FusionAnswer | None
) -> list[Choice]:
    """The choices for an instruction, or for the kernels that it is in."""
    wanted = _kernels(names, answer)
    return [row for row in rows if row.instruction in wanted]


def _kernels(names: tuple[str, ...], answer: FusionAnswer | None) -> frozenset[str]:
    """What is named, and the kernels that it is in."""
    if not names:
        return frozenset()
    given = (name.removeprefix("%") for name in names)
    return frozenset((*given, *(answer.kernels if answer is not None else ())))

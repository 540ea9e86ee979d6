"""What ``hloopt explain`` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.explain_xla import explain_xla
from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.given import chosen_passes, kernel_options
from hloopt.cli.json_out import end
from hloopt.cli.measuring import Measuring
from hloopt.driver.explaining import ModuleExplained, PlannedModule
from hloopt.driver.selecting import selecting
from hloopt.errors import UsageError
from hloopt.ir.build import clone_module
from hloopt.report.console import product, show_name
from hloopt.targets import find_target

if TYPE_CHECKING:
    from hloopt.report.measured import MeasuredTimes

__all__ = ["execute"]


_MOST_NAMES = 2


_SUFFIXES = (".hlo", ".txt", ".pb", ".gz")
"""Endings of words that are files, not instructions."""


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    xla_dump: str | None,
    profile: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """What ``hloopt explain`` does."""
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
    if not selection.has_kernels:
        note = f"for {find_target(selection.instance.target).name} fusion alone is explained"
        click.echo(f"note: kernels are CUDA: {note}", err=True)
    if names:
        one_text(texts, "an INSTRUCTION belongs")

    def step(found: Input) -> dict[str, Any]:
        times = None if measuring is None else _times(measuring, found)
        made = replace(PlannedModule(found.module, choice, selection).about(names), measured=times)
        for note in made.notes:
            click.echo(f"{found.name}: note: {note}", err=True)
        if not as_json:
            _show(made, found, every=every, several=len(texts) > 1)
        return made.to_json()

    rows, code = each_input(texts, step, "explaining")
    selection.finish(choice.watcher)
    end(ctx, rows, code)


def _times(measuring: Measuring, found: Input) -> MeasuredTimes:
    """What was measured, joined to a copy: passes rename it."""
    return measuring.measured(replace(found, module=clone_module(found.module)))


def _show(made: ModuleExplained, found: Input, *, every: bool, several: bool) -> None:
    """Print it, of several modules below the name."""
    if several:
        show_name(made.module, found.name, product())
    made.show(product(), every=every)
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

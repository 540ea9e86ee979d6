"""``hloopt explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.explain_xla import explain_xla, xla_option
from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNEL_OPTIONS, kernel_options, selecting
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.cli.pipeline_options import PASS_OPTIONS, chosen, pipeline_options
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.ir import Module
    from hloopt.kernels.selection import Choice

__all__ = ["command"]


@click.command(
    "explain",
    cls=GroupedCommand,
    groups={
        "Passes": PASS_OPTIONS,
        "Kernels": KERNEL_OPTIONS,
        "Input": ("xla_dump", "module", "stage", "strict"),
    },
)
@files_argument
@strict_option()
@xla_option
@pipeline_options
@kernel_options
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], xla_dump: str | None, as_json: bool
) -> None:
    """Explain why an instruction is run by the kernel it has: [FILE] [INSTRUCTION].

    Which kernels could run it, which limit ruled out the others, what each is estimated to cost, what decided,
    and which option would change it. Without an instruction: a summary by kernel and reason. Names are those
    after optimisation, as hloopt kernels shows them.

    With --xla DUMP: why XLA fused two instructions, or did not, as far as its dump tells: [INSTRUCTION
    [INSTRUCTION]].

    \b
    Example:
      hloopt explain dump.txt
      hloopt explain dump.txt fusion.3
      hloopt optimize dump.txt | hloopt explain -O0 - dot.1 --target a100_sxm_80
    """
    from hloopt.report.console import product, write_json
    from hloopt.report.explain import explanation_json, show_explanation, show_summary, summary

    if xla_dump is not None:
        explain_xla(xla_dump, files, target=selecting().options.get("target"), as_json=as_json)
        return
    paths, name = _split(files)
    selection, choice = selecting(), chosen()
    texts = open_texts(paths)
    if name is not None:
        one_text(texts, "an INSTRUCTION belongs")

    def step(found: Input) -> dict[str, Any]:
        module = found.module
        names = _opcodes(module)
        report = choice.pipeline.run(module, controls=choice.controls)
        rows, notes = selection.choose(module)
        for note in (*report.notes, *notes):
            click.echo(f"{found.name}: note: {note}", err=True)
        head = {"module": module.name, "target": selection.instance.target}
        limits = selection.instance.limits()
        if name is None:
            if not as_json:
                show_summary(rows, product())
            return {**head, "summary": summary(rows)}
        found_rows = _named(rows, name, module, names)
        if not as_json:
            for row in found_rows:
                show_explanation(row, limits, product())
        return {**head, "choices": [explanation_json(row, limits) for row in found_rows]}

    rows, code = each_input(texts, step)
    selection.finish()
    if as_json:
        write_json("explain", {"modules": rows})
    ctx.exit(code)


def _split(files: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Files and the instruction's name: the last word, where it is no file."""
    if files and files[-1] != "-" and not Path(files[-1]).exists():
        return files[:-1], files[-1].removeprefix("%")
    return files, None


def _opcodes(module: Module) -> dict[str, str]:
    """The names there are before optimisation, with their opcodes."""
    return {entry.name: entry.opcode for entry in module.instructions()}


def _named(rows: list[Choice], name: str, module: Module, before: dict[str, str]) -> list[Choice]:
    """The choices for the instructions of a name.  Raises ``UsageError`` that says where it has gone."""
    from hloopt.rewrite.spec import did_you_mean

    found = [row for row in rows if row.instruction == name]
    if found:
        return found
    for computation in module:
        inner = computation.by_name.get(name)
        if inner is None:
            continue
        for caller in computation.callers:
            if caller.opcode == "fusion":
                raise UsageError(
                    f"%{name} is computed inside %{caller.name}: hloopt explain ... {caller.name}"
                )
        raise UsageError(f"%{name} ({inner.opcode}) is not run by a kernel of its own")
    if name in before:
        raise UsageError(
            f"%{name} ({before[name]}) is gone after optimisation (-O0 leaves it as it is)"
        )
    hint = did_you_mean(name, [row.instruction for row in rows])
    raise UsageError(f"no instruction or file is called '{name}'{hint}")

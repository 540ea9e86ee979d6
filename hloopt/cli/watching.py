"""Options for looking on while passes run, and for what they tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hloopt.cli.files import Input
from hloopt.cli.options import hlo_text
from hloopt.cli.outputs import write_text
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.report.remarks import Finding
    from hloopt.rewrite import Controls, Pipeline, PipelineReport, Watcher

__all__ = ["WATCH_OPTIONS", "Watching", "check_options", "watch_options", "watching"]

Function = TypeVar("Function", bound=Callable[..., Any])

WATCH_OPTIONS = (
    "print_before", "print_after", "print_changed", "dump_dir", "time_passes", "show_stats",
    "verify_each", "remarks", "remarks_out",
)  # fmt: skip
"""The names of the parameters, for the groups of a command's help."""

_WATCHING = "hloopt.watching"
_FORMATS = (".yaml", ".json", ".sarif")


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(_WATCHING, {})[str(param.name)] = value


def _option(*names: str, **keywords: Any) -> Callable[[Function], Function]:
    return click.option(*names, expose_value=False, callback=_keep, **keywords)


_VERIFY = _option("--verify-each", is_flag=True, help="Verify the module after every pass.")
_DUMP = _option(
    "--dump-dir",
    metavar="DIR",
    help="Write the module, and what it is after each pass that changed it, as XLA names its dumps.",
)
_OPTIONS = (
    _option(
        "--print-before",
        multiple=True,
        metavar="PASS",
        help="Print HLO before each run of a pass, or 'all'.",
    ),
    _option(
        "--print-after",
        multiple=True,
        metavar="PASS",
        help="Print HLO after each run in which a pass changed something, or 'all'.",
    ),
    _option(
        "--print-changed",
        type=click.Choice(["hlo", "diff"]),
        metavar="[=diff]",
        help="Print HLO at first and after each change; with =diff only what changed.",
    ),
    _DUMP,
    _option("--time-passes", is_flag=True, help="Print the seconds each pass took."),
    _option("--stats", "show_stats", is_flag=True, help="Print how often each rule applied."),
    _VERIFY,
    _option(
        "--remarks",
        type=click.Choice(["passed", "missed", "all"]),
        help="Tell of each rewrite made, or nearly made, with its reason and the user's source line.",
    ),
    _option(
        "--remarks-out",
        metavar="FILE",
        help="Write the remarks as .yaml (as LLVM does), .json or .sarif; all of them by default.",
    ),
)


def watch_options(function: Function) -> Function:
    """Everything that ``watching`` obeys."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def check_options(function: Function) -> Function:
    """``--verify-each`` and ``--dump-dir`` only, for commands that are about something else."""
    return _DUMP(_VERIFY(function))


@dataclass
class Watching:
    """What the options of a command ask for, and the remarks found so far."""

    print_before: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    print_changed: str | None = None
    dump_dir: str | None = None
    time_passes: bool = False
    show_stats: bool = False
    verify_each: bool = False
    remarks: str | None = None
    remarks_out: str | None = None
    findings: list[Finding] = field(default_factory=list)

    def check(self, pipeline: Pipeline) -> None:
        """Raise ``UsageError`` for passes that are not in the pipeline, and files of no known format."""
        from hloopt.rewrite.runner import check_names

        for what, names in (
            ("print before", self.print_before),
            ("print after", self.print_after),
        ):
            check_names([name for name in names if name != "all"], pipeline.entries, what)
        out = self.remarks_out
        if out is not None and not out.endswith(_FORMATS):
            raise UsageError(f"--remarks-out {out}: write to .yaml, .json or .sarif")

    def controls(self, given: Controls) -> Controls:
        """The controls with what these options add."""
        told = self.remarks is not None or self.remarks_out is not None
        return replace(given, verify_each=self.verify_each, remarks=told)

    def watchers(self, found: Input, label: str, *, heading: bool) -> list[Watcher]:
        """Who looks on while passes run over a module; ``heading`` names the module's file each time."""
        made: list[Watcher] = []
        if self.print_before or self.print_after or self.print_changed:
            from hloopt.report.watch import PrintPasses

            name = found.name if heading else ""
            made.append(
                PrintPasses(
                    _to_stderr,
                    hlo_text,
                    self.print_before,
                    self.print_after,
                    self.print_changed,
                    name,
                )
            )
        if self.dump_dir is not None:
            from hloopt.report.dump_passes import DumpPasses

            name = label.partition("{")[0]  # options are no part of a file's name
            made.append(DumpPasses(Path(self.dump_dir), name, hlo_text, _write_file))
        return made

    def tell(self, report: PipelineReport, found: Input, *, as_json: bool) -> None:
        """Print notes, times, statistics and remarks of one module's run to stderr."""
        from hloopt.report.console import messages
        from hloopt.report.pipeline import show_hits, show_times
        from hloopt.report.remarks import findings, lines

        for note in report.notes:
            click.echo(f"{found.name}: note: {note}", err=True)
        if self.time_passes and not as_json:
            show_times(report, messages())
        if self.show_stats and not as_json:
            show_hits(report, messages())
        if self.remarks is not None or self.remarks_out is not None:
            wanted = self.remarks or "all"
            made = findings(report, found.module, found.name, wanted)
            self.findings += made
            if self.remarks_out is None:
                for line in lines(made):
                    click.echo(line, err=True)

    def finish(self) -> None:
        """Write the remarks of all modules."""
        if self.remarks_out is not None:
            from hloopt import __version__
            from hloopt.report.remarks import remarks_file

            suffix = Path(self.remarks_out).suffix
            text = remarks_file(self.findings, suffix, __version__)
            write_text(self.remarks_out, text, self.remarks_out)


def watching() -> Watching:
    """What the options of the running command ask for."""
    return Watching(**click.get_current_context().meta.get(_WATCHING, {}))


def _write_file(path: Path, text: str) -> None:
    write_text(str(path), text, path.name)


def _to_stderr(text: str) -> None:
    click.echo(text, err=True, nl=False)

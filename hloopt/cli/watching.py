"""Options for observing passes while they run, and for their remarks."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt import __version__
from hloopt.cli.files import Input
from hloopt.cli.json_out import SCHEMA
from hloopt.cli.output_options import WATCH
from hloopt.cli.outputs import hlo_text
from hloopt.dataclass import dataclass
from hloopt.driver.writing import write_text
from hloopt.errors import UsageError
from hloopt.fusion.provenance import Provenance
from hloopt.rewrite.runner import check_names

if TYPE_CHECKING:
    from hloopt.driver.passes import Chosen
    from hloopt.report.remarks import PlacedRemark
    from hloopt.rewrite import Pipeline, PipelineReport, Watcher

__all__ = ["Watching"]

_FORMATS = (".yaml", ".json", ".sarif")


@dataclass
class Watching:
    """What the options of a command select, and the remarks found so far."""

    print_before: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    print_changed: str | None = None
    dump_dir: str | None = None
    time_passes: bool = False
    show_stats: bool = False
    verify_each: bool = False
    remarks: str | None = None
    remarks_out: str | None = None
    findings: list[PlacedRemark] = field(default_factory=list)
    _provenance: Provenance | None = None

    @classmethod
    def given(cls) -> Watching:
        """Those of the running command."""
        return cls(**WATCH.given())

    def check(self, pipeline: Pipeline) -> None:
        """Raise ``UsageError`` for passes that are not in the pipeline, and files of no known format."""
        for what, names in (
            ("print before", self.print_before),
            ("print after", self.print_after),
        ):
            check_names([name for name in names if name != "all"], pipeline.entries, what)
        out = self.remarks_out
        if out is not None and not out.endswith(_FORMATS):
            raise UsageError(f"--remarks-out {out}: write to .yaml, .json or .sarif")

    @property
    def controls(self) -> dict[str, bool]:
        """The fields of ``Controls`` that these options set."""
        return {"verify_each": self.verify_each, "remarks": self._has_remarks}

    @property
    def _has_remarks(self) -> bool:
        return self.remarks is not None or self.remarks_out is not None

    def watchers(self, name: str, choice: Chosen) -> list[Watcher]:
        """The watchers of the passes; texts begin with ``name``, the module's file, unless it is empty."""
        made: list[Watcher] = []
        if self._has_remarks and self.remarks != "passed":
            self._provenance = Provenance(choice.histories)
            made.append(self._provenance)
        if self.print_before or self.print_after or self.print_changed:
            from hloopt.report.watch import PrintPasses

            wanted = (self.print_before, self.print_after, self.print_changed)
            made.append(PrintPasses(_to_stderr, hlo_text, *wanted, name))
        if self.dump_dir is not None:
            from hloopt.report.dump_passes import DumpPasses

            pipeline = choice.label.partition("{")[0]  # options are not part of a file's name
            made.append(DumpPasses(Path(self.dump_dir), pipeline, hlo_text, _write_file))
        return made

    def report(self, report: PipelineReport, found: Input, *, as_json: bool) -> dict[str, Any]:
        """Print notes, times, statistics and remarks of one module's run to stderr.

        Returns the remarks for JSON, where they are wanted.
        """
        for note in report.notes:
            click.echo(f"{found.name}: note: {note}", err=True)
        if self.print_changed is not None and not any(run.changed for run in report.runs):
            click.echo(f"{found.name}: note: no pass changed anything", err=True)
        if (self.time_passes or self.show_stats) and not as_json:
            from hloopt.report.pipeline import show_pipeline

            show_pipeline(report, times=self.time_passes, hits=self.show_stats)
        if not self._has_remarks:
            return {}
        from hloopt.report.remarks import findings, lines, remark_json

        wanted, missed = self.remarks or "all", None
        if self._provenance is not None:
            from hloopt.driver.explain_fusion import missed_fusions

            missed = missed_fusions(self._provenance, found.module)
        made = findings(report, found.module, found.name, wanted, missed)
        self.findings += made
        if self.remarks_out is None and not as_json:
            for line in lines(made):
                click.echo(line, err=True)
        return {"remarks": [*map(remark_json, made)]} if as_json else {}

    def finish(self) -> None:
        """Write the remarks of all modules."""
        if self.remarks_out is not None:
            from hloopt.report.remarks import remarks_file

            suffix = Path(self.remarks_out).suffix
            text = remarks_file(self.findings, suffix, __version__, SCHEMA)
            write_text(self.remarks_out, text, self.remarks_out)


def _write_file(path: Path, text: str) -> None:
    write_text(str(path), text, path.name)


def _to_stderr(text: str) -> None:
    click.echo(text, err=True, nl=False)

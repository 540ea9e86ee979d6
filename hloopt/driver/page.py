"""Everything about one module, as a page: what ``hloopt report`` writes and ``hloopt.page`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from hloopt.cost_models.model import Bound
from hloopt.dataclass import dataclass
from hloopt.driver.explain_fusion import Questions
from hloopt.driver.kernels import ModuleKernels
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.page_code import KernelCode
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.driver.selecting import Selecting, selecting
from hloopt.driver.whatif import WantedPair, WhatIf
from hloopt.dumps import parse_name, planned_elsewhere, read_dump
from hloopt.errors import HlooptError, UsageError
from hloopt.findings import Planner, SearchProgress, chosen_kinds, find
from hloopt.fusion.provenance import Provenance
from hloopt.ir import Module, build
from hloopt.kernels.costs import KernelCost, kernel_costs, runs_of, totals
from hloopt.pages import content
from hloopt.pages.page import page_html
from hloopt.pages.pass_diffs import PassDiffs
from hloopt.pages.sources import source_texts
from hloopt.pages.unfolding import spent_by
from hloopt.prover.processes import ChildProcess, StoppedWork, can_work_beside
from hloopt.reading import read_file
from hloopt.report.fusion_diff import compare_kernels

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor
    from hloopt.kernels.selection import Choice
    from hloopt.pipelines import Given
    from hloopt.targets import Target

__all__ = ["ModulePage", "page", "page_of"]

_MOST_LOST: Final = 200
_MOST_SEARCHED: Final = 5_000
"""Instructions of a module from which on changes that would help are tried by a process beside this one."""
_MOST_PAIRS: Final = 64


@dataclass(frozen=True)
class ModulePage:
    """A page about a module: ``overview`` is shown at once, ``parts`` when a section is opened."""

    overview: Mapping[str, Any]
    parts: Mapping[str, Any]
    what_if: WhatIf
    kernel_code: KernelCode | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The plan with ``pairs`` decided, each a ``producer`` and a ``consumer`` and ``what``, fuse or part.

        Of a question that has ``code``, the place of a kernel, its code instead, as ``KernelCode.of`` has it.

        Raises ``UsageError`` for what is no such question, and where these passes decide nothing.
        """
        if "code" in question and self.kernel_code is not None:
            return self.kernel_code.of(question["code"])
        pairs = question.get("pairs")
        if not isinstance(pairs, list) or not 0 < len(pairs) <= _MOST_PAIRS:
            raise UsageError(f"a question has 'pairs', a list of 1 to {_MOST_PAIRS}")
        wanted = [_wanted(pair) for pair in pairs]
        if not self.what_if.possible:
            raise UsageError("these passes fuse nothing, or a rule or lock file decides already")
        return self.what_if.priced(*wanted).to_json()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self.overview, **self.parts}

    def to_html(self) -> str:
        """One file that needs no network."""
        return page_html(self.overview, self.parts)


def _wanted(pair: object) -> WantedPair:
    """A pair of a question.  Raises ``UsageError`` for what is none."""
    given = pair if isinstance(pair, dict) else {}
    keys = ("what", "producer", "consumer", "computation")
    what, *names = (given.get(key, "") for key in keys)
    if what not in ("fuse", "part") or not all(isinstance(name, str) for name in names):
        raise UsageError("a pair has 'what', fuse or part, 'producer' and 'consumer'")
    producer, consumer, computation = names
    if not (producer and consumer):
        raise UsageError("a pair has 'what', fuse or part, 'producer' and 'consumer'")
    return WantedPair(what == "fuse", producer, consumer, computation)


def page(
    module: Module | str | Path,
    *,
    pipeline: Given | None = None,
    target: str | None = None,
    sources: str | Path | None = None,
) -> ModulePage:
    """What ``hloopt report`` shows: what is slow in a module, why, and what would help, as one page.

    ``module`` is a module, which stays as it is, or the path of one; ``pipeline`` and ``target`` are as for
    ``select_kernels``.  ``sources`` is the folder of the user's program: the page then has the text of the
    lines that the module names, of files below that folder only.  ``to_html()`` of the record is the page.

    Raises ``UsageError`` for an unknown pass or target, and for a folder that is not there.
    """
    with ExitStack() as stack:
        options = KernelOptions(target=target)
        chosen = choose_passes(PassOptions(passes=pipeline), options)
        selection = selecting(options, stack.enter_context, predicted=True)
        task = read_task(module)
        return page_of(
            build.clone_module(task.module),
            task.name,
            chosen,
            selection,
            None if sources is None else Path(sources),
        )


def page_of(
    module: Module,
    name: str,
    chosen: Chosen,
    selection: Selecting,
    sources: Path | None = None,
    progress: SearchProgress | None = None,
) -> ModulePage:
    """As ``page``, of a module that the passes change in place; ``name`` is its file's."""
    at = progress or SearchProgress()
    predictor = selection.predictor()
    given = _figures(module, kernel_costs(module, predictor))
    what_if = WhatIf(build.clone_module(module), chosen, predictor)
    with _Searching(what_if, at) as searching:
        provenance, diffs = Provenance(chosen.histories), PassDiffs()
        done = chosen.run(module, (at.watcher, provenance, diffs, what_if.watcher), remarks=True)
        what_if.set_before(kernel_costs(module, predictor))
        questions = Questions(module, provenance, predictor.target)
        lost = questions.explanation.lost(_MOST_LOST, runs_of(module))
        ready, rows, notes = module, list["Choice"](), done.notes
        if selection.has_kernels:
            at.begin("choosing kernels")
            ready, rows, more = selection.choose(module)
            notes = [*notes, *more]
        at.begin("drawing the page")
        costs = kernel_costs(ready, predictor)
        numbers = content.PageNumbers(ready)
        parts = _parts(ready, costs, rows, numbers, gpu=predictor.target.kind != "cpu")
        parts["decisions"] = content.decisions(provenance.history.plans, lost, numbers)
        parts["passes"] = {"runs": diffs.runs}
        if what_if.possible:
            parts["whatif"] = what_if.rows(lost, provenance, runs_of(module))
        kernel_code = None
        if rows:
            kernel_code = KernelCode(ModuleKernels(ready, selection.instance, rows, predictor))
            parts["code"] = kernel_code.to_json(costs, numbers)
        if sources is not None:
            named = (line for lines in parts["instructions"]["lines"] for line in lines)
            if texts := source_texts(named, sources):
                parts["files"] = texts
            else:
                notes = [*notes, f"No file that the module names is below {sources}."]
        try:
            parts |= _beside_xla(name, ready, predictor)
        except HlooptError as error:
            notes = [*notes, f"XLA's plan cannot be read: {error}"]
        findings, problems = searching.found()
        overview = {
            **_about(module, name, chosen, predictor),
            "given": given,
            "counts": {**_figures(ready, costs), "peak": parts["memory"]["assigned"]["bytes"]},
            "seconds": sum(row.seconds for row in costs),
            "bounds": _bounds(costs),
            "languages": {} if kernel_code is None else kernel_code.languages,
            "findings": findings,
            "notes": list(dict.fromkeys([*notes, *problems])),
        }
    return ModulePage(overview, parts, what_if, kernel_code)


class _Searching:
    """What would help, as JSON values: changes that were made, compared and priced after the same passes.

    Large modules are searched by another process, where there can be one, while this one makes the page.
    """

    def __init__(self, what_if: WhatIf, progress: SearchProgress) -> None:
        self._what_if = what_if
        self._progress = progress
        large = what_if.given.instruction_count() > _MOST_SEARCHED
        self._child = ChildProcess(self._tried, None) if large and can_work_beside() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()

    def found(self) -> tuple[list[dict[str, Any]], list[str]]:
        """All of it, and what prevented that.  Raises what the search raised."""
        self._progress.begin("trying changes that would help")
        found = self._tried() if self._child is None else self._child.answer()
        if isinstance(found, StoppedWork):
            return [], [f"The search for what would help {found.reason}."]
        if isinstance(found, HlooptError):
            raise found
        return found, []

    def _tried(self) -> list[dict[str, Any]] | HlooptError:
        chosen = self._what_if.chosen
        planner = Planner(chosen.pipeline, self._what_if.predictor)
        try:
            kinds = chosen_kinds(())
            found = find(self._what_if.given, planner, chosen.label, kinds, progress=self._progress)
        except HlooptError as error:
            return error
        return [one.to_json() for one in found.rows]


def _parts(
    ready: Module,
    costs: Sequence[KernelCost],
    rows: Iterable[Choice],
    numbers: content.PageNumbers,
    *,
    gpu: bool,
) -> dict[str, Any]:
    """What the module that is ready shows by itself."""
    spent = spent_by(ready, costs)
    choices = {(row.computation, row.instruction): row for row in rows}
    return {
        "instructions": content.instructions(ready, numbers, spent),
        "kernels": content.kernels(costs, choices, numbers),
        "source": content.source_lines(costs, numbers),
        "graph": content.graph_views(ready, numbers, spent),
        "memory": content.memory(ready, numbers, gpu=gpu),
    }


def _beside_xla(name: str, ready: Module, predictor: Predictor) -> dict[str, Any]:
    """For a module of a dump XLA's own plan beside ours, where the dump has it.

    Raises ``HlooptError`` for one that cannot be read.
    """
    path = Path(name)
    if not parse_name(path.name).kind or not path.is_file():
        return {}
    for module in read_dump(path.parent).modules:
        after = [stage for stage in module.stages if stage.kind == "after"]
        mine = [stage for stage in module.stages if path in {file.path for file in stage.files}]
        if after and mine and mine != after:
            plan, label = read_file(*after[0].paths()).module, after[0].label
            found = compare_kernels(plan, ready, predictor)
            elsewhere = planned_elsewhere(label, predictor.target.kind)
            return {"xla": content.beside_xla(found, label, elsewhere)}
    return {}


def _about(module: Module, name: str, chosen: Chosen, predictor: Predictor) -> dict[str, Any]:
    target = predictor.target
    model = predictor.model.name
    return {
        "module": module.name,
        "file": name,
        "about": f"{name}, passes {chosen.label}, times predicted for {target.title} by {model}",
        "cost_model": model,
        "target": {
            "name": target.name,
            "title": target.title,
            "calibrated": target.calibrated,
            "bandwidth": target.memory_bandwidth,
            "peaks": _peaks(target),
        },
    }


def _peaks(target: Target) -> dict[str, float]:
    """Flops a second, by what computes them."""
    wide = "tf32 products" if target.matrix_rates and target.kind == "cuda" else "f32 products"
    found = {
        "f32": target.peak_flops("f32"),
        wide: target.peak_flops("f32", "matrix"),
        "bf16 products": target.peak_flops("bf16", "matrix"),
    }
    return {name: rate for name, rate in found.items() if rate}


def _figures(module: Module, costs: Sequence[KernelCost]) -> dict[str, Any]:
    found = totals(module, costs)
    return {
        "kernels": found.kernels,
        "launches": found.launches,
        "instructions": found.instructions,
        "bytes": found.cost.bytes_accessed,
        "seconds": sum(row.seconds for row in costs),
    }


def _bounds(costs: Sequence[KernelCost]) -> dict[str, float]:
    found = dict.fromkeys(get_args(Bound), 0.0)
    for row in costs:
        assert row.prediction is not None, "costs of a page are predicted"
        found[row.prediction.bound] += row.seconds
    return found

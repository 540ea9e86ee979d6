"""Why one of two compilations is slower: the modules of both, and where each pair parts first."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hloopt.analysis.decision_kind import decision_kind
from hloopt.analysis.differences import differences
from hloopt.analysis.parting import CompiledStage, Parting, parting
from hloopt.analysis.recompilation.beside import flag_reasons
from hloopt.analysis.value_digests import ValueDigests
from hloopt.driver.recompiling import given_modules
from hloopt.dumps import DumpModule, parse_name, read_bytes, read_dump, stage_maker
from hloopt.dumps.beside import beside
from hloopt.errors import UsageError
from hloopt.findings.kind_tries import SearchProgress
from hloopt.findings.planning import Planner, check_planned_for, is_planned
from hloopt.fusion.advice import Advice
from hloopt.fusion.explained_times import explained
from hloopt.fusion.log_differences import StepPair, log_difference
from hloopt.fusion.parted import PartedPair, parted_pairs
from hloopt.fusion.provenance import Provenance
from hloopt.fusion.xla_log import module_before, read_log_file
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.reading import is_dump, read_file
from hloopt.report.diff_dumps import DumpDifference, compare_dumps, lost_seconds
from hloopt.report.fusion_diff import FusionDifference, compare_kernels
from hloopt.report.module_pairs import GivenModule
from hloopt.report.parted import FirstDecision, FusedPair, PairParted, PlansParted
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.entries import aimed

if TYPE_CHECKING:
    from hloopt.analysis.recompilation.reason import Reason
    from hloopt.cost_models.predictor import Predictor
    from hloopt.fusion.explained import Edge

__all__ = ["final_modules", "last_stage", "plans_parted"]

_FUSION: Final = "priority-fusion"
_STAGES: Final = frozenset({"before", "pass", "after"})
_MOST_PLANNED: Final = 6_000
"""Instructions of a module up to which hloopt's own fusion is asked about a pair."""


def plans_parted(
    before: Sequence[GivenModule],
    after: Sequence[GivenModule],
    planner: Planner,
    target: str,
    most: int = 10,
    progress: SearchProgress | None = None,
) -> PlansParted:
    """Two compilations side by side: pairs of modules by the time that the second loses, each with the first
    decision that differs.

    What no compiler has planned yet is planned by ``planner``; ``most`` pairs are looked into.
    Raises ``UsageError`` where a stage or a log of a dump cannot be read, for plans of a GPU on a CPU, and what
    reading a module does.
    """
    folders = _Folders()
    at = progress or SearchProgress()
    at.expect(len(before) + len(after), "module")
    planned = [
        [_planned(one, planner, at, number) for number, one in enumerate(side, first)]
        for side, first in ((before, 0), (after, len(before)))
    ]
    at.begin("pairing kernels")
    found = _compared(planned[0], planned[1], planner.predictor)
    differing = [pair for pair in found.pairs if not pair[2].equal]
    differing.sort(key=lambda pair: -lost_seconds(pair[2]))
    rows = []
    at.expect(len(differing[:most]), "pair")
    for number, (one, other, difference) in enumerate(differing[:most]):
        at.at(number, f"first decision of {one.module.name}")
        beside_both = folders.module(one.file), folders.module(other.file)
        first = _first(difference, one, other, beside_both, planner.predictor, target)
        rows.append(PairParted(one, other, difference, _flags(beside_both), first))
    model = planner.predictor.model
    return PlansParted(
        model.target.name, model.name, found, tuple(rows), len(differing) - len(rows)
    )


def last_stage(source: Path) -> str:
    """The stage of a dump's modules that is compared: after optimisation, where any module has that."""
    try:
        dump = read_dump(source)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror or error}") from error
    kinds = {stage.kind for one in dump.modules for stage in one.stages}
    return "after" if "after" in kinds else ""


def final_modules(source: Module | str | Path) -> list[GivenModule]:
    """A module, that of a file, or all of a dump directory after optimisation.  Raises what ``read`` does."""
    if isinstance(source, Module) or not is_dump(Path(source)):
        return given_modules(source)
    stage = last_stage(Path(source))
    return given_modules(source, (stage,) if stage else ())


def _planned(
    given: GivenModule, planner: Planner, progress: SearchProgress, number: int
) -> GivenModule:
    check_planned_for(planner.predictor.target, given.module, given.file)
    if is_planned(given.module):
        return given
    progress.at(number, f"planning {given.module.name}")
    return GivenModule(given.file, planner.plan(given.module).module)


def _compared(
    before: Sequence[GivenModule], after: Sequence[GivenModule], predictor: Predictor
) -> DumpDifference:
    """Modules with their partners; one of either side alone belong together, whatever they are."""
    if len(before) == len(after) == 1:
        difference = compare_kernels(before[0].module, after[0].module, predictor)
        return DumpDifference(((before[0], after[0], difference),), (), ())
    return compare_dumps(before, after, predictor)


class _Folders:
    """The dump directories that files lie in, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, dict[Path, DumpModule]] = {}

    def module(self, file: str) -> DumpModule | None:
        """The module of a dump that a file is a stage of."""
        path = Path(file)
        if parse_name(path.name).number is None or not path.is_file():
            return None
        folder = path.parent
        try:
            if folder not in self._known:
                modules = read_dump(folder).modules
                self._known[folder] = {entry.path: one for one in modules for entry in one.files}
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror or error}") from error
        return self._known[folder].get(path)


_Sides = tuple[DumpModule | None, DumpModule | None]


def _flags(sides: _Sides) -> tuple[Reason, ...]:
    before, after = sides
    if before is None or after is None:
        return ()
    try:
        return tuple(flag_reasons(beside(before), beside(after)))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror or error}") from error


def _first(
    difference: FusionDifference,
    before: GivenModule,
    after: GivenModule,
    sides: _Sides,
    predictor: Predictor,
    target: str,
) -> FirstDecision | None:
    parted = _by_stages(sides)
    asked = target if parted is None else ""
    pair = _worst_pair(before.module, after.module, difference, predictor, asked)
    if parted is None:
        return _by_modules(before.module, after.module, pair)
    if parted.common is None:
        return FirstDecision("program", parted, pair=pair)
    made = [one for one in (parted.before, parted.after) if one is not None]
    names = [one.pass_name for one in made]
    kind = decision_kind(made[0].changes, names[:1])
    return FirstDecision(kind, parted, pair=pair, log=_log(sides) if _FUSION in names else None)


def _by_stages(sides: _Sides) -> Parting | None:
    """Where both part, if both have the stages of their compilation from its beginning."""
    before, after = sides
    if before is None or after is None:
        return None
    if any(one.stages[0].kind != "before" for one in (before, after)):
        return None
    stages = [_stages(one) for one in (before, after)]
    if min(map(len, stages)) < 3:  # what is given and what comes out says nothing about passes
        return None
    return parting(stages[0], stages[1])


def _stages(module: DumpModule) -> list[CompiledStage]:
    """The stages of a compilation in its order.  Raises ``UsageError`` for one that cannot be read."""
    found = []
    for stage in module.stages:
        if stage.kind not in _STAGES:
            continue
        path, twin = stage.paths()
        try:
            content = read_bytes(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from error
        found.append(
            CompiledStage(
                *stage_maker(stage.label),
                blake2b(content, digest_size=16).digest(),
                len(content),
                lambda path=path, twin=twin: read_file(path, twin).module,  # type: ignore[misc]
            )
        )
    return found


def _by_modules(before: Module, after: Module, pair: FusedPair | None) -> FirstDecision | None:
    """What final modules say: what differs without their fusions came before these."""
    opened = []
    for module in (before, after):
        copy = clone_module(module)
        parse_pipeline("defuse").run(copy)
        opened.append(copy)
    changes = tuple(one for one in differences(*opened) if one.computation)
    kind = decision_kind(changes) if changes else None
    if kind not in {None, "order", "copy", "kernel"}:
        assert kind is not None
        return FirstDecision(kind, changes=changes, pair=pair)
    if pair is not None:
        return FirstDecision("fusion", pair=pair)
    whole = changes or tuple(one for one in differences(before, after) if one.computation)
    return FirstDecision(decision_kind(whole), changes=whole) if whole else None


def _worst_pair(
    before: Module, after: Module, difference: FusionDifference, predictor: Predictor, target: str
) -> FusedPair | None:
    """The pair fused on one side only whose kernels lose most; on a ``target`` with hloopt's own decision."""
    pairs = parted_pairs(before, after)
    if not pairs:
        return None
    times = [
        {row.instruction: row.seconds for row in rows}
        for rows in (difference.before, difference.after)
    ]

    def spent(pair: PartedPair) -> tuple[float, float]:
        first = sum(times[0].get(kernel, 0.0) for kernel in pair.before)
        return first, sum(times[1].get(kernel, 0.0) for kernel in pair.kernels)

    worst = max(pairs, key=lambda pair: spent(pair)[1] - spent(pair)[0])
    return FusedPair(
        (worst.producer.name, worst.consumer.name),
        after.user_line(worst.consumer.metadata),
        (_names(worst.before), _names(worst.kernels)),
        spent(worst),
        len(pairs) - 1,
        _own(after, worst.values, predictor, target) if target else "",
    )


def _names(kernels: Sequence[Instruction]) -> tuple[str, ...]:
    return tuple(kernel.name for kernel in kernels)


def _own(module: Module, values: tuple[bytes, bytes], predictor: Predictor, target: str) -> str:
    """What hloopt's priority fusion does with two values of a module whose fusions are taken apart."""
    if module.instruction_count() > _MOST_PLANNED:
        return ""
    opened = clone_module(module)
    parse_pipeline("defuse").run(opened)
    places = {
        value: (entry.home.name, entry.name)
        for known in ValueDigests(opened).kernels.values()
        for value, entry in known.inner
    }
    if not all(value in places for value in values):
        return ""
    advice = Advice()
    provenance = Provenance(advice.histories)
    passes = Pipeline(aimed(parse_pipeline(_FUSION).entries, target))
    passes.run(opened, controls=Controls(advice=advice), watchers=(provenance,))
    nodes = [provenance.nodes.get(places[value]) for value in values]
    if nodes[0] is None or nodes[1] is None:
        return ""
    found = explained(provenance, predictor.model).pair(nodes[0], nodes[1])
    return _edge_text(found.edges[0]) if found.edges else ""


def _edge_text(edge: Edge) -> str:
    prices = ""
    comparison = next((step.comparison for step in reversed(edge.joined) if step.comparison), None)
    if edge.common:
        if comparison is not None:
            prices = f": {comparison.unfused_us:.3g} us apart, {comparison.fused_us:.3g} us fused"
        return f"fuses them{prices}"
    if not edge.words:
        return ""
    word = edge.words[-1]
    if word.comparison is not None and word.decision.code not in {"slower", "triton-slower"}:
        prices = (
            f"; {word.comparison.unfused_us:.3g} us apart, {word.comparison.fused_us:.3g} us fused"
        )
    return f"keeps them apart ({word.decision.code}): {word.decision.reason}{prices}"


def _log(sides: _Sides) -> StepPair | None:
    """The first pair that one side alone fused in the end, by XLA's own logs."""
    logs = []
    for one in sides:
        files = one.others.get("fusion log", ()) if one is not None else ()
        if not files:
            return None
        log = read_log_file(files[0].path)
        logs.append((module_before(log), log))
    found = log_difference(logs[0], logs[1])
    return next(iter(found.fused), None)

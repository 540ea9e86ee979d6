"""What ``hloopt explain`` says about fusion: the lookup of names, and their explanations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.barriers import find_barriers
from hloopt.fusion.between import kept_arrays
from hloopt.fusion.explained_times import explained
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.kernels.costs import runs_of
from hloopt.report.fusion import show_around, show_barriers, show_lost, show_pair
from hloopt.report.fusion_between import kept_json, show_kept
from hloopt.report.fusion_json import around_json, barriers_json, loops_json, lost_json, pair_json
from hloopt.report.fusion_loop import show_loops
from hloopt.report.rewritten import rewrites_json
from hloopt.rewrite.naming import parse_pattern
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import find_target

if TYPE_CHECKING:
    from hloopt.driver.explain_trials import Trials
    from hloopt.fusion.explained import Missed, MissedKey
    from hloopt.fusion.provenance import FusionNode, GivenInstruction, Provenance, TracedRewrite
    from hloopt.ir import Module
    from hloopt.report.console import Console
    from hloopt.targets import Target

__all__ = ["FusionAnswer", "Questions", "missed_fusions"]

MOST_LOST = 10
"""Refusals that are listed without a name."""
_MOST = 10
"""Instructions or pairs that a pattern shows."""


@dataclass(frozen=True)
class FusionAnswer:
    """The answer to show; ``kernels`` are the names of the kernels concerned, after all passes.

    ``rewritten`` says that passes touched an instruction: worth reporting where nothing is fused, too.
    """

    json: dict[str, Any]
    shows: tuple[Any, ...]
    kernels: tuple[str, ...] = ()
    rewritten: bool = False

    def show(self, console: Console) -> None:
        """Print it."""
        for number, (function, *given) in enumerate(self.shows):
            if number:
                console.print()
            function(*given, console)


class Questions:
    """Names of instructions, looked up in one module's provenance."""

    def __init__(
        self, module: Module, provenance: Provenance, target: Target, trials: Trials | None = None
    ) -> None:
        self.trials = trials
        self.provenance = provenance
        self.module = module
        self.explanation = explained(provenance, model_for(DEFAULT, target))

    @property
    def is_about_fusion(self) -> bool:
        """Whether there was anything to fuse."""
        return bool(self.provenance.history.plans)

    def answer(self, names: Sequence[str]) -> FusionAnswer:
        """The answer for no name, one or two.  Raises ``UsageError`` for names that nothing has."""
        if not names:
            return self._lost()
        found = [self.nodes(name) for name in names]
        if len(found) == 1:
            return self._around(names[0], found[0])
        return self._pairs(found[0], found[1], names)

    def _lost(self) -> FusionAnswer:
        rows = self.explanation.lost(MOST_LOST, runs_of(self.module))
        barriers = find_barriers(self.provenance.history.plans, self.provenance.alive)
        loops = self.explanation.judged_loops()
        kept = kept_arrays(self.explanation)
        shows: list[Any] = [(show_lost, rows)]
        if kept:
            shows.append((show_kept, kept))
        if loops:
            shows.append((show_loops, loops))
        if barriers:
            shows.append((show_barriers, barriers))
        content = {
            "refusals": lost_json(rows),
            "arrays": kept_json(kept),
            "loops": loops_json(loops),
            "barriers": barriers_json(barriers),
        }
        return FusionAnswer(content, tuple(shows))

    def _around(self, name: str, nodes: list[FusionNode]) -> FusionAnswer:
        if all(node.opcode in UNCOMPUTED for node in nodes):
            node = nodes[0]
            raise UsageError(f"%{node.name} ({node.opcode}) has no separate kernel")
        rows = [self.explanation.around(node) for node in nodes[:_MOST]]
        given = name.removeprefix("%") if _is_plain(name) else ""

        def show(row: Any, console: Console) -> None:
            origin, touched = self._origin(row.node)
            name = given if given in self._given() else ""
            show_around(row, console, given=name, origin=origin, touched=touched)

        kernels = dict.fromkeys(kernel.now for row in rows for kernel in row.kernels if kernel.now)
        shows: list[Any] = [(show, row) for row in rows]
        if len(nodes) > _MOST:
            shows.append((_more, len(nodes) - _MOST))
        found = [{**around_json(row), **rewrites_json(*self._origin(row.node))} for row in rows]
        rewritten = any(row["rewrites"] for row in found)
        return FusionAnswer({"instructions": found}, tuple(shows), tuple(kernels), rewritten)

    def _origin(
        self, node: FusionNode
    ) -> tuple[GivenInstruction | None, tuple[TracedRewrite, ...]]:
        """What a node was in the file, and what passes did to it before anything was fused."""
        place = node.computation, node.name
        return self.provenance.origin.get(place), self.provenance.touched.get(place, ())

    def _given(self) -> set[str]:
        return {name for _, name in self.provenance.given}

    def _pairs(
        self, first: list[FusionNode], second: list[FusionNode], names: Sequence[str]
    ) -> FusionAnswer:
        wanted = [(a, b) for a in first for b in second if a is not b]
        if not wanted:
            raise UsageError(f"%{first[0].name} is given twice: a pair is two instructions")
        if len(wanted) > 1:
            near = [
                (a, b)
                for a, b in wanted
                if a.computation == b.computation and (b.name in a.users or a.name in b.users)
            ]
            wanted = near or wanted
        rows = [self.explanation.pair(a, b) for a, b in wanted[:_MOST]]
        origins = {
            node.name: self._origin(node) for row in rows for node in (row.first, row.second)
        }
        is_one = self.trials is not None and len(wanted) == 1
        passes = self.trials.ways(rows[0], names) if self.trials is not None and is_one else []
        show = partial(show_pair, origins=origins, passes=passes)
        shows: list[Any] = [(show, row) for row in rows]
        if len(wanted) > _MOST:
            shows.append((_more, len(wanted) - _MOST))
        found = [
            {
                **pair_json(row),
                "passes": passes,
                "origins": [rewrites_json(*self._origin(node)) for node in (row.first, row.second)],
            }
            for row in rows
        ]
        return FusionAnswer({"pairs": found}, tuple(shows))

    def nodes(self, name: str) -> list[FusionNode]:
        """The nodes that a name or pattern matches.  Raises ``UsageError``, which says what became of it."""
        pattern = parse_pattern(name)
        if pattern.names_one:
            return self._named(name.removeprefix("%"))
        places = [
            place
            for place, given in self.provenance.given.items()
            if pattern.means(given.name, given.opcode, given.op_name)
        ]
        found = [node for place in places for node in self._become(place)]
        nodes = list({(node.computation, node.name): node for node in found}.values())
        if not nodes and places:
            raise UsageError(f"'{name}': {self._where(places[0])}")
        if not nodes:
            raise UsageError(f"no instruction matches '{name}'")
        return nodes

    def _become(self, place: tuple[str, str]) -> list[FusionNode]:
        return [self.provenance.nodes[at] for at in self.provenance.became.get(place, ())]

    def _named(self, name: str) -> list[FusionNode]:
        places = [place for place in self.provenance.given if place[1] == name]
        nodes = [node for place in places for node in self._become(place)]
        if nodes:
            return nodes
        nodes = [node for place, node in self.provenance.nodes.items() if place[1] == name]
        if nodes:
            return nodes
        for kernel in self.explanation.kernels.values():
            if name in (kernel.now, kernel.name):
                return [
                    self.provenance.nodes[kernel.computation, one]
                    for one in kernel.outputs
                    if (kernel.computation, one) in self.provenance.nodes
                ]
        if places:
            raise UsageError(self._where(places[0]))
        known = {*self._given(), *(kernel.now for kernel in self.explanation.kernels.values())}
        raise UsageError(
            f"no instruction or file is called '{name}'{did_you_mean(name, sorted(known))}"
        )

    def _where(self, place: tuple[str, str]) -> str:
        """What became of an instruction of the file that is not a node."""
        given = self.provenance.given[place]
        gone = self.provenance.gone.get(place)
        if gone is not None:
            reason, ways = "", f"--disable {gone.pass_name}"
            if (rewrite := gone.rewrite) is not None:
                reason = f" ('{rewrite.rule}'{f': {rewrite.reason}' if rewrite.reason else ''})"
                ways = " or ".join(rewrite.ways)
            return (
                f"%{given.name} ({given.opcode}) is gone before anything is fused: run {gone.run}, "
                f"{gone.pass_name}, removed it{reason} ({ways} keeps it, -O0 keeps all)"
            )
        if given.caller_opcode == "fusion":
            return f"%{given.name} is computed inside %{given.caller}: hloopt explain ... {given.caller}"
        caller = f" of %{given.caller}, {given.caller_opcode}" if given.caller else ""
        return f"%{given.name} ({given.opcode}) is part of %{given.computation}{caller}: not a separate kernel"


def missed_fusions(provenance: Provenance, module: Module) -> dict[MissedKey, Missed]:
    """What the refusals of a module that passes ran over cost, on the target of its strategies."""
    plans = provenance.history.plans
    target = next((plan.target for plan in reversed(plans) if plan.target), PriorityFusion.target)
    model = model_for(DEFAULT, find_target(target))
    return explained(provenance, model).missed(runs_of(module))


def _is_plain(name: str) -> bool:
    return parse_pattern(name).names_one


def _more(count: int, console: Console) -> None:
    console.print(f"and {count} more")

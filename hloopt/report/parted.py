"""Why one of two compilations is slower: where each module loses time, and the first decision that differs."""

from __future__ import annotations

from typing import Any

from hloopt.analysis.decision_kind import DecisionKind
from hloopt.analysis.differences import Difference
from hloopt.analysis.parting import Parting, PassResult
from hloopt.analysis.recompilation.reason import Reason
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.fusion.log_differences import StepPair
from hloopt.report.diff_dumps import DumpDifference, lost_seconds
from hloopt.report.differences import differences_json
from hloopt.report.fusion_diff import FusionDifference
from hloopt.report.module_pairs import GivenModule
from hloopt.report.xla_facts import moment_facts

__all__ = ["FirstDecision", "FusedPair", "PairParted", "PlansParted"]


@dataclass(frozen=True)
class FusedPair:
    """A producer and a consumer that one side has in one kernel, and what hloopt's fusion says of them.

    names, line  of both on the side after, and the user's line of the consumer
    kernels      that have them: before and after
    seconds      of these kernels, predicted: before and after
    others       how many other pairs are fused on one side only
    own          what hloopt's priority fusion does on the target, with its reason or prices; empty where it
                 does not reach the pair
    """

    names: tuple[str, str]
    line: str
    kernels: tuple[tuple[str, ...], tuple[str, ...]]
    seconds: tuple[float, float]
    others: int
    own: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "producer": self.names[0],
            "consumer": self.names[1],
            "line": self.line or None,
            "kernels_before": list(self.kernels[0]),
            "kernels_after": list(self.kernels[1]),
            "seconds_before": self.seconds[0],
            "seconds_after": self.seconds[1],
            "others": self.others,
            "own": self.own or None,
        }


@dataclass(frozen=True)
class FirstDecision:
    """The first decision of the compilers that differs.

    kind      of decision
    parting   the pass, where both sides have the stages of their compilation; None where it was found in the
              final modules
    changes   what differs between the final modules without fusions, where there is no parting
    pair      what one side alone fused in the end, where most is lost
    log       XLA's own words on what one side alone fused, where it is priority fusion and both have its log
    """

    kind: DecisionKind
    parting: Parting | None = None
    changes: tuple[Difference, ...] = ()
    pair: FusedPair | None = None
    log: StepPair | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        parting = self.parting
        log = self.log
        return {
            "kind": self.kind,
            "found_in": "final modules" if parting is None else "stages",
            "parting": None if parting is None else _parting_json(parting),
            "changes": differences_json(self.changes),
            "fused": None if self.pair is None else self.pair.to_json(),
            "xla_before": None if log is None else moment_facts(log.before),
            "xla_after": None if log is None else moment_facts(log.after),
        }


def _parting_json(parting: Parting) -> dict[str, Any]:
    common = parting.common
    return {
        "common_stage_before": None if common is None else common[0],
        "common_stage_after": None if common is None else common[1],
        "stages_before": parting.stages[0],
        "stages_after": parting.stages[1],
        "before": _result_json(parting.before),
        "after": None if parting.same_pass else _result_json(parting.after),
        "same_pass": parting.same_pass,
        "passes_only_before": list(parting.alone[0]),
        "passes_only_after": list(parting.alone[1]),
        "complete": parting.complete,
    }


def _result_json(made: PassResult | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "pipeline": made.pipeline,
        "pass": made.pass_name,
        "changes": differences_json(made.changes),
    }


@dataclass(frozen=True)
class PairParted:
    """Two modules that belong together, the ``flags`` that differ, and the first decision that does."""

    before: GivenModule
    after: GivenModule
    difference: FusionDifference
    flags: tuple[Reason, ...]
    first: FirstDecision | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        before, after = self.difference.totals
        return {
            "module": self.before.module.name,
            "before_file": self.before.file,
            "after_file": self.after.file,
            "seconds_before": before.seconds,
            "seconds_after": after.seconds,
            "lost_seconds": lost_seconds(self.difference),
            "kernels_before": before.kernels,
            "kernels_after": after.kernels,
            "flags": [
                {"flag": one.subject, "before": one.old, "after": one.new} for one in self.flags
            ],
            "first_decision": None if self.first is None else self.first.to_json(),
        }


@dataclass(frozen=True)
class PlansParted(Displayed):
    """The modules of two compilations on a target: ``rows`` are pairs that differ, what loses most first.

    ``left`` pairs differ, too, and were not looked into.
    """

    target: str
    cost_model: str
    modules: DumpDifference
    rows: tuple[PairParted, ...]
    left: int

    @property
    def equal(self) -> bool:
        """Whether all modules have partners and none differs."""
        return self.modules.equal

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "equal": self.equal,
            "target": self.target,
            "cost_model": self.cost_model,
            "pairs": [row.to_json() for row in self.rows],
            "equal_pairs": sum(pair[2].equal for pair in self.modules.pairs),
            "left": self.left,
            "only_before": [one.file for one in self.modules.before],
            "only_after": [one.file for one in self.modules.after],
        }

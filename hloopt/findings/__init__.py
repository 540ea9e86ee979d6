"""What is slow in a module, why, and what would help: each a ``Finding`` with a gain that was not guessed.

``kinds.py`` is the table.  A kind's detector gives candidates: instructions, a cause, remedies, and a change.
``trials.py`` makes the change on a copy, compares the results, has the compiler's passes (``planning.py``) plan
both and prices both by the one cost model; of a large module it takes the part around the instructions
(``parts.py``).  What gains nothing, or changes the results, is no finding.
"""

from hloopt.findings.finding import (
    ContendedScatter,
    Finding,
    FindingRemedy,
    Gain,
    GainlessChange,
    KernelShare,
    LinkedCollectives,
    LoopBuffer,
    Measure,
    ReducedDot,
    RefusedArray,
    Spent,
)
from hloopt.findings.kind_tries import SearchProgress
from hloopt.findings.kinds import KINDS, FindingKind, KindExample, chosen_kinds, kind_examples
from hloopt.findings.measuring import MEASURING, MeasuredGain, RealRuns
from hloopt.findings.planning import (
    Planner,
    ProgramPlan,
    check_planned_for,
    is_planned,
    pipeline_for,
)
from hloopt.findings.search import Findings, find

__all__ = [
    "KINDS",
    "MEASURING",
    "ContendedScatter",
    "Finding",
    "FindingKind",
    "FindingRemedy",
    "Findings",
    "Gain",
    "GainlessChange",
    "KernelShare",
    "KindExample",
    "LinkedCollectives",
    "LoopBuffer",
    "Measure",
    "MeasuredGain",
    "Planner",
    "ProgramPlan",
    "RealRuns",
    "ReducedDot",
    "RefusedArray",
    "SearchProgress",
    "Spent",
    "check_planned_for",
    "chosen_kinds",
    "find",
    "is_planned",
    "kind_examples",
    "pipeline_for",
]

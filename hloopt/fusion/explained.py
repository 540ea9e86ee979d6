"""The records of an explanation: kernels, uses of results, pairs, and what strategies said of them."""

from __future__ import annotations

from math import isfinite
from typing import TypeAlias

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.fusion.history import FusionStep, LoopFacts
from hloopt.fusion.provenance import FusionNode

__all__ = [
    "Around",
    "Edge",
    "ExplainedRefusal",
    "ExplainedStep",
    "KernelFacts",
    "Lost",
    "Missed",
    "MissedKey",
    "Pair",
    "finite",
]


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel: a fusion with its members, or an instruction by itself (``kind`` is empty).

    ``outputs`` are the members whose results it gives, ``now`` its name after all passes: empty where
    it no longer exists.
    """

    computation: str
    name: str
    kind: str
    members: tuple[str, ...]
    outputs: tuple[str, ...]
    now: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedRefusal:
    """A strategy's refusal of a pair; names are those of that moment.

    options     the pass with the option that would let the pair through
    advisable   whether a rule or lock file of the user could have it otherwise
    comparison  the times it decided by, or those of the cost model
    model       whose times these are
    names       of both in the output; of what is gone, of what it computed last
    """

    pass_name: str
    run: int
    producer: str
    consumer: str
    decision: Decision
    comparison: Comparison | None
    options: tuple[str, ...] = ()
    advisable: bool = False
    model: str = ""
    names: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """A producer that joined a kernel; ``names`` are those before fusion of what both computed last."""

    pass_name: str
    run: int
    step: FusionStep
    names: tuple[str, str]

    @property
    def comparison(self) -> Comparison | None:
        """The times that the strategy decided by, where they are finite."""
        return finite(self.step.comparison)


@dataclass(frozen=True, slots=True)
class Edge:
    """A result and one user of it; ``common`` are the kernels that have both, else ``words`` say why none does.

    ``joined`` has the steps that fused them, ``words`` the last verdict of each run, the latest last.
    """

    producer: FusionNode
    consumer: FusionNode
    producer_kernels: tuple[KernelFacts, ...]
    consumer_kernels: tuple[KernelFacts, ...]
    common: tuple[KernelFacts, ...]
    joined: tuple[ExplainedStep, ...] = ()
    words: tuple[ExplainedRefusal, ...] = ()

    @property
    def is_plumbing(self) -> bool:
        """Whether no kernel computes one of the two."""
        return self.producer.opcode in UNCOMPUTED or self.consumer.opcode in UNCOMPUTED


@dataclass(frozen=True, slots=True)
class Pair:
    """Two instructions: ``relation`` is ``path`` (second needs first), ``siblings`` or ``none``.

    ``edges`` are those of the path that crosses fewest kernels; ``shared`` names what siblings both read.
    """

    first: FusionNode
    second: FusionNode
    relation: str
    common: tuple[KernelFacts, ...]
    edges: tuple[Edge, ...] = ()
    shared: tuple[str, ...] = ()
    words: tuple[ExplainedRefusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """One instruction: its kernels, the steps that made them, and its neighbours in none of them.

    ``loop`` is how a ``while`` could run as one kernel; for what runs within such a kernel, that kernel's loop.
    """

    node: FusionNode
    kernels: tuple[KernelFacts, ...]
    joined: tuple[ExplainedStep, ...]
    apart: tuple[Edge, ...]
    words: tuple[ExplainedRefusal, ...] = ()
    loop: LoopFacts | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The refusal of a producer that costs most by the cost model; ``others`` are consumers that cost less.

    ``producer`` and ``consumer`` are what the two are called after all passes; empty where they are gone.
    ``runs`` is how often their computation runs, as launches count it.
    """

    computation: str
    word: ExplainedRefusal
    source: str
    place: str
    others: int = 0
    producer: str = ""
    consumer: str = ""
    runs: int = 1

    @property
    def lost_us(self) -> float:
        """What fusing would save in all runs."""
        return self.runs * (
            self.word.comparison.gain_us if self.word.comparison is not None else 0.0
        )


MissedKey: TypeAlias = tuple[int, str, str, str]
"""The run of a strategy, a computation, and what producer and consumer were called there."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A refused pair after all passes.

    kernels  those of producer and consumer in the output; empty where one is gone, or is now several
    lost_us  what fusing would save in all runs, in microseconds, predicted; None where nothing prices it
    """

    kernels: tuple[str, str]
    lost_us: float | None

    @property
    def was_fused(self) -> bool:
        """Whether both are in one kernel in the end."""
        first, second = self.kernels
        return bool(first) and first == second


def finite(comparison: Comparison | None) -> Comparison | None:
    """A comparison with finite times: a model may return infinity for what it cannot time."""
    return comparison if comparison is not None and isfinite(comparison.gain_us) else None

"""What was chosen for an instruction, from what, and why: the record that explanations print."""

from __future__ import annotations

from math import prod

from hloopt.dataclass import dataclass
from hloopt.kernels.estimate import Estimate
from hloopt.kernels.kernel import Verdict
from hloopt.kernels.selection.candidate import Candidate
from hloopt.kernels.spec import KernelSpec, Launch, Tile

__all__ = ["Choice", "Considered", "considered"]


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate: whether it fits, whether a rule wants it, and what it would cost with its default tile."""

    name: str
    fits: Verdict
    wanted: Verdict | None
    tile: Tile
    estimate: Estimate | None


@dataclass(frozen=True)
class Choice:
    """The kernel of an instruction; ``kernel`` is empty where nothing fits.

    by      what decided: ``--kernel ...``, ``lock FILE``, a rule or selector by its name, ``written``
    reason  why it decided so
    place   ``file:line:column``, or the module's name
    lines   of the user's program that it computes something of
    """

    module: str
    computation: str
    instruction: str
    opcode: str
    shape: str
    kernel: str
    tile: Tile
    by: str
    reason: str
    candidates: tuple[Considered, ...]
    spec: KernelSpec | None
    estimate: Estimate | None
    place: str
    lines: tuple[str, ...]

    @property
    def line(self) -> str:
        """The first of the lines, or an empty string."""
        return next(iter(self.lines), "")

    @property
    def launches(self) -> tuple[Launch, ...]:
        """What is launched."""
        steps = self.spec.steps if self.spec is not None else ()
        return tuple(step for step in steps if isinstance(step, Launch))

    @property
    def threads(self) -> int:
        """Threads of the largest launch."""
        return max((prod(step.grid) * prod(step.block) for step in self.launches), default=0)


def considered(candidate: Candidate) -> Considered:
    """A candidate as it is remembered."""
    if not candidate.ok:
        return Considered(candidate.name, candidate.fits, None, {}, None)
    return Considered(
        candidate.name, candidate.fits, candidate.wanted, candidate.tile, candidate.estimate
    )

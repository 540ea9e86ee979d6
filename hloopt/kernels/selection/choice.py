"""What was chosen for an instruction, from what, and why: the record that explanations print."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from hloopt.analysis.region import region_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module
from hloopt.kernels.backend_config import KernelConfig
from hloopt.kernels.estimate import Estimate, estimate
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.selection.candidate import Candidate, candidates, with_tile
from hloopt.kernels.spec import KernelSpec, Tile
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target

__all__ = ["Alternatives", "Choice", "unknown_kernel"]


@dataclass(frozen=True, eq=False)
class Alternatives:
    """What could run an instruction: every kernel of the device with its verdict."""

    instruction: Instruction
    candidates: Sequence[Candidate]

    @classmethod
    def of(
        cls, instruction: Instruction, target: Target, limits: Limits, known: Sequence[Kernel]
    ) -> Alternatives:
        """Those of the kernels that are known."""
        return cls(instruction, candidates(Site(region_of(instruction), target, limits), known))

    @cached_property
    def config(self) -> KernelConfig:
        """What the instruction's ``backend_config`` says."""
        return KernelConfig(self.instruction)

    @cached_property
    def able(self) -> list[Candidate]:
        """Those that fit, in order of preference."""
        return [candidate for candidate in self.candidates if candidate.ok]

    def take(self, name: str, tile: Tile, source: str, reason: str) -> Choice:
        """The candidate of a name with a tile.  Raises ``UsageError`` where there is none."""
        found = next((entry for entry in self.candidates if entry.name == name), None)
        if found is None:
            raise UsageError(unknown_kernel(name, [entry.name for entry in self.candidates]))
        if not found.ok:
            raise UsageError(f"{name} does not fit: {found.reason}")
        full, spec = with_tile(found.kernel, found.site, tile)
        return Choice(self, found, full, spec, source, reason)

    def default(self, found: Candidate, source: str, reason: str) -> Choice:
        """A candidate with its own tile."""
        return Choice(self, found, found.tile, found.spec, source, reason)


def _home(instruction: Instruction) -> tuple[Module, Computation]:
    home = instruction.computation
    assert home is not None, "an instruction of a module"
    assert home.module is not None, "an instruction of a module"
    return home.module, home


def unknown_kernel(name: str, names: Sequence[str]) -> str:
    """An unknown kernel name, with similar ones; all of them are too many for a message."""
    hint = did_you_mean(name, names)
    listed = "; hloopt kernels --list has them all"
    return f"no kernel is called '{name}'" + (listed if hint.startswith("; near") else hint)


@dataclass(frozen=True, eq=False)
class Choice:
    """The kernel of an instruction; ``candidate`` is None where nothing fits.

    source  what decided: ``--kernel ...``, ``lock FILE``, a rule or selector by its name, ``backend_config``
    reason  why it decided so
    """

    alternatives: Alternatives
    candidate: Candidate | None
    tile: Tile
    spec: KernelSpec | None
    source: str
    reason: str

    @property
    def kernel(self) -> str:
        """The kernel's name, or an empty string."""
        return self.candidate.name if self.candidate is not None else ""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All kernels there were to choose from."""
        return self.alternatives.candidates

    @property
    def instruction(self) -> str:
        """The instruction's name."""
        return self.alternatives.instruction.name

    @property
    def opcode(self) -> str:
        """The instruction's opcode."""
        return self.alternatives.instruction.opcode

    @property
    def shape(self) -> str:
        """The instruction's shape."""
        return str(self.alternatives.instruction.shape)

    @cached_property
    def computation(self) -> str:
        """The computation that the instruction is in."""
        return _home(self.alternatives.instruction)[1].name

    @property
    def place(self) -> str:
        """``file:line:column``, or the module's name."""
        instruction = self.alternatives.instruction
        return _home(instruction)[0].place(instruction)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines of the user's program that it computes something of."""
        instruction = self.alternatives.instruction
        return kernel_lines(_home(instruction)[0], instruction)

    @property
    def line(self) -> str:
        """The first of the lines, or an empty string."""
        return next(iter(self.lines), "")

    @cached_property
    def estimate(self) -> Estimate | None:
        """What it would cost."""
        found = self.candidate
        if found is None or self.spec is None:
            return None
        own = self.tile == found.tile
        return found.estimate if own else estimate(found.site, found.kernel, self.spec)

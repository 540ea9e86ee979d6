"""The kernel of an instruction: that of the first source that has one, or the one a plan is made with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Instruction
from hloopt.kernels.backend_config import read_choice
from hloopt.kernels.kernel import Disproved, Kernel, KernelDevice, unsupported
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection.candidate import Candidate, with_tile
from hloopt.kernels.selection.choice import Alternatives, Choice
from hloopt.kernels.selection.selectors import pick
from hloopt.kernels.selection.sources import ChoiceSource
from hloopt.kernels.spec import KernelSpec
from hloopt.targets import Target

__all__ = ["KernelChooser", "choose", "no_kernel"]

_MOST_REASONS: Final = 4
"""How many reasons are always reported; of more, those in which a figure rules a kernel out."""


@dataclass(frozen=True)
class KernelChooser:
    """Consults sources in order, for one instruction of a module after the other."""

    sources: Sequence[ChoiceSource]
    target: Target
    limits: Limits
    known: Sequence[Kernel]
    notes: list[str] = field(default_factory=list)

    def choose(self, instruction: Instruction) -> Choice:
        """The kernel of an instruction, none where nothing fits; the candidates with their verdicts."""
        given = Alternatives.of(instruction, self.target, self.limits, self.known)
        for candidate in given.candidates:
            if isinstance(candidate.fits, Disproved):
                first = candidate.reason.split("\n")[0]
                what = f"{candidate.name} is not used for %{instruction.name}"
                self.notes.append(f"{candidate.kernel.owner}: {what}: {first}")
        for source in self.sources:
            if not given.able:
                source.unfit(instruction)
            elif (choice := source.choose(given)) is not None:
                return choice
        return Choice(given, None, {}, None, "", "no kernel fits")

    def finish(self) -> list[str]:
        """What a user should see.  Raises ``UsageError`` for requests and locks that had no effect."""
        for source in self.sources:
            source.finish()
        return [*self.notes, *(note for source in self.sources for note in source.notes)]


def choose(
    instruction: Instruction,
    target: Target,
    limits: Limits | None = None,
    *,
    device: KernelDevice = "gpu",
    known: Sequence[Kernel] | None = None,
) -> tuple[Kernel, KernelSpec]:
    """The kernel of an instruction and how it runs: as its ``backend_config`` says, else by the rules.

    ``known`` are the kernels to choose from, all those of the device unless given.  Raises ``UnsupportedError``
    at the instruction's place where nothing fits, with every reason, and where what is written does not fit.
    """
    every = kernels(device) if known is None else known
    limits = limits or Limits()
    written = read_choice(instruction)
    if written is None:
        given = Alternatives.of(instruction, target, limits, every)
        if not given.able:
            raise no_kernel(instruction, given.candidates)
        best, _ = pick(given.able)
        return best.kernel, best.spec
    name, tile = written
    named = [kernel for kernel in every if kernel.name == name][:1]
    requested = f"has a backend_config that asks for {name}"
    if not named:
        raise unsupported(
            instruction, f"has a backend_config that asks for '{name}', which is not a known kernel"
        )
    (candidate,) = Alternatives.of(instruction, target, limits, named).candidates
    if not candidate.ok:
        raise unsupported(instruction, f"{requested}, which does not fit: {candidate.reason}")
    try:
        return candidate.kernel, with_tile(candidate.kernel, candidate.site, tile)[1]
    except UsageError as error:
        problem = f"has a backend_config that cannot be: {error.message}"
        raise unsupported(instruction, problem) from error


def no_kernel(instruction: Instruction, found: Iterable[Candidate]) -> UnsupportedError:
    """No kernel fits: the reasons of all, those that several share only once, that of all without names."""
    reasons: dict[str, list[str]] = {}
    for candidate in found:
        reasons.setdefault(candidate.reason, []).append(candidate.name)
    target = instruction.custom_call_target
    error = unsupported(instruction, f"to {target} fits no kernel" if target else "fits no kernel")
    rows = [(", ".join(names), reason) for reason, names in reasons.items()]
    if len(rows) == 1:
        error.notes = tuple(reasons)
        return error
    near = [row for row in rows if re.search(r"\d", row[1].replace(instruction.name, ""))]
    shown = near[:_MOST_REASONS] if len(rows) > _MOST_REASONS else rows
    error.notes = tuple(f"{names}: {why}" for names, why in shown)
    if len(shown) < len(rows):
        others = sum(map(len, reasons.values())) - sum(len(reasons[why]) for _, why in shown)
        error.notes += (f"{others} kernels are for other instructions (hloopt explain --all)",)
    return error

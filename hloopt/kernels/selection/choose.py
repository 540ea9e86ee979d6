"""One instruction's kernel: the choice that is written, or the rules'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hloopt.analysis.region import region_of
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel, KernelDevice, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.problem import unsupported
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection.candidate import Candidate, candidates, with_tile
from hloopt.kernels.selection.selectors import pick
from hloopt.kernels.spec import KernelSpec
from hloopt.kernels.written import read_choice
from hloopt.targets import Target

__all__ = ["choose", "no_kernel"]

_MOST_REASONS: Final = 4
"""Reasons that are told whatever they say; of more, those in which a figure rules a kernel out."""


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
    site = Site(region_of(instruction), target, limits or Limits())
    written = read_choice(instruction)
    if written is not None:
        name, tile = written
        kernel = next((kernel for kernel in every if kernel.name == name), None)
        if kernel is None:
            raise unsupported(
                instruction, f"has a backend_config that asks for '{name}', a kernel nobody knows"
            )
        (candidate,) = candidates(site, (kernel,))
        if not candidate.ok:
            raise unsupported(
                instruction,
                f"has a backend_config that asks for {name}, which does not fit: {candidate.reason}",
            )
        try:
            return kernel, with_tile(kernel, site, tile)[1]
        except UsageError as error:
            raise unsupported(
                instruction, f"has a backend_config that cannot be: {error.message}"
            ) from error
    found = candidates(site, every)
    able = [candidate for candidate in found if candidate.ok]
    if not able:
        raise no_kernel(instruction, found)
    best, _ = pick(able)
    return best.kernel, best.spec


def no_kernel(instruction: Instruction, found: Iterable[Candidate]) -> UnsupportedError:
    """No kernel fits: the reasons of all, those that several share told once, that of all without names."""
    reasons: dict[str, list[str]] = {}
    for candidate in found:
        reasons.setdefault(candidate.reason, []).append(candidate.name)
    target = instruction.attributes.get("custom_call_target", "")
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

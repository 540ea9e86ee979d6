"""Choosing a kernel for every instruction that is run by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, build
from hloopt.kernels import selectable
from hloopt.kernels.buffers.joined import joined_in_place
from hloopt.kernels.kernel import ChooseKernel, Kernel, KernelDevice
from hloopt.kernels.limits import Limits
from hloopt.kernels.lock import read_lock
from hloopt.kernels.registry import kernels, registered_kernels
from hloopt.kernels.selection.choice import Choice
from hloopt.kernels.selection.chooser import KernelChooser, choose
from hloopt.kernels.selection.requests import parse_request, tile_text
from hloopt.kernels.selection.selectors import find_selector
from hloopt.kernels.selection.sources import (
    ChoiceSource,
    ConfigSource,
    CustomFusionSource,
    DefaultSource,
    LockSource,
    RequestSource,
    RuleSource,
)
from hloopt.kernels.spec import KernelSpec
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.targets import Target, find_gpu
from hloopt.targets.target import HOST

__all__ = ["KernelSelection"]

# These are 1 or more; the other limits are thresholds that may be out of reach.
_COUNTS = frozenset(("loop_threads", "loop_unroll", "sort_threads"))


@dataclass(frozen=True)
class KernelSelection(Limits, Pass):
    """Choose a kernel and its tile for every instruction, and write both into its backend_config.

    Those of the entry and of control flow; bitcasts, tuples and constants need none.  An instruction for
    which nothing fits is left alone: planning refuses it by name.  What decides, in this order: kernel, lock,
    rule, what is written already, the name in a custom fusion, selector.

    selector   rules: the first in order of preference that fits and is wanted, else the cheapest; cost: the
               cheapest by estimate
    target     the device to choose for
    device     gpu, or native for the kernels of the host
    kernel     what the user wants: PATTERN=NAME or PATTERN=NAME{key=N}
    lock       a lock file
    frozen     whether it is an error that the lock file does not suit the module
    rule       the name of a function that --kernel MODULE:FUNCTION loaded
    keep       whether a choice that is written and fits stays
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] negate(x)
  ROOT z = f32[1024] exponential(y)
}
"""

    selector: str = "rules"
    target: str = "h200"
    device: KernelDevice = "gpu"
    kernel: tuple[str, ...] = ()
    lock: str = ""
    frozen: bool = False
    rule: str = ""
    keep: bool = True

    def __post_init__(self) -> None:
        for option in fields(Limits):
            value, least = getattr(self, option.name), int(option.name in _COUNTS)
            if value < least:
                raise UsageError(f"{self.name}: {option.name}={value} is less than {least}")
        for text in self.kernel:
            parse_request(text)

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each instruction once; the choices are left in the log's records."""
        chooser = self.chooser(module)
        found: list[Choice] = []
        with build.no_collection():
            joined = joined_in_place(module).concatenates
            for _, instruction in selectable(module):
                if instruction not in joined:
                    found.append(chooser.choose(instruction))
        log.notes += chooser.finish()
        log.records += found
        changed = False
        for choice in found:
            changed |= self.write(choice, log)
        for kernel in registered_kernels(self.device):
            if all(choice.kernel != kernel.name for choice in found):
                log.note(_idle(kernel.name, found))
        return changed

    def chooser(self, module: Module) -> KernelChooser:
        """The sources of choices.  Raises ``UsageError`` for an unknown target, kernel or selector."""
        if self.frozen and not self.lock:
            raise UsageError("frozen says that a lock file has to suit, but none is given by lock")
        for selector in filter(None, (self.rule, self.selector)):
            find_selector(selector)
        lock = read_lock(self.lock) if self.lock else None
        if lock is not None and lock.device != self.device:
            raise UsageError(
                f"{self.lock} holds kernels of the {lock.device}, not of the {self.device}"
            )
        target = self.described
        known = kernels(self.device)
        requests = tuple(map(parse_request, self.kernel))
        sources: list[ChoiceSource] = [
            RequestSource(module, requests, [kernel.name for kernel in known]),
            *([LockSource(module, lock, target, frozen=self.frozen)] if lock is not None else ()),
            *([RuleSource(module, self.rule, target)] if self.rule else ()),
            *([ConfigSource(module)] if self.keep else ()),
            CustomFusionSource(module),
            RuleSource(module, self.selector, target),
            DefaultSource(module),
        ]
        return KernelChooser(sources, target, self.limits(), known)

    @property
    def described(self) -> Target:
        """The description of the device.  Raises ``UsageError`` where there is none."""
        return HOST if self.device == "native" else find_gpu(self.target)

    def kernel_of(self, choices: Iterable[Choice]) -> ChooseKernel:
        """The plan's source of kernels: what was chosen; where nothing was, what ``choose`` gives."""
        known = {choice.alternatives.instruction: choice for choice in choices}
        target, limits = self.described, self.limits()

        def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
            choice = known.get(instruction)
            if choice is None or choice.candidate is None or choice.spec is None:
                return choose(instruction, target, limits, device=self.device)
            return choice.candidate.kernel, choice.spec

        return chosen

    def limits(self) -> Limits:
        """The limits alone."""
        return Limits(**{entry.name: getattr(self, entry.name) for entry in fields(Limits)})

    def write(self, choice: Choice, log: PassLog) -> bool:
        """Write one choice, unless it is there."""
        step, config = "choose a kernel", choice.alternatives.config
        instruction = choice.alternatives.instruction
        if not choice.kernel:
            log.miss(step, instruction, choice.reason)
            return False
        if config.choice == (choice.kernel, dict(choice.tile)):
            return False
        if refused := config.refusal():
            log.miss(step, instruction, f"{choice.kernel} is not written: {refused}")
            return False
        if not log.allows():
            return False
        log.hit(step, instruction, f"{choice.kernel}{tile_text(choice.tile)}: {choice.reason}")
        config.write(choice.kernel, choice.tile)
        return True


def _idle(name: str, choices: list[Choice]) -> str:
    """Why a user-defined kernel runs nothing."""
    fitting = [
        choice
        for choice in choices
        if any(entry.name == name and entry.fits for entry in choice.candidates)
    ]
    if fitting:
        first = fitting[0]
        return (
            f"{name} runs nothing: it fits %{first.instruction}, which {first.kernel} runs; "
            f"--kernel '{first.instruction}={name}' chooses it"
        )
    reasons = Counter(
        entry.fits.reason for choice in choices for entry in choice.candidates if entry.name == name
    )
    fused = any(choice.opcode == "fusion" for choice in choices)
    more = "; what it stands for may be part of a fusion: -O1 fuses nothing" if fused else ""
    why = f" ({reasons.most_common(1)[0][0]})" if reasons else ""
    return f"{name} runs nothing: no instruction here is what it stands for{why}{more}"

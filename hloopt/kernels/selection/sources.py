"""The sources of kernel choices, in the order in which ``kernel-selection`` consults them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels import selectable
from hloopt.kernels.lock import Lock
from hloopt.kernels.selection.choice import Alternatives, Choice, unknown_kernel
from hloopt.kernels.selection.requests import KernelRequest
from hloopt.kernels.selection.selectors import ask, pick
from hloopt.kernels.standalone import signature
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target

__all__ = [
    "ChoiceSource",
    "ConfigSource",
    "CustomFusionSource",
    "DefaultSource",
    "LockSource",
    "RequestSource",
    "RuleSource",
]


class ChoiceSource(ABC):
    """Something that decides about some instructions of a module; ``notes`` are what a user should see."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.notes: list[str] = []

    @abstractmethod
    def choose(self, given: Alternatives) -> Choice | None:
        """Its choice, where it has one; called where any kernel fits."""

    def unfit(self, instruction: Instruction) -> None:  # noqa: B027 - most have nothing to do
        """Called for an instruction that no kernel fits."""

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """After the last instruction.  Raises ``UsageError`` for what had no effect."""


class RequestSource(ChoiceSource):
    """``--kernel``: the last request that matches the instruction and can be granted."""

    def __init__(
        self, module: Module, requests: Sequence[KernelRequest], known: Sequence[str]
    ) -> None:
        """Raises ``UsageError`` for a kernel that is not known."""
        super().__init__(module)
        self._requests = requests
        self._matched: dict[KernelRequest, int] = dict.fromkeys(requests, 0)
        self._refused: dict[KernelRequest, list[str]] = {request: [] for request in requests}
        for request in requests:
            if request.kernel not in known:
                raise _error(request, unknown_kernel(request.kernel, known))

    def choose(self, given: Alternatives) -> Choice | None:
        """By the last of the requests that match the instruction and can be granted."""
        for request in reversed(self._requests):
            if not request.matches(given.instruction):
                continue
            self._matched[request] += 1
            source = f"--kernel '{request.text}'"
            try:
                return given.take(request.kernel, request.tile, source, "requested by the user")
            except UsageError as error:
                self._refuse(request, given.instruction, error.message)
        return None

    def unfit(self, instruction: Instruction) -> None:
        """Every request that matches it is refused."""
        for request in self._requests:
            if request.matches(instruction):
                self._matched[request] += 1
                self._refuse(request, instruction, "no kernel fits it")

    def _refuse(self, request: KernelRequest, instruction: Instruction, reason: str) -> None:
        place = self.module.place(instruction)
        self._refused[request].append(f"%{instruction.name} ({place}): {reason}")

    def finish(self) -> None:
        """Raise ``UsageError`` for a request that was granted to no instruction."""
        for request, matched in self._matched.items():
            refused = self._refused[request]
            if not matched:
                raise _error(request, self._matches_nothing(request))
            if len(refused) == matched:
                raise _error(request, refused[0])
            if refused:
                few = f"{len(refused)} of {matched}: {refused[0]}"
                self.notes.append(f"--kernel '{request.text}' is not granted to {few}")

    def _matches_nothing(self, request: KernelRequest) -> str:
        """Why a pattern matches no instruction that runs a kernel."""
        if not request.names_one:
            return "no instruction that needs a kernel matches"
        named = request.pattern.removeprefix("%")
        if any(entry.name == named for entry in self.module.instructions()):
            return f"%{named} has no separate kernel"
        runs = [one.name for _, one in selectable(self.module)]
        return f"no instruction is called '{named}'" + did_you_mean(named, runs)


def _error(request: KernelRequest, problem: str) -> UsageError:
    return UsageError(f"--kernel: '{request.text}': {problem}")


class LockSource(ChoiceSource):
    """A lock file, where its entry matches the instruction as it is."""

    def __init__(self, module: Module, lock: Lock, target: Target, *, frozen: bool) -> None:
        super().__init__(module)
        self._lock, self._frozen = lock, frozen
        self._seen: set[tuple[str, str, str]] = set()
        self._stale: list[str] = []
        if lock.target != target.name:
            self._stale.append(f"it is for {lock.target}, not for {target.name}")

    def choose(self, given: Alternatives) -> Choice | None:
        """As the entry of the instruction says."""
        try:
            return self._locked(given)
        except UsageError as error:
            self._stale.append(f"%{given.instruction.name}: {error.message}")
            return None

    def _locked(self, given: Alternatives) -> Choice:
        entry = self._lock.of(given.instruction)
        if entry is None:
            raise UsageError("it has no entry")
        self._seen.add(entry.place)
        if entry.signature != signature(given.instruction):
            raise UsageError(f"it has changed since {entry.kernel} was chosen")
        source = f"lock {self._lock.name}"
        return given.take(entry.kernel, entry.tile, source, "it stands in the lock file")

    def finish(self) -> None:
        """Raise ``UsageError`` for a frozen lock file that does not suit the module."""
        for module, computation, instruction in self._lock.entries:
            place = module, computation, instruction
            if module != self.module.name or place in self._seen:
                continue
            home = self.module.computations.get(computation)
            if home is None or instruction not in home.by_name:
                missing = f"there is no such instruction in {computation}"
                self._stale.append(f"%{instruction}: {missing}")
        if not self._stale:
            return
        more = f" (and {len(self._stale) - 1} more)" if len(self._stale) > 1 else ""
        problem = f"{self._lock.name} does not suit this module: {self._stale[0]}{more}"
        if self._frozen:
            raise UsageError(problem)
        self.notes.append(problem)


class RuleSource(ChoiceSource):
    """A function: the user's rule, or a selector."""

    def __init__(self, module: Module, name: str, target: Target) -> None:
        super().__init__(module)
        self._name, self._target = name, target

    def choose(self, given: Alternatives) -> Choice | None:
        """What the function returns.  Raises ``UsageError`` for an invalid answer."""
        answer = ask(self._name, given.instruction, given.candidates, self._target)
        if answer is None:
            return None
        try:
            return given.take(*answer, f"selector {self._name}", f"{self._name} answers it")
        except UsageError as error:
            where = f"%{given.instruction.name} ({self.module.place(given.instruction)})"
            raise UsageError(
                f"{self._name} answers '{answer[0]}' for {where}: {error.message}"
            ) from error


class ConfigSource(ChoiceSource):
    """What stands in the ``backend_config``, unless that no longer fits."""

    def choose(self, given: Alternatives) -> Choice | None:
        """As it is written."""
        if given.config.choice is None:
            return None
        try:
            return given.take(*given.config.choice, "backend_config", "it is written there")
        except UsageError as error:
            name = given.instruction.name
            self.notes.append(f"%{name}: what was written is not kept: {error.message}")
            return None


class CustomFusionSource(ChoiceSource):
    """The kernel that a custom fusion names: the pass that made it has considered others."""

    def choose(self, given: Alternatives) -> Choice | None:
        """That kernel with its own tile, where it fits."""
        named = [one for one in given.able if one.name == given.config.custom]
        reason = "the fusion was made for it"
        return given.default(named[0], "backend_config", reason) if named else None


class DefaultSource(ChoiceSource):
    """The rules: the first that fits and is wanted, else the cheapest."""

    name: ClassVar[str] = "rules"

    def choose(self, given: Alternatives) -> Choice | None:
        """Always a kernel."""
        best, reason = pick(given.able)
        return given.default(best, self.name, reason)

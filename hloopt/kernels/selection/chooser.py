"""Choosing with the user's hand: wishes, a lock file, a rule, what is written, a selector, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hloopt.analysis.custom_fusion import custom_name
from hloopt.analysis.region import region_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.estimate import estimate
from hloopt.kernels.kernel import Disproved, Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.lock import Lock
from hloopt.kernels.needed import selectable
from hloopt.kernels.selection.candidate import Candidate, candidates, with_tile
from hloopt.kernels.selection.choice import Choice, considered
from hloopt.kernels.selection.selectors import ask, pick
from hloopt.kernels.selection.wish import Wish
from hloopt.kernels.spec import KernelSpec, Tile
from hloopt.kernels.structure import signature
from hloopt.kernels.written import read_choice
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target

__all__ = ["Chooser"]


@dataclass(frozen=True, slots=True)
class _Picked:
    candidate: Candidate
    tile: Tile
    spec: KernelSpec
    by: str
    reason: str


@dataclass
class Chooser:
    """The state of one run over a module.

    matched  how many instructions each wish meant
    refused  why wishes could not be granted, instruction by instruction
    stale    what a lock file holds that is no longer so
    notes    what a user should see
    """

    module: Module
    target: Target
    limits: Limits
    known: Sequence[Kernel]
    wishes: Sequence[Wish] = ()
    lock: Lock | None = None
    frozen: bool = False
    rule: str = ""
    selector: str = "rules"
    keep: bool = True
    matched: dict[Wish, int] = field(default_factory=dict)
    refused: dict[Wish, list[tuple[Instruction, str]]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [kernel.name for kernel in self.known]
        for wish in self.wishes:
            if wish.kernel not in names:
                raise UsageError(f"--kernel: '{wish.text}': {_unknown(wish.kernel, names)}")

    def choose(self, instruction: Instruction) -> Choice:
        """The kernel of an instruction, empty where nothing fits; the candidates with their verdicts."""
        site = Site(region_of(instruction), self.target, self.limits)
        found = candidates(site, self.known)
        self.notes += [
            f"{candidate.kernel.owner}: {candidate.name} is not used for %{instruction.name}: "
            + candidate.reason.split("\n")[0]
            for candidate in found
            if isinstance(candidate.fits, Disproved)
        ]
        picked = None
        if any(candidate.ok for candidate in found):
            picked = (
                self._wished(instruction, found)
                or self._locked(instruction, found)
                or self._ruled(self.rule, instruction, found)
                or self._written(instruction, found)
                or _named(instruction, found)
                or self._ruled(self.selector, instruction, found)
                or _by_rules(found)
            )
        else:
            self._in_vain(instruction)
        return self._record(instruction, site, found, picked)

    def _in_vain(self, instruction: Instruction) -> None:
        for wish in self.wishes:
            if wish.matches(instruction):
                self.matched[wish] = self.matched.get(wish, 0) + 1
                self.refused.setdefault(wish, []).append((instruction, "no kernel fits it"))

    def _wished(self, instruction: Instruction, found: Sequence[Candidate]) -> _Picked | None:
        """By the last of the wishes that mean the instruction and can be granted."""
        for wish in reversed(self.wishes):
            if not wish.matches(instruction):
                continue
            self.matched[wish] = self.matched.get(wish, 0) + 1
            by = f"--kernel '{wish.text}'"
            picked = _take(found, wish.kernel, wish.tile, by, "the user asks for it")
            if isinstance(picked, _Picked):
                return picked
            self.refused.setdefault(wish, []).append((instruction, picked))
        return None

    def _locked(self, instruction: Instruction, found: Sequence[Candidate]) -> _Picked | None:
        """By the lock file, where it tells of the instruction as it is."""
        if self.lock is None:
            return None
        entry = self.lock.of(instruction)
        name = f"%{instruction.name}"
        if entry is None:
            self.stale.append(f"{name}: there is no entry for it")
            return None
        self.seen.add(entry.place)
        if entry.signature != signature(instruction):
            self.stale.append(f"{name}: it is no longer what it was when {entry.kernel} was chosen")
            return None
        by = f"lock {self.lock.name}"
        picked = _take(found, entry.kernel, entry.tile, by, "it stands in the lock file")
        if isinstance(picked, _Picked):
            return picked
        self.stale.append(f"{name}: {picked}")
        return None

    def _ruled(
        self, name: str, instruction: Instruction, found: Sequence[Candidate]
    ) -> _Picked | None:
        """By a rule of the user's or a selector; raises ``UsageError`` for an answer that cannot be."""
        if not name:
            return None
        answer = ask(name, instruction, found, self.target)
        if answer is None:
            return None
        picked = _take(found, *answer, f"selector {name}", f"{name} answers it")
        if isinstance(picked, _Picked):
            return picked
        place = self.module.place(instruction)
        raise UsageError(
            f"{name} answers '{answer[0]}' for %{instruction.name} ({place}): {picked}"
        )

    def _written(self, instruction: Instruction, found: Sequence[Candidate]) -> _Picked | None:
        """As it stands in the backend_config, unless that no longer fits."""
        written = read_choice(instruction) if self.keep else None
        if written is None:
            return None
        picked = _take(found, *written, "backend_config", "it is written there")
        if isinstance(picked, _Picked):
            return picked
        self.notes.append(f"%{instruction.name}: what was written is not kept: {picked}")
        return None

    def _record(
        self,
        instruction: Instruction,
        site: Site,
        found: Sequence[Candidate],
        picked: _Picked | None,
    ) -> Choice:
        computation = instruction.computation
        assert computation is not None, "an instruction of a module"
        cost = None
        if picked is not None and picked.tile == picked.candidate.tile:
            cost = picked.candidate.estimate
        elif picked is not None:
            cost = estimate(site, picked.candidate.kernel, picked.spec)
        return Choice(
            self.module.name,
            computation.name,
            instruction.name,
            instruction.opcode,
            str(instruction.shape),
            picked.candidate.name if picked is not None else "",
            picked.tile if picked is not None else {},
            picked.by if picked is not None else "",
            picked.reason if picked is not None else "no kernel fits",
            tuple(map(considered, found)),
            picked.spec if picked is not None else None,
            cost,
            self.module.place(instruction),
            kernel_lines(self.module, instruction),
        )

    def finish(self) -> None:
        """Raise ``UsageError`` for wishes that came to nothing, and for a lock that is frozen and stale."""
        for wish in self.wishes:
            refused, matched = self.refused.get(wish, []), self.matched.get(wish, 0)
            if not matched:
                raise UsageError(f"--kernel: '{wish.text}': {self._matches_nothing(wish)}")
            if refused:
                instruction, reason = refused[0]
                told = f"%{instruction.name} ({self.module.place(instruction)}): {reason}"
                if len(refused) == matched:
                    raise UsageError(f"--kernel: '{wish.text}': {told}")
                self.notes.append(
                    f"--kernel '{wish.text}' is not granted to {len(refused)} of {matched}: {told}"
                )
        if self.lock is not None:
            self._finish_lock(self.lock)

    def _finish_lock(self, lock: Lock) -> None:
        if lock.target != self.target.name:
            self.stale.insert(0, f"it is for {lock.target}, not for {self.target.name}")
        mine = [place for place in lock.entries if place[0] == self.module.name]
        self.stale += [
            f"%{instruction}: there is no such instruction in {computation}"
            for _, computation, instruction in (place for place in mine if place not in self.seen)
            if not self._is_there(computation, instruction)
        ]
        if not self.stale:
            return
        more = f" (and {len(self.stale) - 1} more)" if len(self.stale) > 1 else ""
        told = f"{lock.name} does not suit this module: {self.stale[0]}{more}"
        if self.frozen:
            raise UsageError(told)
        self.notes.append(told)

    def _is_there(self, computation: str, instruction: str) -> bool:
        home = self.module.computations.get(computation)
        return home is not None and instruction in home.by_name

    def _matches_nothing(self, wish: Wish) -> str:
        """Why a pattern means no instruction that runs a kernel."""
        names = [entry.name for entry in self.module.instructions()]
        named = wish.pattern.removeprefix("%")
        if wish.names_one and named in names:
            return f"%{named} is not run by a kernel of its own"
        if wish.names_one:
            runs = [one.name for _, one in selectable(self.module)]
            return f"no instruction is called '{named}'" + did_you_mean(named, runs)
        return "no instruction that needs a kernel matches"


def _unknown(name: str, names: Sequence[str]) -> str:
    """No kernel is called so, but perhaps nearly; all of them are too many for a message."""
    hint = did_you_mean(name, names)
    listed = "; hloopt kernels --list has them all"
    return f"no kernel is called '{name}'" + (listed if hint.startswith("; near") else hint)


def _named(instruction: Instruction, found: Sequence[Candidate]) -> _Picked | None:
    """By the name of its kernel that a custom fusion has: the pass that made it has weighed others."""
    name = custom_name(instruction)
    if not any(entry.name == name and entry.ok for entry in found):
        return None
    picked = _take(found, name, {}, "backend_config", "the fusion was made for it")
    assert isinstance(picked, _Picked), "its own tile suits it"
    return picked


def _take(found: Sequence[Candidate], name: str, tile: Tile, by: str, reason: str) -> _Picked | str:
    """The candidate of a name with a tile, or why it cannot be had."""
    candidate = next((entry for entry in found if entry.name == name), None)
    if candidate is None:
        return _unknown(name, [entry.name for entry in found])
    if not candidate.ok:
        return f"{name} does not fit: {candidate.reason}"
    try:
        full, spec = with_tile(candidate.kernel, candidate.site, tile)
    except UsageError as error:
        return error.message
    return _Picked(candidate, full, spec, by, reason)


def _by_rules(found: Sequence[Candidate]) -> _Picked:
    best, reason = pick([candidate for candidate in found if candidate.ok])
    return _Picked(best, best.tile, best.spec, "rules", reason)

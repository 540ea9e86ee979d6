"""What passes did to an instruction before anything was fused, and what would have left it alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.fusion.locked_fusion import LockedFusion
from hloopt.fusion.strategies import is_strategy
from hloopt.ir import Instruction, Module
from hloopt.rewrite import Pass, PassRun
from hloopt.rewrite.pass_ import Remark
from hloopt.types import Metadata

__all__ = ["MAKERS", "Rewrite", "Rewrites", "identity"]

MAKERS = "hloopt.fusion."
"""Where passes are from that make fusions, whether they decide about many or make those of one kind."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite that touched an instruction, or (``made``) the one that an instruction comes from.

    opcode       what the instruction was before; of one that was made, what it was made for
    instruction  the name of that
    ways         what would have left it: options of the pass, and what ``--disable`` takes
    """

    pass_name: str
    run: int
    rule: str
    reason: str
    instruction: str
    opcode: str
    ways: tuple[str, ...]
    made: bool = False


@dataclass
class Rewrites:
    """The rewrites of the runs of a pipeline, by the instructions that they are about.

    A module that was no text has no places: a copy of one of its instructions is known by name and opcode.
    """

    _told: dict[object, dict[Rewrite, None]] = field(default_factory=dict)
    _known: set[object] = field(default_factory=set)
    _placeless: set[tuple[str, str]] = field(default_factory=set)
    _makers: dict[object, PassRun] = field(default_factory=dict)
    _lines: dict[int, dict[Metadata, list[Remark]]] = field(default_factory=dict)

    def begin(self, module: Module) -> None:
        """Note what is there before the first pass."""
        for entry in module.instructions():
            self._known.add(identity(entry))
            if entry.offset < 0:
                self._placeless.add((entry.name, entry.opcode))

    def add(self, run: PassRun, module: Module) -> None:
        """Note what a run tells of its rewrites, and what it made; fusions are another story."""
        instance = run.instance
        if not run.changed or is_strategy(instance) or isinstance(instance, LockedFusion):
            return
        if type(instance).__module__.startswith(MAKERS):
            return
        for remark in run.remarks:
            if remark.kind == "passed":
                rows = self._told.setdefault(_subject(remark), {})
                rows[_rewrite(remark, run)] = None
        for entry in module.instructions():
            key = identity(entry)
            if key not in self._known:
                self._known.add(key)
                if (entry.name, entry.opcode) not in self._placeless:
                    self._makers[key] = run

    def of(self, instruction: Instruction) -> tuple[Rewrite, ...]:
        """What touched an instruction of the file or made one that is not, in the order of the runs."""
        key = identity(instruction)
        home = instruction.computation
        place = (home.name if home is not None else "", instruction.name)
        told = [*self._told.get(key, ()), *self._told.get(place, ())]
        maker = self._makers.get(key)
        if maker is None:
            return tuple(dict.fromkeys(told))
        since = [rewrite for rewrite in told if rewrite.run > maker.number]
        return tuple(dict.fromkeys((self._making(maker, instruction), *since)))

    def _making(self, run: PassRun, instruction: Instruction) -> Rewrite:
        """The rewrite of a run that made an instruction: where one alone is about that line of the program."""
        if run.number not in self._lines:
            lines = self._lines[run.number] = {}
            for remark in run.remarks:
                if remark.kind == "passed" and remark.metadata is not None:
                    lines.setdefault(remark.metadata.own, []).append(remark)
        metadata = instruction.metadata
        found = self._lines[run.number].get(metadata.own, []) if metadata is not None else []
        if len(found) == 1:
            return _rewrite(found[0], run, made=True)
        name = run.instance.name
        return Rewrite(name, run.number, "", "", "", "", (f"--disable {name}",), made=True)

    def of_lost(self, key: object, place: tuple[str, str]) -> tuple[Rewrite, ...]:
        """What touched an instruction of the file that is gone, by its identity and its place there."""
        return tuple(self._told.get(key if isinstance(key, int) else place, ()))


def identity(instruction: Instruction) -> object:
    """What stays with an instruction and its copies: its place in the text, or else itself."""
    return instruction.offset if instruction.offset >= 0 else instruction


def _subject(remark: Remark) -> object:
    if remark.offset >= 0:
        return remark.offset
    return remark.computation, remark.instruction


def _rewrite(remark: Remark, run: PassRun, *, made: bool = False) -> Rewrite:
    return Rewrite(
        run.instance.name,
        run.number,
        remark.rule,
        remark.reason,
        remark.instruction,
        remark.opcode,
        tuple(_ways(remark, run.instance)),
        made,
    )


def _ways(remark: Remark, instance: Pass) -> Iterator[str]:
    yield from (f"{instance.name}{{{option}}}" for option in remark.otherwise)
    if remark.rule not in instance.rules:
        yield f"--disable {instance.name}"
        return
    had = {entry.name for entry in dataclasses.fields(instance)}  # type: ignore[arg-type]
    for option in ("fast_math", "floats_are_real"):
        if instance.rules[remark.rule] and option in had and getattr(instance, option):
            yield f"{instance.name}{{{option}=false}}"
    yield f"--disable '{remark.rule}'"

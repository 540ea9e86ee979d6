"""Where the instructions of a file come from and go to while passes run, for explanations of fusion.

What passes before the first strategy did to each instruction, and what would have prevented that; the graph
right before the first strategy, and which instructions of the file its nodes are.  What strategies did is in
the module's history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from hloopt.analysis.hero import results_of
from hloopt.dataclass import dataclass
from hloopt.fusion.fusible import may_be_fused
from hloopt.fusion.history import FusionHistory, FusionPlan, Histories
from hloopt.fusion.strategies import begins_fusion, fusible_computations
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.rewrite import Pass, PassRun, Watcher
from hloopt.rewrite.naming import op_name_of
from hloopt.rewrite.pass_ import Remark
from hloopt.types import Metadata
from hloopt.types.shape import without_layout

__all__ = ["FusionNode", "GivenInstruction", "GoneInstruction", "Provenance", "TracedRewrite"]

_Place: TypeAlias = tuple[str, str]
"""Computation and name."""


@dataclass(frozen=True, slots=True)
class FusionNode:
    """An instruction before the first strategy.

    place   where it stands in the HLO text: file, line and column, or what there is of them
    sources the user's lines
    users   names, in the order of their operands' use
    number  its rank: whatever needs it has a higher one
    fusible whether some strategy could make it part of a fusion
    byte_size of its result
    """

    computation: str
    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    users: tuple[str, ...]
    op_name: str = ""
    place: str = ""
    sources: tuple[str, ...] = ()
    number: int = 0
    fusible: bool = True
    byte_size: int = 0


@dataclass(frozen=True, slots=True)
class GivenInstruction:
    """An instruction of the file: ``caller`` is the fusion or other op whose computation it is in."""

    computation: str
    name: str
    opcode: str
    shape: str
    op_name: str
    caller: str = ""
    caller_opcode: str = ""


@dataclass(frozen=True, slots=True)
class GoneInstruction:
    """The run that took an instruction away, and its remark on that."""

    pass_name: str
    run: int
    rewrite: TracedRewrite | None = None


@dataclass(frozen=True, slots=True)
class TracedRewrite:
    """A rewrite that touched an instruction, or (``made``) the one that an instruction comes from.

    opcode       what the instruction was before; of one that was made, what it was made for
    instruction  the name of that
    ways         how to prevent it: options of the pass, and what ``--disable`` takes
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
class _Rewrites:
    """The rewrites of the runs of a pipeline, by the instructions that they are about.

    A module that was no text has no places: a copy of one of its instructions is known by name and opcode.
    """

    _by_subject: dict[object, dict[TracedRewrite, None]] = field(default_factory=dict)
    _known: set[object] = field(default_factory=set)
    _placeless: set[tuple[str, str]] = field(default_factory=set)
    _makers: dict[object, PassRun] = field(default_factory=dict)
    _lines: dict[int, dict[Metadata, list[Remark]]] = field(default_factory=dict)

    def begin(self, module: Module) -> None:
        """Record the instructions before the first pass."""
        for entry in module.instructions():
            self._known.add(_identity(entry))
            if entry.offset < 0:
                self._placeless.add((entry.name, entry.opcode))

    def add(self, run: PassRun, left: Mapping[object, Instruction]) -> None:
        """Record a run's remarks on its rewrites, and what it made; fusions are in the history.

        ``left`` has the instructions after it, by identity.
        """
        if not run.changed or _fuses(run.instance):
            return
        for remark in run.remarks:
            if remark.kind == "passed":
                rows = self._by_subject.setdefault(_subject(remark), {})
                rows[_rewrite(remark, run)] = None
        for key, entry in left.items():
            if key not in self._known:
                self._known.add(key)
                if (entry.name, entry.opcode) not in self._placeless:
                    self._makers[key] = run

    def of(self, instruction: Instruction) -> tuple[TracedRewrite, ...]:
        """The rewrites of an instruction of the file, or those that made another, in the order of the runs."""
        key = _identity(instruction)
        home = instruction.computation
        place = (home.name if home is not None else "", instruction.name)
        rewrites = [*self._by_subject.get(key, ()), *self._by_subject.get(place, ())]
        maker = self._makers.get(key)
        if maker is None:
            return tuple(dict.fromkeys(rewrites))
        since = [rewrite for rewrite in rewrites if rewrite.run > maker.number]
        return tuple(dict.fromkeys((self._making(maker, instruction), *since)))

    def _making(self, run: PassRun, instruction: Instruction) -> TracedRewrite:
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
        return TracedRewrite(name, run.number, "", "", "", "", (f"--disable {name}",), made=True)

    def of_lost(self, key: object, place: tuple[str, str]) -> tuple[TracedRewrite, ...]:
        """The rewrites of an instruction of the file that was removed, by its identity and its place there."""
        return tuple(self._by_subject.get(key if isinstance(key, int) else place, ()))


@dataclass
class Provenance(Watcher):
    """A watcher of one run of a pipeline over one module.

    histories  those of the advice that the passes get
    given      the instructions of the file by computation and name
    nodes      those before the first strategy, by computation and name
    became     which nodes an instruction of the file has become
    gone       what removed those that became none
    alive      what exists after the last strategy
    origin     which instruction of the file a node is; none for those that a pass made
    touched    what passes before the first strategy did to a node
    """

    histories: Histories
    given: dict[_Place, GivenInstruction] = field(default_factory=dict)
    nodes: dict[_Place, FusionNode] = field(default_factory=dict)
    became: dict[_Place, list[_Place]] = field(default_factory=dict)
    gone: dict[_Place, GoneInstruction] = field(default_factory=dict)
    alive: dict[_Place, Instruction] = field(default_factory=dict)
    origin: dict[_Place, GivenInstruction] = field(default_factory=dict)
    touched: dict[_Place, tuple[TracedRewrite, ...]] = field(default_factory=dict)
    history: FusionHistory = field(default_factory=FusionHistory)
    _keys: dict[_Place, object] = field(default_factory=dict)
    _rewrites: _Rewrites = field(default_factory=_Rewrites)
    _wrapped: dict[_Place, str] = field(default_factory=dict)

    def begin(self, module: Module) -> None:
        """Record the instructions of the file."""
        self.history = self.histories.of(module)
        self._rewrites.begin(module)
        for computation in module:
            caller = next(iter(computation.callers), None)
            for entry in computation:
                place = computation.name, entry.name
                self.given[place] = GivenInstruction(
                    computation.name,
                    entry.name,
                    entry.opcode,
                    str(without_layout(entry.shape)),
                    op_name_of(entry),
                    caller.name if caller is not None else "",
                    caller.opcode if caller is not None else "",
                )
                self._keys[place] = _identity(entry)

    def before(self, number: int, instance: Pass, module: Module) -> None:
        """Record the graph before the first strategy, and fusions that other passes have made since."""
        if not self.nodes and begins_fusion(instance):
            self._note(module)
        if self.nodes and _fuses(instance):
            self.history.find(module, self.nodes)

    def after(self, run: PassRun, module: Module) -> None:
        """Record what a pass removed, and what a strategy left."""
        for record in run.records:
            if isinstance(record, FusionPlan):
                record.run = run.number
                self.alive = _live_instructions(module)
        if run.changed and not self.nodes:
            left: dict[object, Instruction] = {
                one.offset if one.offset >= 0 else one: one for home in module for one in home
            }
            self._rewrites.add(run, left)
            self._follow(run, module, left)

    def end(self, module: Module) -> None:
        """Record the graph if no strategy has run, and the fusions after the last one."""
        if not self.nodes:
            self._note(module)
        self.alive = self.alive or _live_instructions(module)
        self._wrapped = {
            (place[0], result.name): entry.name
            for place, entry in _live_instructions(module).items()
            if entry.opcode == "fusion"
            for result in results_of(entry)
        }

    def final_name(self, computation: str, kernel: str) -> str:
        """A kernel's name after all passes; empty where it no longer exists."""
        entry = self.alive.get((computation, kernel))
        if entry is not None and entry.computation is not None:
            return entry.name
        return self._wrapped.get((computation, kernel), "")

    def _follow(self, run: PassRun, module: Module, left: Mapping[object, Instruction]) -> None:
        lost = [
            place
            for place, key in self._keys.items()
            if key not in left and place not in self.gone and not _is_there(module, place)
        ]
        for place in lost:
            rewrites = self._rewrites.of_lost(self._keys[place], place)
            last = [rewrite for rewrite in rewrites if rewrite.run == run.number]
            self.gone[place] = GoneInstruction(
                run.instance.name, run.number, last[-1] if last else None
            )

    def _note(self, module: Module) -> None:
        by_key: dict[object, list[_Place]] = {}
        for home in fusible_computations(module):
            for node, entry in _nodes(home, module):
                place = home.name, node.name
                self.nodes[place] = node
                if touched := self._rewrites.of(entry):
                    self.touched[place] = touched
                by_key.setdefault(_identity(entry), []).append(place)
        for place, key in self._keys.items():
            found = by_key.get(key)
            if found is None and place in self.nodes:
                found = [place]
            if found is not None:
                self.became[place] = found
                self.gone.pop(place, None)
                for at in found:
                    self.origin.setdefault(at, self.given[place])


def _is_there(module: Module, place: _Place) -> bool:
    home = module.computations.get(place[0])
    return home is not None and place[1] in home.by_name


def _live_instructions(module: Module) -> dict[_Place, Instruction]:
    return {
        (home.name, entry.name): entry for home in fusible_computations(module) for entry in home
    }


def _fuses(instance: Pass) -> bool:
    """Whether a pass makes fusions, be it by deciding about many or by making those of one kind."""
    return begins_fusion(instance) or type(instance).__module__.startswith("hloopt.fusion.")


def _nodes(home: Computation, module: Module) -> Iterator[tuple[FusionNode, Instruction]]:
    for number, entry in enumerate(walk.post_order(home)):
        yield _node_of(entry, module, number), entry


def _node_of(entry: Instruction, module: Module, number: int = 0) -> FusionNode:
    """An instruction as a node; ``number`` is its rank among those of its computation."""
    home = entry.computation
    return FusionNode(
        home.name if home is not None else "",
        entry.name,
        entry.opcode,
        str(without_layout(entry.shape)),
        tuple(dict.fromkeys(operand.name for operand in entry.operands)),
        tuple(user.name for user in entry.users),
        op_name_of(entry),
        module.place(entry),
        module.user_lines(entry.metadata),
        number,
        may_be_fused(entry),
        entry.shape.byte_size,
    )


def _identity(instruction: Instruction) -> object:
    """The identity of an instruction and its copies: its place in the text, or else itself."""
    return instruction.offset if instruction.offset >= 0 else instruction


def _subject(remark: Remark) -> object:
    if remark.offset >= 0:
        return remark.offset
    return remark.computation, remark.instruction


def _rewrite(remark: Remark, run: PassRun, *, made: bool = False) -> TracedRewrite:
    return TracedRewrite(
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

"""Where the instructions of a file go while passes run: what somebody who explains fusion has to know.

The trail has the graph as it was right before the first strategy, which instructions of the file each of its
nodes is, which pass took the others away, and the plans of all strategies in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.fusion.homes import fusible_computations
from hloopt.fusion.ledger import may_be_fused, outputs_of
from hloopt.fusion.locked_fusion import LockedFusion
from hloopt.fusion.plan import FusionPlan
from hloopt.fusion.rewritten import MAKERS, Rewrite, Rewrites, identity
from hloopt.fusion.strategies import is_strategy
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.rewrite import Pass, PassRun, Watcher
from hloopt.rewrite.naming import op_name_of
from hloopt.types.shape import without_layout

__all__ = ["Body", "Given", "Gone", "Node", "Stage", "Trail", "node_of"]

Place = tuple[str, str]
"""Computation and name."""


@dataclass(frozen=True, slots=True)
class Node:
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
class Given:
    """An instruction of the file: ``caller`` is the fusion or other op whose computation it stands in."""

    computation: str
    name: str
    opcode: str
    shape: str
    op_name: str
    caller: str = ""
    caller_opcode: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The run that took an instruction away, and what it said of that."""

    pass_name: str
    run: int
    rewrite: Rewrite | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """What a fusion holds by the names in its body, and which of that are its results.

    ``was`` is what it was called after the strategy before; empty where it was not there.
    """

    kind: str
    members: tuple[str, ...]
    outputs: tuple[str, ...]
    was: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a strategy; ``bodies`` are the fusions that it found."""

    instance: Pass | None
    run: int
    plan: FusionPlan
    bodies: Mapping[Place, Body] = field(default_factory=dict)


@dataclass
class Trail(Watcher):
    """A watcher of one run of a pipeline over one module.

    given   the instructions of the file by computation and name
    nodes   those before the first strategy, by computation and name
    became  which nodes an instruction of the file has become
    gone    what took away those that became none
    stages  the strategies' runs
    alive   what stands after the last strategy
    bodies  of the fusions among that, where no strategy has run
    origin  which instruction of the file a node is; none for those that a pass made
    touched what passes before the first strategy did to a node
    """

    given: dict[Place, Given] = field(default_factory=dict)
    nodes: dict[Place, Node] = field(default_factory=dict)
    became: dict[Place, list[Place]] = field(default_factory=dict)
    gone: dict[Place, Gone] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    alive: dict[Place, Instruction] = field(default_factory=dict)
    bodies: dict[Place, Body] = field(default_factory=dict)
    origin: dict[Place, Given] = field(default_factory=dict)
    touched: dict[Place, tuple[Rewrite, ...]] = field(default_factory=dict)
    _keys: dict[Place, object] = field(default_factory=dict)
    _rewrites: Rewrites = field(default_factory=Rewrites)
    _wrapped: dict[Place, str] = field(default_factory=dict)
    _found: dict[Place, Body] = field(default_factory=dict)

    def begin(self, module: Module) -> None:
        """Note what the file has."""
        self._rewrites.begin(module)
        for computation in module:
            caller = next(iter(computation.callers), None)
            for entry in computation:
                place = computation.name, entry.name
                self.given[place] = Given(
                    computation.name,
                    entry.name,
                    entry.opcode,
                    str(without_layout(entry.shape)),
                    op_name_of(entry),
                    caller.name if caller is not None else "",
                    caller.opcode if caller is not None else "",
                )
                self._keys[place] = identity(entry)

    def before(self, number: int, instance: Pass, module: Module) -> None:
        """Note the graph before the first strategy."""
        if is_strategy(instance) or isinstance(instance, LockedFusion):
            if not self.nodes:
                self._note(module)
        elif not type(instance).__module__.startswith(MAKERS):
            return
        self._found = _bodies(module, self.alive)

    def after(self, run: PassRun, module: Module) -> None:
        """Note what a pass took away, and the plans of strategies."""
        plans = [record for record in run.records if isinstance(record, FusionPlan)]
        self.stages += (Stage(run.instance, run.number, plan, self._found) for plan in plans)
        if plans:
            self.bodies = {}
            self.alive = _standing(module)
        if run.changed and not self.nodes:
            self._rewrites.add(run, module)
            self._follow(run, module)

    def end(self, module: Module) -> None:
        """Note the graph of a pipeline that fuses nothing."""
        if not self.nodes:
            self._note(module)
        if not self.alive:
            self.bodies = _bodies(module, {})
            self.alive = _standing(module)
        self._wrapped = {
            (home.name, result.name): entry.name
            for home in fusible_computations(module)
            for entry in home
            if entry.opcode == "fusion"
            for result in outputs_of(entry)
        }

    def final_name(self, computation: str, kernel: str) -> str:
        """What a kernel is called after all passes; empty where it is gone."""
        entry = self.alive.get((computation, kernel))
        if entry is not None and entry.computation is not None:
            return entry.name
        return self._wrapped.get((computation, kernel), "")

    def _follow(self, run: PassRun, module: Module) -> None:
        left = {identity(entry) for entry in module.instructions()}
        names = {(home.name, entry.name) for home in module for entry in home}
        lost = [
            place
            for place, key in self._keys.items()
            if place not in self.gone and key not in left and place not in names
        ]
        for place in lost:
            told = self._rewrites.of_lost(self._keys[place], place)
            last = [rewrite for rewrite in told if rewrite.run == run.number]
            self.gone[place] = Gone(run.instance.name, run.number, last[-1] if last else None)

    def _note(self, module: Module) -> None:
        by_key: dict[object, list[Place]] = {}
        for home in fusible_computations(module):
            for node, entry in _nodes(home, module):
                place = home.name, node.name
                self.nodes[place] = node
                if touched := self._rewrites.of(entry):
                    self.touched[place] = touched
                by_key.setdefault(identity(entry), []).append(place)
        for place, key in self._keys.items():
            found = by_key.get(key)
            if found is None and place in self.nodes:
                found = [place]
            if found is not None:
                self.became[place] = found
                self.gone.pop(place, None)
                for at in found:
                    self.origin.setdefault(at, self.given[place])


def _standing(module: Module) -> dict[Place, Instruction]:
    return {
        (home.name, entry.name): entry for home in fusible_computations(module) for entry in home
    }


def _bodies(module: Module, before: Mapping[Place, Instruction]) -> dict[Place, Body]:
    called = {entry: name for (_, name), entry in before.items()}
    return {
        (home.name, entry.name): Body(
            entry.attributes["kind"],
            tuple(
                inner.name
                for inner in entry.attributes["calls"]
                if inner.opcode not in ("parameter", "tuple")
            ),
            tuple(result.name for result in outputs_of(entry)),
            called.get(entry, ""),
        )
        for home in fusible_computations(module)
        for entry in home
        if entry.opcode == "fusion"
    }


def _nodes(home: Computation, module: Module) -> Iterator[tuple[Node, Instruction]]:
    for number, entry in enumerate(walk.post_order(home)):
        yield node_of(entry, module, number), entry


def node_of(entry: Instruction, module: Module, number: int = 0) -> Node:
    """An instruction as a node; ``number`` is its rank among those of its computation."""
    home = entry.computation
    return Node(
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

"""The graph of a module as views that unfold: a computation folded by the namespaces of ``op_name``.

A view has ``MOST`` boxes at most.  A box is an instruction or a group of them; a group, and an instruction
that calls a computation, opens as another view.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias, TypeGuard, TypeVar

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import seconds
from hloopt.report.picture import Graph, GraphBox, box_of, is_written
from hloopt.rewrite.naming import op_name_of

__all__ = ["MOST", "GraphView", "Unfolding", "namespace", "opened", "spent_by"]

MOST: Final = 60
"""Boxes of a view, without those outside of it that it reads from."""
_RUN: Final = MOST // 2
"""Instructions, or groups, of one group that a view shows side by side: more of them are folded by runs."""
_BARE: Final = 8
"""So few boxes that the largest group is unfolded as well, though in runs."""
_MOST_OUTSIDE: Final = 24
_PARAMETERS: Final = ("parameters",)
_FEW: Final = 8
"""Parameters that stand beside what reads them; more of them are one box."""
_SHARE: Final = 0.005
"""Shares of the time below this are not written into boxes."""


@dataclass(eq=False)
class GraphView:
    """One view: a computation, or a group of its instructions.

    key      its computation and path, as links name it
    title    the last part of that
    above    the key of the view that it opens from; empty for the entry
    opens    the keys of the views that boxes open as, by the boxes' keys
    members  the instructions that have a box
    """

    key: str
    title: str
    above: str
    graph: Graph
    opens: dict[str, str]
    members: tuple[Instruction, ...]


@dataclass(eq=False)
class _Group:
    """Instructions below one namespace: ``path`` from the computation on, in the order of the text.

    One that ``stays_folded`` is a run of many, or the parameters: of no interest beside what computes.
    """

    path: tuple[str, ...]
    groups: dict[str, _Group] = field(default_factory=dict)
    own: list[Instruction] = field(default_factory=list)
    size: int = 0
    stays_folded: bool = False

    def members(self) -> Iterator[Instruction]:
        """All of them, those of groups first."""
        pending = [self]
        while pending:
            group = pending.pop()
            yield from group.own
            pending += group.groups.values()


_Item: TypeAlias = _Group | Instruction
_Kept = TypeVar("_Kept")


def namespace(instruction: Instruction) -> tuple[str, ...]:
    """The parts of its ``op_name`` but the last one, which is the op's."""
    *parts, _ = op_name_of(instruction).split("/")
    return tuple(part for part in parts if part)


def spent_by(module: Module, rows: Iterable[KernelCost]) -> dict[Instruction, float]:
    """Seconds of each instruction in one run of the entry, with those of the computations it calls.

    What several call is divided equally among these.
    """
    found = {row.instruction: row.seconds for row in rows}
    for computation in reversed(walk.callers_first(module)):
        whole = sum(found.get(one, 0.0) for one in computation)
        callers = [one for one in computation.callers if one.opcode != "fusion"]
        for caller in callers:
            found[caller] = found.get(caller, 0.0) + whole / len(callers)
    return found


class Unfolding:
    """The views of a module; ``spent`` are seconds of instructions, written into the boxes where given."""

    def __init__(self, module: Module, spent: Mapping[Instruction, float] | None = None) -> None:
        self.module = module
        self.spent = spent or {}
        self.whole = sum(self.spent.get(one, 0.0) for one in module.entry)

    def views(self, computation: Computation, above: str = "") -> Iterator[GraphView]:
        """A computation's view and those of its groups, callers of groups first; no called computation's."""
        root = _grouped(computation)
        pending = [(root, above)]
        while pending:
            group, opened_from = pending.pop()
            view, inner = self._view(computation, group, opened_from)
            yield view
            pending += [(one, view.key) for one in inner]

    def every(self) -> Iterator[GraphView]:
        """The views of all computations that run, and of the fusions' bodies, the entry's first."""
        above = {self.module.entry: ""}
        pending = [self.module.entry]
        for computation in pending:
            for view in self.views(computation, above[computation]):
                for one in view.members:
                    for callee in opened(one):
                        if callee not in above:
                            above[callee] = view.key
                            pending.append(callee)
                yield view

    def find(self, name: str) -> GraphView | None:
        """The view of a name: a view's key or title, what an instruction opens as, else what shows it."""
        shows: GraphView | None = None
        views: dict[str, GraphView] = {}
        for view in self.every():
            if name in (view.key, view.title):
                return view
            views[view.key] = view
            if shows is None and any(one.name == name for one in view.members):
                shows = view
        return None if shows is None else views.get(shows.opens.get(name, ""), shows)

    def _view(
        self, computation: Computation, group: _Group, above: str
    ) -> tuple[GraphView, list[_Group]]:
        items = _shown(group)
        numbers: dict[Instruction, int] = {}
        boxes, opens, inner = list[GraphBox](), dict[str, str](), list[_Group]()
        for number, item in enumerate(items):
            if isinstance(item, _Group):
                numbers |= dict.fromkeys(item.members(), number)
                key = _key(computation, item.path)
                opens[key] = key
                boxes.append(self._group_box(key, item, group))
                inner.append(item)
            else:
                numbers[item] = number
                boxes.append(box_of(item, *self._time(self.spent.get(item, 0.0))))
                opens |= [(item.name, _key(callee, ())) for callee in opened(item)[:1]]
        edges = dict.fromkeys(_edges(numbers))
        self._add_outside(computation, group, numbers, boxes, edges)
        key = _key(computation, group.path)
        title = group.path[-1] if group.path else computation.name
        members = tuple(one for one in items if isinstance(one, Instruction))
        graph = Graph(tuple(boxes), tuple(edges))
        return GraphView(key, title, above, graph, opens, members), inner

    def _group_box(self, key: str, item: _Group, within: _Group) -> GraphBox:
        path = "/".join(item.path[len(within.path) :])
        spent = sum(self.spent.get(one, 0.0) for one in item.members())
        lines = (
            path if len(path) <= 40 else f"…{path[-39:]}",
            f"{item.size} instruction{'s' if item.size > 1 else ''}",
        )
        return GraphBox((*lines, *self._time(spent)), "group", "/".join(item.path), key)

    def _time(self, spent: float) -> tuple[str, ...]:
        if not self.whole or spent / self.whole < _SHARE:
            return ()
        return (f"{seconds(spent)}, {spent / self.whole:.1%}",)

    def _add_outside(
        self,
        computation: Computation,
        group: _Group,
        numbers: Mapping[Instruction, int],
        boxes: list[GraphBox],
        edges: dict[tuple[int, int], None],
    ) -> None:
        """A dashed box for each value that is read from outside of the group; one box where they are many."""
        readers: dict[Instruction, dict[int, None]] = defaultdict(dict)
        for one, number in numbers.items() if group.path else ():
            for operand in one.operands:
                if operand not in numbers and not is_written(operand):
                    readers[operand][number] = None
        if len(readers) > _MOST_OUTSIDE:
            boxes.append(GraphBox((f"{len(readers)} values", "of elsewhere"), "outside"))
            users = dict.fromkeys(number for found in readers.values() for number in found)
            edges |= dict.fromkeys((len(boxes) - 1, number) for number in users)
            return
        for operand, users in readers.items():
            box = box_of(operand)
            boxes.append(GraphBox(box.lines, "outside", box.title, operand.name))
            edges |= dict.fromkeys((len(boxes) - 1, number) for number in users)


def opened(instruction: Instruction) -> list[Computation]:
    """The computations that open as views: bodies of loops, branches, calls and fusions."""
    if instruction.opcode == "while":
        return [instruction.body, instruction.condition]
    applied = walk.calls_by_attribute(instruction).get("to_apply", ())
    is_call = instruction.opcode == "call"
    return [one for one in walk.called_computations(instruction) if is_call or one not in applied]


def _key(computation: Computation, path: Sequence[str]) -> str:
    return "/".join((computation.name, *path))


def _edges(numbers: Mapping[Instruction, int]) -> Iterator[tuple[int, int]]:
    for one, number in numbers.items():
        for operand in (*one.operands, *one.control_predecessors):
            start = numbers.get(operand, number)
            if start != number:
                yield start, number


def _grouped(computation: Computation) -> _Group:
    """The instructions of a computation by namespace."""
    root = _Group(())
    shown = [one for one in computation if not is_written(one)]
    paths = _paths(shown) if len(shown) > MOST else dict.fromkeys(shown, ())
    for one in shown:
        group = root
        group.size += 1
        for part in paths[one]:
            group = group.groups.setdefault(part, _Group((*group.path, part)))
            group.size += 1
        group.own.append(one)
    parameters = root.groups.get(_PARAMETERS[0])
    if parameters is not None:
        parameters.stays_folded = parameters.size > _FEW
    return root


def _paths(shown: Sequence[Instruction]) -> dict[Instruction, tuple[str, ...]]:
    """The namespace of each instruction; one without a name has that of a reader, else of an operand."""
    found: dict[Instruction, tuple[str, ...]] = {}
    for one in reversed(shown):
        if one.opcode == "parameter":
            found[one] = _PARAMETERS
        elif op_name_of(one):
            found[one] = namespace(one)
        else:
            found[one] = next((found[user] for user in one.users if found.get(user)), ())
    for one in shown:
        if not found[one] and not one.is_root and not op_name_of(one):
            known = (found.get(operand, ()) for operand in one.operands)
            found[one] = next((path for path in known if path not in ((), _PARAMETERS)), ())
    return found


def _shown(group: _Group) -> list[_Item]:
    """What a view of a group shows: its own, with small groups unfolded while there is room."""
    while len(group.groups) == 1 and not group.own:
        group = next(iter(group.groups.values()))
    if len(group.own) + len(group.groups) <= MOST:
        items: list[_Item] = [*group.own, *group.groups.values()]
    else:
        items = _parts(group)
    while True:
        room = MOST - len(items) + 1
        fitting = [
            one
            for one in items
            if isinstance(one, _Group) and not one.stays_folded and _unfolds(one, room)
        ]
        bare = items if len(items) < _BARE else []
        whole = [one for one in bare if _has_groups(one) and len(_parts(one)) <= room]
        if fitting:
            next_one = min(fitting, key=lambda one: one.size)
        elif whole:
            # Nearly all is in one group, such as the program's own: a view of that alone says nothing.
            next_one = max(whole, key=lambda one: one.size)
        else:
            return items
        at = items.index(next_one)
        items[at : at + 1] = _parts(next_one)


def _has_groups(item: _Item) -> TypeGuard[_Group]:
    return isinstance(item, _Group) and not item.stays_folded and bool(item.groups)


def _unfolds(group: _Group, room: int) -> bool:
    """Whether the parts of a group fit beside others, not in runs."""
    counts = len(group.own), len(group.groups)
    return sum(counts) <= room and max(counts) <= _RUN


def _parts(group: _Group) -> list[_Item]:
    """The instructions and groups of a group; in runs, as groups, where they are too many."""
    own = [_Group((), {}, [*run], len(run), stays_folded=True) for run in _runs(group.own)]
    folded = [
        _Group((), {one.path[-1]: one for one in run}, [], sum(one.size for one in run))
        for run in _runs([*group.groups.values()])
    ]
    for made in own:
        made.path = (*group.path, f"{made.own[0].name} to {made.own[-1].name}")
    for made in folded:
        first, *_, last = made.groups
        made.path = (*group.path, f"{first} to {last}")
    return [*(own or group.own), *(folded or group.groups.values())]


def _runs(items: Sequence[_Kept]) -> list[Sequence[_Kept]]:
    """Runs of items that are too many for one view, as few as fit into one; none where they are not."""
    if len(items) <= _RUN:
        return []
    length = max(-(-len(items) // _RUN), _RUN)
    return [items[start : start + length] for start in range(0, len(items), length)]

"""The kernels that a group of scores becomes: what each computes, reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hloopt.analysis.attention.axes import AxisNumber
from hloopt.analysis.contraction import of_dot
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.kernels.attention_growth import AttentionGroup
from hloopt.kernels.cluster_bodies import operands_of
from hloopt.ops.traits import CHEAP, ELEMENTWISE, PERMUTING
from hloopt.types import ArrayShape, elements_of

__all__ = ["AttentionCluster", "attention_clusters", "may_be_kernels"]

_VIEWS: Final = PERMUTING - {"reverse"}
_SOURCES: Final = frozenset({"constant", "iota"})
_CHEAP: Final = (CHEAP & ELEMENTWISE) | {"divide"}
"""What is computed again for every block that reads it."""
_MOST_LOOKED_AT: Final = 20000
_MOST_COLUMNS: Final = 256
"""Of the values of one kernel, for whose sums a thread has registers."""


@dataclass(frozen=True, eq=False)
class AttentionCluster:
    """What one kernel computes; see ``KernelCluster``.

    members  in topological order, with what only any place can compute and constants
    results  members that others read, and that the kernel writes
    """

    members: tuple[Instruction, ...]
    results: tuple[Instruction, ...]

    @property
    def absorbed(self) -> tuple[Instruction, ...]:
        """Nothing: the members have it."""
        return ()

    @property
    def last(self) -> Instruction:
        """The result that comes last."""
        return self.results[-1]


@dataclass(eq=False)
class _Part:
    """Contexts of one kernel, and the reductions that it makes for them."""

    contexts: list[Instruction]
    heroes: list[Instruction]


def attention_clusters(
    group: AttentionGroup, computation: Computation
) -> list[AttentionCluster] | str:
    """A cluster a kernel, in the order in which they run; or why the group has none."""
    columns = set(group.contexts.values())
    if any(axes not in columns for axes in group.heroes.values()):
        return "a reduction is over other axes than products contract"
    full = elements_of(group.scores[0].shape)
    scores = _scores_of(group)
    for one in group.outputs:
        if elements_of(one.shape) == full and scores[one]:
            return f"{one.name} is read: it must be written, and with it an element a score"
    places = {one: at for at, one in enumerate(computation)}
    parts = _parts(group, places)
    if isinstance(parts, str):
        return parts
    outside = _needed_outside(group, parts)
    found = []
    for part in parts:
        ends = [_epilogue(context, group) for context in part.contexts]
        behind = {one for end in ends for one in end}
        results = [end[-1] for end in ends]
        results += [hero for hero in part.heroes if hero in outside]
        members = _closure(group, part, results, behind)
        order = sorted(members, key=places.__getitem__)
        found.append(AttentionCluster(tuple(order), tuple(sorted(results, key=places.__getitem__))))
    return found


def may_be_kernels(clusters: Sequence[AttentionCluster], computation: Computation) -> bool:
    """Whether none reads what is computed from its own results, or from those of a later one."""
    places = {one: at for at, one in enumerate(computation)}
    later: set[Instruction] = set()
    for cluster in reversed(clusters):
        later.update(cluster.results)
        floor = min(places[one] for one in later)
        if _leads(later, operands_of(cluster), places, floor):
            return False
    return True


def _leads(
    starts: set[Instruction],
    ends: Iterable[Instruction],
    places: dict[Instruction, int],
    floor: int,
) -> bool:
    """Whether any of ``ends`` is computed from ``starts``, or one of them; also where it takes long to know."""
    pending = list(ends)
    seen = set(pending)
    while pending:
        one = pending.pop()
        if one in starts or len(seen) > _MOST_LOOKED_AT:
            return True
        for part in (*one.operands, *one.control_predecessors):
            if part not in seen and places[part] >= floor:
                seen.add(part)
                pending.append(part)
    return False


def _parts(group: AttentionGroup, places: dict[Instruction, int]) -> list[_Part] | str:
    """Contexts by what they contract and wait for; each reduction goes to the first that needs it."""
    scores = _scores_of(group)
    owning = set(group.heroes.values())
    keyed: dict[tuple[object, ...], _Part] = {}
    for context, axes in group.contexts.items():
        waits: tuple[object, ...] = ()
        if axes in owning:
            waits = (group.needs[context], scores[context])
        part = keyed.setdefault((axes, *waits), _Part([], []))
        if part.contexts and _columns(group, (*part.contexts, context)) > _MOST_COLUMNS:
            part = keyed[(axes, *waits, context)] = _Part([], [])
        part.contexts.append(context)
    parts = sorted(
        keyed.values(),
        key=lambda part: (
            group.contexts[part.contexts[0]] not in owning,
            max(len(scores[one]) for one in part.contexts),
            max(len(group.needs[one]) for one in part.contexts),
            min(places[one] for one in part.contexts),
        ),
    )
    known: set[Instruction] = set()
    for part in parts:
        axes = group.contexts[part.contexts[0]]
        needed = set().union(*(group.needs[one] for one in part.contexts)) - known
        for hero in group.heroes:
            if hero in needed and group.heroes[hero] == axes:
                part.heroes.append(hero)
        known.update(part.heroes)
        if not needed <= known:
            return f"{part.contexts[0].name} waits for a reduction over what it does not contract"
    for hero, axes in group.heroes.items():
        if hero in known:
            continue
        able = next((one for one in parts if _may_make(group, scores, one, hero, axes)), None)
        if able is None:
            return f"{hero.name} goes with no product"
        able.heroes.append(hero)
        known.add(hero)
    return parts


def _columns(group: AttentionGroup, contexts: Iterable[Instruction]) -> int:
    """Columns of the values of some contexts: a thread of their kernel holds half as many sums."""
    rows = elements_of(group.scores[0].shape)
    total = 0
    for context in contexts:
        scores = next(part for part in context.operands if elements_of(part.shape) == rows)
        contracted = of_dot(context).size("k")
        total += elements_of(context.shape) * contracted // elements_of(scores.shape)
    return total


def _may_make(
    group: AttentionGroup,
    scores: dict[Instruction, frozenset[Instruction]],
    part: _Part,
    hero: Instruction,
    axes: frozenset[AxisNumber],
) -> bool:
    """Whether a kernel has all that a reduction needs which no context waits for."""
    first = part.contexts[0]
    has = {*part.heroes, *group.needs[first]}
    return (
        group.contexts[first] == axes
        and group.needs[hero] <= has
        and scores[hero] <= frozenset().union(*(scores[one] for one in part.contexts))
    )


def _scores_of(group: AttentionGroup) -> dict[Instruction, frozenset[Instruction]]:
    """The products of scores that each member and context is computed from, but for those behind heroes."""
    found: dict[Instruction, frozenset[Instruction]] = {}
    for one in (*group.members, *group.contexts):
        above = (found[part] for part in one.operands if part in found and part not in group.heroes)
        found[one] = frozenset().union(*above) | ({one} if one in group.scores else frozenset())
    return found


def _needed_outside(group: AttentionGroup, parts: Sequence[_Part]) -> set[Instruction]:
    """Heroes that another kernel reads, or something outside of the kernels."""
    needed: set[Instruction] = set()
    for part in parts:
        for one in (*part.contexts, *part.heroes):
            needed |= group.needs[one] - set(part.heroes)
        for context in part.contexts:
            behind = set(_epilogue(context, group))
            for one in behind:
                needed |= _heroes_behind(group, one.operands) - set(part.heroes)
    needed |= _heroes_behind(group, group.outputs)
    return needed


def _heroes_behind(group: AttentionGroup, ends: Iterable[Instruction]) -> set[Instruction]:
    """The nearest heroes that members with a value a row are computed from."""
    inside = set(group.members)
    pending = [one for one in ends if one in inside]
    seen = set(pending)
    found = set()
    while pending:
        one = pending.pop()
        if one in group.heroes:
            found.add(one)
            continue
        for part in one.operands:
            if part in inside and part not in seen:
                seen.add(part)
                pending.append(part)
    return found


def _epilogue(context: Instruction, group: AttentionGroup) -> list[Instruction]:
    """A context and what is computed from it alone, element by element, one behind the other."""
    members = set(group.members)
    found = [context]
    while len(found[-1].users) == 1 and not found[-1].is_root:
        last = found[-1]
        (user,) = last.users
        if user.has_control_edges or not isinstance(user.shape, ArrayShape):
            break
        if user.shape.elements != last.array.elements:
            break
        if user.opcode in _VIEWS or user.opcode == "convert":
            found.append(user)
            continue
        others = [part for part in user.operands if part is not last]
        if not user.op.is_elementwise or not all(_is_of_row(part, members) for part in others):
            break
        found.append(user)
    return found


def _is_of_row(one: Instruction, members: set[Instruction]) -> bool:
    """Whether it spreads a value a row of the group, or a constant."""
    while one not in members and (one.opcode in _VIEWS or one.opcode == "broadcast"):
        one = one.operands[0]
    return one in members or one.opcode == "constant"


def _closure(
    group: AttentionGroup, part: _Part, roots: Iterable[Instruction], behind: set[Instruction]
) -> set[Instruction]:
    """All that a kernel computes: members, epilogues, and what is cheap for any place of what they read."""
    inside = set(group.members)
    pending = list(roots)
    found = set(pending)
    own = set(part.heroes)
    while pending:
        one = pending.pop()
        for operand in one.operands:
            if operand in found or (operand in group.heroes and operand not in own):
                continue
            if operand in inside or operand in behind or _is_absorbed(operand, one, group):
                found.add(operand)
                pending.append(operand)
    return found


def _is_absorbed(one: Instruction, user: Instruction, group: AttentionGroup) -> bool:
    """Whether a kernel computes an operand of a member itself."""
    if not isinstance(one.shape, ArrayShape) or one.has_control_edges:
        return False
    if one.opcode in _SOURCES:
        return one.opcode == "iota" or one.array.elements == 1
    if one.opcode == "broadcast" or one.opcode in _VIEWS:
        return True
    if not one.op.is_elementwise:
        return False
    if elements_of(one.shape) == elements_of(group.scores[0].shape):
        return True
    if all(_is_plain(part) for part in one.operands):
        return True
    if one.opcode not in _CHEAP:
        return False
    return sum(not _is_plain(part) for part in one.operands) == 1


def _is_plain(one: Instruction) -> bool:
    """Whether an element follows from its place."""
    pending = [one]
    count = 0
    while pending:
        at = pending.pop()
        count += 1
        if count > 64:
            return False
        if at.opcode == "iota" or (at.opcode == "constant" and at.array.elements == 1):
            continue
        if at.opcode != "broadcast" and at.opcode not in _VIEWS and not at.op.is_elementwise:
            return False
        if not at.operands:
            return False
        pending += at.operands
    return True

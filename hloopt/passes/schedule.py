"""An order of every computation that needs little memory at once.

Finding the best order is NP-hard.  Of several orders, each found in time n log n, the one with the lowest
peak is taken (``analysis/memory.py`` says what a buffer is and when it is freed):

1. the order the module came with;
2. depth first from the result, the operand first whose part of the graph needs most in excess of what it leaves
   (Sethi and Ullman's rule, exact for trees);
3. list scheduling: of all instructions that are ready the one that frees most bytes net of those it
   allocates; between equals, the one that came first;
4. list scheduling from the end backwards, by the same measure.

Before memory come bytes that would have to be copied: who updates a buffer in place, or goes on with it, comes
after all others that read it, wherever these do not need its result (``analysis/overwriting.py``).

Example: ``a`` and ``b`` of 4 KiB each are made first and then summed up to ``s`` and ``t``, one number each.
Peak 8 KiB; in the order a, s, b, t it is 4 KiB.

Left out: no order is sought that recomputes values (``rematerialize`` comes after), and time counts in copies
alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import ClassVar

from hloopt.analysis.aliasing import Aliasing, analyze_aliasing
from hloopt.analysis.effects import Effects
from hloopt.analysis.liveness import Known, called_bytes, peak
from hloopt.analysis.memory import MemoryModel, memory_model
from hloopt.analysis.overwriting import Overwrite, copied_bytes, overwrites, readers_first
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import callees_first, execution_order, top_level_computations
from hloopt.rewrite import Pass, PassLog
from hloopt.types import Dims

__all__ = ["Schedule", "ScheduleRecord"]


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """The peak of the entry, in bytes, in the order given and in the order chosen."""

    before: int
    after: int


@dataclass(frozen=True)
class Schedule(Pass):
    """Put every computation into an order with a low peak of memory, and call the module scheduled.

    What updates a buffer in place comes after what reads it, so that nothing is copied for that; otherwise the
    peak is never above that of the order given, and for that by no more than the copies take.  Side effects,
    collectives and transfers keep their order among each other, control edges hold.  Bodies of fusions and
    regions of reduce, sort and the like are not run one by one and stay.  The log has a ``ScheduleRecord``.

    memory  seek an order with a lower peak; without it the order given becomes the schedule
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule sums

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY main {
  p = f32[] parameter(0)
  zero = f32[] constant(0)
  a = f32[1024]{0} broadcast(p), dimensions={}
  q = f32[] negate(p)
  b = f32[1024]{0} broadcast(q), dimensions={}
  s = f32[] reduce(a, zero), dimensions={0}, to_apply=add
  t = f32[] reduce(b, zero), dimensions={0}, to_apply=add
  ROOT r = f32[] add(s, t)
}
"""

    memory: bool = True

    def run(self, module: Module, log: PassLog) -> bool:
        """Callees first, since a caller's need includes theirs."""
        before = peak(module.entry).byte_size
        changed = _call_scheduled(module, log)
        if self.memory:
            known: Known = {}
            effects = Effects(module)
            aliasing = analyze_aliasing(module)
            run = set(top_level_computations(module))
            for computation in callees_first(module):
                if computation in run:
                    changed |= _schedule(computation, effects, aliasing, known, log)
        after = peak(module.entry).byte_size
        log.records.append(ScheduleRecord(before, after))
        if after < before:
            log.note(f"peak memory of the entry: {before} bytes before, {after} after")
        return changed


def _call_scheduled(module: Module, log: PassLog) -> bool:
    """First of all, for without it the order of instructions says nothing."""
    if module.attributes.get("is_scheduled") or not log.allows():
        return False
    module.attributes["is_scheduled"] = True
    log.hit("call the module scheduled", module.entry.root)
    return True


def _schedule(
    computation: Computation,
    effects: Effects,
    aliasing: Aliasing,
    known: Known,
    log: PassLog,
) -> bool:
    """Improve the order until none of the ways finds a better one: equals are broken by the order given."""
    changed = False
    found = [one for one in overwrites(computation, aliasing) if one.readers]
    while (order := _better_order(computation, effects, found, known)) is not None and log.allows():
        for instruction in order:
            _move_to_end(computation, instruction)
        changed = True
        log.hit("reorder a computation", computation.root)
    return changed


def _better_order(
    computation: Computation,
    effects: Effects,
    found: Sequence[Overwrite],
    known: Known,
) -> list[Instruction] | None:
    model = memory_model(computation)
    called = [called_bytes(instruction, known) for instruction in model.instructions]
    graph = _graph(model, effects)
    best = _given(computation, model)

    def cost(order: list[int]) -> tuple[int, int]:
        copied = copied_bytes(found, [model.instructions[at] for at in order]) if found else 0
        return copied, model.peak_of(order, called)

    least = cost(best)
    most = sum(least)
    if least[0]:
        order = readers_first(found, model.instructions, graph.before, graph.after)
        if cost(order) < least and sum(cost(order)) <= most:
            return [model.instructions[number] for number in order]
    graph = _with_readers_first(graph, found, model.instructions, best)
    for order in (
        _depth_first(model, graph),
        _list_order(model, graph, called),
        _backward_order(model, graph, called),
    ):
        needed = cost(order)
        if needed < least and sum(needed) <= most:
            best, least = order, needed
    if best == list(range(len(best))):
        return None
    return [model.instructions[number] for number in best]


def _with_readers_first(
    graph: _Graph,
    found: Sequence[Overwrite],
    instructions: Sequence[Instruction],
    order: Sequence[int],
) -> _Graph:
    """The graph with edges for what an order does without a copy, so that no other order needs one."""
    number = {instruction: at for at, instruction in enumerate(instructions)}
    position = {at: place for place, at in enumerate(order)}
    before = [dict.fromkeys(entry) for entry in graph.before]
    for one in found:
        writer = number[one.writer]
        readers = [number[reader] for reader in one.readers]
        if all(position[reader] < position[writer] for reader in readers):
            before[writer] |= dict.fromkeys(readers)
    return _linked(before)


def _given(computation: Computation, model: MemoryModel) -> list[int]:
    """The order in which the computation is run now."""
    position = {instruction: at for at, instruction in enumerate(model.instructions)}
    return [position[instruction] for instruction in execution_order(computation)]


def _move_to_end(computation: Computation, instruction: Instruction) -> None:
    last = next(reversed(computation))
    if last is not instruction:
        edit.move_before(last, instruction)
        edit.move_before(instruction, last)


@dataclass(frozen=True)
class _Graph:
    """What comes before and after each instruction, by number and each once."""

    before: tuple[Dims, ...]
    after: tuple[Dims, ...]


def _graph(model: MemoryModel, effects: Effects) -> _Graph:
    position = {instruction: at for at, instruction in enumerate(model.instructions)}
    before: list[dict[int, None]] = []
    last_effect: int | None = None
    for at, instruction in enumerate(model.instructions):
        needed = (*instruction.operands, *instruction.control_predecessors)
        entry = dict.fromkeys(position[other] for other in needed)
        if effects.has(instruction):
            if last_effect is not None:
                entry[last_effect] = None
            last_effect = at
        before.append(entry)
    return _linked(before)


def _linked(before: Sequence[Iterable[int]]) -> _Graph:
    after: list[list[int]] = [[] for _ in before]
    for at, entry in enumerate(before):
        for source in entry:
            after[source].append(at)
    return _Graph(tuple(map(tuple, before)), tuple(map(tuple, after)))


def _depth_first(model: MemoryModel, graph: _Graph) -> list[int]:
    """Post-order from instructions without users; the operand that needs most besides its result first."""
    kept = [sum(model.sizes[buffer] for buffer in defined) for defined in model.defined]
    needed: list[int] = []
    ranked: list[list[int]] = []
    for at, before in enumerate(graph.before):
        operands = sorted(before, key=lambda other: (kept[other] - needed[other], other))
        ranked.append(operands)
        most, held = 0, 0
        for other in operands:
            most = max(most, held + needed[other])
            held += kept[other]
        needed.append(max(most, held + kept[at]))
    done = [False] * len(ranked)
    order: list[int] = []
    starts = [at for at, after in enumerate(graph.after) if not after]
    for start in starts:
        stack = [(start, iter(ranked[start]))]
        entered = {start}
        while stack:
            at, operands_left = stack[-1]
            following = next(operands_left, None)
            if following is None:
                stack.pop()
                if not done[at]:
                    done[at] = True
                    order.append(at)
            elif not done[following] and following not in entered:
                entered.add(following)
                stack.append((following, iter(ranked[following])))
    return order


def _users(model: MemoryModel) -> list[list[int]]:
    """The instructions that touch each buffer."""
    users: list[list[int]] = [[] for _ in model.sizes]
    for at, touched in enumerate(model.touched):
        for buffer in touched:
            users[buffer].append(at)
    return users


def _list_order(model: MemoryModel, graph: _Graph, called: Sequence[int]) -> list[int]:
    """Take what is ready and frees most; a priority is set anew when a buffer has one user left.

    What needs much memory only while it runs (a loop) waits behind what lowers the level first.
    """
    left = model.uses()
    sizes = model.sizes
    waiting = [len(before) for before in graph.before]
    users = _users(model)
    done = [False] * len(waiting)

    def entry(at: int) -> tuple[int, int, int]:
        freed = sum(
            sizes[buffer]
            for buffer in model.touched[at]
            if left[buffer] == 1 and buffer not in model.parameters
        )
        made = sum(sizes[buffer] for buffer in model.defined[at] if left[buffer])
        return made - freed, called[at], at

    ready = [entry(at) for at, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        priority = heapq.heappop(ready)
        at = priority[2]
        if done[at]:
            continue
        done[at] = True
        order.append(at)
        for buffer in model.touched[at]:
            left[buffer] -= 1
            if left[buffer] == 1:
                for user in users[buffer]:
                    if not done[user] and waiting[user] == 0:
                        heapq.heappush(ready, entry(user))
        for user in graph.after[at]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, entry(user))
    return order


def _backward_order(model: MemoryModel, graph: _Graph, called: Sequence[int]) -> list[int]:
    """From the end: take what ends the live ranges of most bytes, net of those it begins."""
    sizes = model.sizes
    waiting = [len(after) for after in graph.after]
    alive = [buffer in model.results or buffer in model.parameters for buffer in range(len(sizes))]
    users = _users(model)

    def entry(at: int) -> tuple[int, int, int]:
        ended = sum(sizes[buffer] for buffer in model.defined[at] if alive[buffer])
        begun = sum(sizes[buffer] for buffer in model.touched[at] if not alive[buffer])
        return begun - ended, called[at], -at

    ready = [entry(at) for at, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    done = [False] * len(waiting)
    order: list[int] = []
    while ready:
        at = -heapq.heappop(ready)[2]
        if done[at]:
            continue
        done[at] = True
        order.append(at)
        woken: set[int] = set()
        for buffer in model.touched[at]:
            if not alive[buffer]:
                alive[buffer] = True
                woken.update(users[buffer])
                woken.add(model.owners[buffer][0])
        for source in graph.before[at]:
            waiting[source] -= 1
            woken.add(source)
        for other in woken:
            if not done[other] and waiting[other] == 0:
                heapq.heappush(ready, entry(other))
    order.reverse()
    return order

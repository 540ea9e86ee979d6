"""Answers about pairs from a lock file, and the recording of a new one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from typing import NamedTuple

from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.hero import results_of
from hloopt.cost_models.attention import ATTENTION
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.fusible import may_be_fused
from hloopt.fusion.history import (
    FusionHistory,
    FusionPlan,
    Histories,
    Membership,
    describe,
    describe_loop,
)
from hloopt.fusion.lock_file import Decisions, LockedGroup, LoopRow, PairRow, Unfused
from hloopt.fusion.strategies import begins_fusion, fusible_computations
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.rewrite import Pass, PassRun, Watcher
from hloopt.rewrite.naming import name_number

__all__ = ["LockAdviser", "LockWatcher", "digest", "interface_of", "loop_problem"]

_DIGITS = 16
_CALLS = "fused_computation"


class LockAdviser:
    """One lock file: its pairs first (``nofuse`` before ``fuse``), then its fusions.

    Its fusions answer for pairs whose instructions are all in the file: together where one fusion has them all,
    apart otherwise.
    """

    def __init__(self, decisions: Decisions, histories: Histories) -> None:
        self.decisions = decisions
        self._histories = histories
        self._pairs = _Pairs.of(decisions.pairs)
        self._homes: dict[tuple[str, str], dict[str, set[int]]] = {}
        for number, group in enumerate(decisions.groups):
            home = self._homes.setdefault(group.place, {})
            for name in group.instructions:
                home.setdefault(name, set()).add(number)
        for row in decisions.unfused:
            home = self._homes.setdefault(row.place, {})
            for name in row.instructions:
                home.setdefault(name, set())

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """What the file says about a pair."""
        home = consumer.computation
        if home is None or home.module is None:
            return None
        history = self._histories.of(home.module)
        for row in self._pairs.about(producer, consumer, history):
            if _is_in(row, home) and _means(row, producer, consumer, history):
                words = f"{row.reason} ({row.title})" if row.reason else row.title
                return Decision(row.wanted, "advised", words=words)
        if producer is consumer:
            return self._by_loop(producer)
        return self._by_fusion(home, history.members(producer), history.members(consumer))

    def prologue(self, loop: Instruction) -> tuple[str, ...] | None:
        """The ops by name that joined a loop's kernel."""
        row = self._row_of(loop)
        return row.prologue if row is not None and row.kernel else None

    def _by_loop(self, loop: Instruction) -> Decision | None:
        row = self._row_of(loop)
        if row is None:
            return None
        if not row.kernel:
            return forbid("advised", words=f"no kernel of {self.decisions.name} is the loop")
        return Decision(True, "advised", words=f"{row.kernel} of {self.decisions.name}")

    def _row_of(self, loop: Instruction) -> LoopRow | None:
        home = loop.computation
        module = home.module if home is not None else None
        if home is None or module is None:
            return None
        place = module.name, home.name
        for row in self.decisions.loops:
            if (*row.place, row.name) == (*place, loop.name) and not loop_problem(row, loop):
                return row
        return None

    def _by_fusion(
        self, home: Computation, producers: Collection[str], consumers: Collection[str]
    ) -> Decision | None:
        assert home.module is not None, "seen by the caller"
        known = self._homes.get((home.module.name, home.name))
        if known is None:
            return None
        common: set[int] | None = None
        for name in (*producers, *consumers):
            if name not in known:
                return None
            common = known[name] if common is None else common & known[name]
        # Two that are both copied into a fusion are apart by themselves: one of its results has to be there.
        groups = [self.decisions.groups[number] for number in sorted(common or ())]
        groups = [group for group in groups if not set(group.outputs).isdisjoint(consumers)]
        if groups:
            group = groups[0]
            return Decision(True, "advised", words=f"{group.name} of {self.decisions.name}")
        return forbid("advised", words=f"no fusion of {self.decisions.name} has both")


def loop_problem(row: LoopRow, loop: Instruction) -> str:
    """Why a row is not about a loop of its name; empty where it is."""
    if row.signature and row.signature != digest(describe_loop(loop)):
        return "the loop has changed"
    return ""


@dataclass(frozen=True)
class _Pairs:
    """Rows about pairs: those that name a producer by its name, and all others, each with its place."""

    named: dict[str, list[tuple[int, PairRow]]]
    others: list[tuple[int, PairRow]]

    @classmethod
    def of(cls, rows: Sequence[PairRow]) -> _Pairs:
        made = cls({}, [])
        for entry in enumerate(rows):
            producer = entry[1].producer
            if producer.names_one:
                made.named.setdefault(producer.text.removeprefix("%"), []).append(entry)
            else:
                made.others.append(entry)
        return made

    def about(
        self, producer: Instruction, consumer: Instruction, history: FusionHistory
    ) -> list[PairRow]:
        """The rows that can be about a pair, in their order: those that name either side or a result of it."""
        if not self.named and not self.others:
            return []
        found = dict(self.others)
        for side in (producer, consumer) if self.named else ():
            names = {side.name, *(history.original(one, side) for one in results_of(side))}
            for name in names & self.named.keys():
                found.update(self.named[name])
        return [found[number] for number in sorted(found)]


def _is_in(row: PairRow, home: Computation) -> bool:
    module = home.module.name if home.module is not None else ""
    return row.module in ("", module) and row.computation in ("", home.name)


def _means(
    row: PairRow, producer: Instruction, consumer: Instruction, history: FusionHistory
) -> bool:
    """Whether a row is about a producer and a consumer.

    It is where a result of the one is meant by its producer and a user of that by its consumer, be they within
    fusions; of two that share operands, where a result of each is meant, in either order.
    """
    users = list(_users_inside(producer, consumer))
    if users:
        return _any(row, "producer", _sources(producer, consumer), history) and _any(
            row, "consumer", ((user, consumer) for user in users), history
        )
    first = [(result, producer) for result in results_of(producer)]
    second = [(result, consumer) for result in results_of(consumer)]
    return any(
        _any(row, "producer", one, history) and _any(row, "consumer", other, history)
        for one, other in ((first, second), (second, first))
    )


def _sources(
    producer: Instruction, consumer: Instruction
) -> Iterator[tuple[Instruction, Instruction]]:
    """The results of a producer that a consumer reads, each with the producer."""
    results = results_of(producer)
    elements = {
        operand.tuple_index
        for operand in consumer.operands
        if operand.opcode == "get-tuple-element" and operand.operands[0] is producer
    }
    for number, result in enumerate(results):
        if not elements or number in elements:
            yield result, producer


def _any(
    row: PairRow,
    side: str,
    pairs: Iterable[tuple[Instruction, Instruction]],
    history: FusionHistory,
) -> bool:
    """Whether one side of a row means an op, or one of a fusion's body by the name it had, or the fusion."""
    pattern = row.producer if side == "producer" else row.consumer
    return any(
        pattern.matches(inner, history.original(inner, whole))
        or (inner is not whole and pattern.names_one and pattern.matches(whole))
        for inner, whole in pairs
    )


def digest(lines: Iterable[str]) -> str:
    """A signature: of the same lines the same one, on every machine."""
    found = blake2b(digest_size=_DIGITS // 2)
    for line in lines:
        found.update(f"{line}\n".encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _users_inside(producer: Instruction, consumer: Instruction) -> Iterator[Instruction]:
    """What uses the producer's results: the consumer itself, or instructions of its body."""
    taken = {producer, *(user for user in producer.users if user.opcode == "get-tuple-element")}
    if consumer.opcode != "fusion":
        if not taken.isdisjoint(consumer.operands):
            yield consumer
        return
    body = consumer.calls
    seen: dict[Instruction, None] = {}
    for operand, parameter in zip(consumer.operands, body.parameters, strict=True):
        if operand in taken:
            seen |= dict.fromkeys(parameter.users)
    yield from seen


class FusionInterface(NamedTuple):
    """Operands and results of a fusion in their order, by the names of what computed them at first."""

    operands: tuple[str, ...]
    results: tuple[str, ...]


def interface_of(fusion: Instruction, history: FusionHistory) -> FusionInterface:
    """The operands and results of a fusion."""
    return FusionInterface(
        tuple(map(history.source, fusion.operands)),
        tuple(history.original(result, fusion) for result in results_of(fusion)),
    )


class _Original(NamedTuple):
    """An instruction before it was fused: its rank among those of its computation, and what it does."""

    rank: int
    text: str


def _is_made_again(made: Membership) -> bool:
    """Whether no pairs make a fusion: one of a ``topk``, or attention, which its pass makes again."""
    fusion = made.fusion
    if fusion is None:
        return False
    return custom_name(fusion) == ATTENTION or any(one.opcode == "topk" for one in fusion.calls)


@dataclass
class LockWatcher(Watcher):
    """Notes what is fused while passes run, for a lock file.

    Names come from before the first strategy, fusions are those after the last one.  ``histories`` are those of
    the advice that the passes get; ``groups``, ``loops`` and ``unfused`` are of all modules.
    """

    histories: Histories
    groups: list[LockedGroup] = field(default_factory=list)
    unfused: list[Unfused] = field(default_factory=list)
    loops: list[LoopRow] = field(default_factory=list)
    _before: dict[str, dict[str, _Original]] = field(default_factory=dict)
    _made: list[LockedGroup] = field(default_factory=list)

    def begin(self, module: Module) -> None:
        """Reset for another module."""
        self._before, self._made = {}, []

    def before(self, number: int, instance: Pass, module: Module) -> None:
        """Note the names before the first strategy."""
        if self._before or not begins_fusion(instance):
            return
        for computation in fusible_computations(module):
            rows = self._before[computation.name] = {}
            for rank, entry in enumerate(walk.post_order(computation)):
                if may_be_fused(entry):
                    rows[entry.name] = _Original(rank, describe(entry))

    def after(self, run: PassRun, module: Module) -> None:
        """Note the fusions as a strategy left them: in the order of their results."""
        if not any(isinstance(record, FusionPlan) for record in run.records):
            return
        history = self.histories.of(module)
        found = []
        for (computation, name), made in history.fusions.items():
            rows = self._before.get(computation, {})
            known = sorted(
                (one for one in made.members if one in rows), key=lambda one: rows[one].rank
            )
            if made.is_fused and len(known) > 1 and not _is_made_again(made):
                group = self._group(computation, name, made, known, history)
                found.append((rows[known[-1]].rank, group))
        order = {computation: number for number, computation in enumerate(self._before)}
        found.sort(key=lambda row: (order[row[1].computation], row[0], row[1].instructions))
        self._made = _numbered([group for _, group in found])

    def _group(
        self,
        computation: str,
        name: str,
        made: Membership,
        known: list[str],
        history: FusionHistory,
    ) -> LockedGroup:
        fusion = made.fusion
        assert fusion is not None, "it stands after the strategy"
        kind, config = fusion.attributes["kind"], fusion.attributes.get("backend_config")
        operands, results = interface_of(fusion, history)
        outputs = [one for one in known if one in made.outputs]
        if sorted(results) == sorted(outputs):
            outputs = list(results)
        rows = self._before[computation]
        return LockedGroup(
            history.module,
            computation,
            name,
            kind,
            fusion.calls.name,
            tuple(known),
            tuple(outputs) or (known[-1],),
            operands if len(set(operands)) == len(operands) else (),
            str(config) if kind == "kCustom" and config is not None else "",
            digest(rows[one].text for one in known),
        )

    def end(self, module: Module) -> None:
        """Record their final state."""
        self.groups += self._made
        self.loops += _loops(self.histories.of(module))
        self.unfused += self._unfused(module)

    def _unfused(self, module: Module) -> Iterator[Unfused]:
        """What could have been fused and is unfused after all strategies, by computation.

        Nothing is unfused within a loop that is one kernel.
        """
        made = self.histories.of(module).fusions
        homes = {home.name: home for home in fusible_computations(module)}
        for computation, rows in self._before.items():
            names = homes[computation].by_name if computation in homes else {}
            alone = (name for name in rows if name in names and (computation, name) not in made)
            if found := tuple(alone):
                yield Unfused(module.name, computation, found)


def _numbered(groups: list[LockedGroup]) -> list[LockedGroup]:
    """Computations numbered without gaps, in the order of their numbers: as they are when made from a file."""
    made = sorted(range(len(groups)), key=lambda at: name_number(groups[at].calls))
    names = {at: f"{_CALLS}.{rank}" if rank else _CALLS for rank, at in enumerate(made)}
    return [replace(group, calls=names[at]) for at, group in enumerate(groups)]


def _loops(history: FusionHistory) -> Iterator[LoopRow]:
    """The last verdict on each loop that was examined."""
    found = {(loop.computation, loop.loop): loop for plan in history.plans for loop in plan.loops}
    for loop in found.values():
        signature = digest(loop.text) if loop.kernel else ""
        place = history.module, loop.computation
        yield LoopRow(*place, loop.loop, loop.kernel, loop.prologue, signature)

"""What a lock file answers about pairs, and what is written into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.homes import fusible_computations
from hloopt.fusion.ledger import (
    Form,
    Ledger,
    Ledgers,
    describe_loop,
    outputs_of,
    users_inside,
)
from hloopt.fusion.lock_file import Decisions, Group, LoopRow, PairRow, Unfused
from hloopt.fusion.naming import name_number
from hloopt.ir import Computation, Instruction, Module

__all__ = [
    "LockAdviser",
    "digest",
    "groups_of",
    "loop_problem",
    "loops_of",
    "pair_means",
    "unfused_of",
]

_DIGITS = 16
_CALLS = "fused_computation"


class LockAdviser:
    """One lock file: its pairs first, what must not be before what shall be, then its fusions.

    Its fusions answer for pairs of instructions that it knows all of: together where one fusion has them all,
    apart otherwise.
    """

    def __init__(self, decisions: Decisions, ledgers: Ledgers) -> None:
        self.decisions = decisions
        self._ledgers = ledgers
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
        ledger = self._ledgers.open(home.module)
        for row in self.decisions.pairs:
            if _is_in(row, home) and pair_means(row, producer, consumer, ledger):
                words = f"{row.reason} ({row.title})" if row.reason else row.title
                return Decision(row.wanted, "advised", words=words)
        if producer is consumer:
            return self._by_loop(producer)
        return self._by_fusion(home, ledger.members(producer), ledger.members(consumer))

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
        self, home: Computation, producers: Sequence[str], consumers: Sequence[str]
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
        return "the loop is no longer what it was"
    return ""


def _is_in(row: PairRow, home: Computation) -> bool:
    module = home.module.name if home.module is not None else ""
    return row.module in ("", module) and row.computation in ("", home.name)


def pair_means(row: PairRow, producer: Instruction, consumer: Instruction, ledger: Ledger) -> bool:
    """Whether a row is about a producer and a consumer.

    It is where a result of the one is meant by its producer and a user of that by its consumer, be they within
    fusions; of two that share operands, where a result of each is meant, in either order.
    """
    users = list(users_inside(producer, consumer))
    if users:
        return _any(row, "producer", _sources(producer, consumer), ledger) and _any(
            row, "consumer", ((user, consumer) for user in users), ledger
        )
    first = [(result, producer) for result in outputs_of(producer)]
    second = [(result, consumer) for result in outputs_of(consumer)]
    return any(
        _any(row, "producer", one, ledger) and _any(row, "consumer", other, ledger)
        for one, other in ((first, second), (second, first))
    )


def _sources(
    producer: Instruction, consumer: Instruction
) -> Iterator[tuple[Instruction, Instruction]]:
    """The results of a producer that a consumer reads, each with the producer."""
    results = outputs_of(producer)
    elements = {
        operand.attributes["index"]
        for operand in consumer.operands
        if operand.opcode == "get-tuple-element" and operand.operands[0] is producer
    }
    for number, result in enumerate(results):
        if not elements or number in elements:
            yield result, producer


def _any(
    row: PairRow, side: str, pairs: Iterable[tuple[Instruction, Instruction]], ledger: Ledger
) -> bool:
    """Whether one side of a row means an op, or one of a fusion's body by the name it had, or the fusion."""
    pattern = row.producer if side == "producer" else row.consumer
    return any(
        pattern.matches(inner, ledger.origin(inner, whole))
        or (inner is not whole and pattern.names_one and pattern.matches(whole))
        for inner, whole in pairs
    )


def digest(lines: Iterable[str]) -> str:
    """A signature: of the same lines the same one, on every machine."""
    found = blake2b(digest_size=_DIGITS // 2)
    for line in lines:
        found.update(f"{line}\n".encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def groups_of(ledger: Ledger) -> list[Group]:
    """The fusions of a ledger that has begun, as a lock file holds them: in the order of their results."""
    found: list[tuple[int, Group]] = []
    for (computation, name), members in ledger.made.items():
        rows = ledger.before.get(computation, {})
        known = sorted((one for one in members if one in rows), key=lambda one: rows[one].rank)
        if len(known) < 2:
            continue
        results = [one for one in known if one in ledger.outputs[computation, name]]
        form = ledger.forms.get((computation, name), Form((), ()))
        if sorted(form.results) == sorted(results):
            results = list(form.results)
        unique = len(set(form.operands)) == len(form.operands)
        group = Group(
            ledger.module,
            computation,
            name,
            ledger.kinds[computation, name],
            tuple(known),
            tuple(results) or (known[-1],),
            digest(rows[one].text for one in known),
            ledger.configs.get((computation, name), ""),
            form.operands if unique else (),
            form.calls,
        )
        found.append((rows[known[-1]].rank, group))
    order = {computation: number for number, computation in enumerate(ledger.before)}
    found.sort(key=lambda pair: (order[pair[1].computation], pair[0], pair[1].instructions))
    return _numbered([group for _, group in found])


def _numbered(groups: list[Group]) -> list[Group]:
    """Computations numbered without gaps, in the order of their numbers: as they are when made from a file."""
    made = sorted(range(len(groups)), key=lambda at: name_number(groups[at].calls))
    names = {at: f"{_CALLS}.{rank}" if rank else _CALLS for rank, at in enumerate(made)}
    return [replace(group, calls=names[at]) for at, group in enumerate(groups)]


def loops_of(ledger: Ledger) -> list[LoopRow]:
    """The loops of a ledger that were looked at, as a lock file holds them."""
    return [
        LoopRow(
            ledger.module,
            made.computation,
            made.name,
            made.kernel,
            made.prologue,
            digest(made.text) if made.kernel else "",
        )
        for made in ledger.loops.values()
    ]


def unfused_of(ledger: Ledger, module: Module) -> list[Unfused]:
    """What could have been fused and stands by itself after all strategies, by computation.

    Nothing stands by itself within a loop that is one kernel.
    """
    found = []
    homes = {home.name: home for home in fusible_computations(module)}
    for computation, rows in ledger.before.items():
        home = homes.get(computation)
        alone = [
            name
            for name, _ in sorted(rows.items(), key=lambda pair: pair[1].rank)
            if home is not None and name in home.by_name and (computation, name) not in ledger.made
        ]
        if alone:
            found.append(Unfused(ledger.module, computation, tuple(alone)))
    return found

"""The order of a computation's instructions, decided by the graph alone.

Every instruction gets a rank: first what the root needs, operands depth first, which leaves no choice; then
parameters by number; then the rest, from one instruction to those it is linked to, the next among several
by colour.  A colour is a hash of an instruction and of all that is linked to it, up and down, as in the
refinement of Weisfeiler and Leman.  Costs are linear in instructions and links, but for sorting.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from operator import attrgetter

from hloopt.graphs import post_order
from hloopt.ir.computation import Computation
from hloopt.ir.encode import row, rows
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module
from hloopt.ir.walk import callees_first, calls_by_attribute

__all__ = ["computation_orders"]

_ROUNDS = 2
_Ranks = dict[Instruction, int]
_Colours = dict[Instruction, bytes]


def computation_orders(module: Module) -> Iterator[tuple[Computation, list[Instruction]]]:
    """Computations with their orders, callees first: as the entry names them, then unused ones."""
    keep = bool(module.attributes.get("is_scheduled"))
    orders = _Orders()
    found = {
        computation: orders.of(computation, keep=keep) for computation in callees_first(module)
    }
    unused = [entry for entry in found if not entry.callers and entry is not module.entry]
    if unused:
        unused.sort(key=orders.digest)
    for computation in post_order((module.entry, *unused), lambda one: _callees(found[one])):
        yield computation, found[computation]


def _callees(order: list[Instruction]) -> Iterator[Computation]:
    for instruction in order:
        for _, group in sorted(calls_by_attribute(instruction).items()):
            yield from group


class _Orders:
    """Canonical orders of a module's computations; callees must be ordered before their callers."""

    def __init__(self) -> None:
        self._orders: dict[Computation, list[Instruction]] = {}
        self._digests: dict[Computation, str] = {}

    def of(self, computation: Computation, *, keep: bool = False) -> list[Instruction]:
        """The instructions, parameters first and each after its operands and control predecessors.

        ``keep``: in the order they have.
        """
        if not keep:
            ranks = _needed(computation)
            for parameter in computation.parameters:
                ranks.setdefault(parameter, len(ranks))
            if len(ranks) < len(computation):
                rest = [instruction for instruction in computation if instruction not in ranks]
                self._rank(rest, ranks)
        found = list(computation) if keep else _in_order(computation, ranks)
        self._orders[computation] = found
        return found

    def digest(self, computation: Computation) -> str:
        """A hash of a computation and of those it calls; equal computations have equal ones."""
        if computation not in self._digests:
            for other, order in self._orders.items():  # callees come first: nothing is nested here
                if other not in self._digests:
                    text = "".join(rows(other, order, self._digests)) + str(other.execution_thread)
                    self._digests[other] = _hash(text).hex()
        return self._digests[computation]

    def _rank(self, rest: list[Instruction], ranks: _Ranks) -> None:
        """Rank what neither the root needs nor is a parameter; it is given in the order of the text."""
        called = _Called(self)
        labels = {
            instruction: _hash(row(instruction, lambda other: ranks.get(other, -1), called))
            for instruction in rest
        }
        users: dict[Instruction, list[tuple[Instruction, int]]] = defaultdict(list)
        for instruction in rest:
            for index, operand in enumerate(instruction.operands):
                users[operand].append((instruction, index))
        colours = labels
        for _ in range(_ROUNDS):
            colours = _refined(rest, colours, users)
        _walk(rest, ranks, colours, users)


class _Called(dict[Computation, str]):
    """Digests of computations, computed on demand."""

    def __init__(self, orders: _Orders) -> None:
        super().__init__()
        self.orders = orders

    def __missing__(self, computation: Computation) -> str:
        return self.orders.digest(computation)


def _hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _needed(computation: Computation) -> _Ranks:
    """What the root needs through operands, each after its own."""
    needed = post_order((computation.root,), attrgetter("operands"))
    return {instruction: rank for rank, instruction in enumerate(needed)}


def _refined(
    rest: list[Instruction],
    colours: _Colours,
    users: dict[Instruction, list[tuple[Instruction, int]]],
) -> _Colours:
    """Colours from operands and all before them, then from users and all after them."""
    down: _Colours = {}
    for instruction in rest:
        parts = [colours[instruction]]
        parts += [down[operand] for operand in instruction.operands if operand in colours]
        parts += _sorted(colours, instruction.control_predecessors)
        down[instruction] = blake2b(b"".join(parts), digest_size=16).digest()
    up: _Colours = {}
    for instruction in reversed(rest):
        parts = sorted(up[user] + b"%d" % index for user, index in users.get(instruction, ()))
        parts.append(down[instruction])
        parts += _sorted(down, instruction.control_successors)
        up[instruction] = blake2b(b"".join(parts), digest_size=16).digest()
    return up


def _sorted(colours: _Colours, instructions: Iterable[Instruction]) -> list[bytes]:
    return sorted(colours[other] for other in instructions if other in colours)


def _walk(
    rest: list[Instruction],
    ranks: _Ranks,
    colours: _Colours,
    users: dict[Instruction, list[tuple[Instruction, int]]],
) -> None:
    """Rank one instruction after the other along their links."""

    def key(instruction: Instruction) -> tuple[bytes, list[int]]:
        return colours[instruction], [ranks.get(other, -1) for other in instruction.operands]

    for start in sorted(rest, key=colours.__getitem__):
        if start in ranks:
            continue
        ranks[start] = len(ranks)
        queue = deque([start])
        while queue:
            current = queue.popleft()
            for group in (
                current.operands,
                sorted(_unranked(current.control_predecessors, ranks), key=key),
                sorted(_unranked((user for user, _ in users[current]), ranks), key=key),
                sorted(_unranked(current.control_successors, ranks), key=key),
            ):
                for other in group:
                    if other not in ranks:
                        ranks[other] = len(ranks)
                        queue.append(other)


def _unranked(instructions: Iterable[Instruction], ranks: _Ranks) -> list[Instruction]:
    return [other for other in dict.fromkeys(instructions) if other not in ranks]


def _in_order(computation: Computation, ranks: _Ranks) -> list[Instruction]:
    """By rank, but parameters first and everything after what it needs."""
    order = [entry for entry in computation.parameters if not entry.control_predecessors]

    def before(instruction: Instruction) -> tuple[Instruction, ...]:
        controls = sorted(instruction.control_predecessors, key=ranks.__getitem__)
        return (*instruction.operands, *controls)

    return [*order, *post_order(ranks, before, set(order))]

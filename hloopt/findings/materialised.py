"""Masks, one-hot matrices, outer products and broadcasts in memory, for which little is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.products import is_sure_on_host
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.numbers import byte_size
from hloopt.passes.loops.carried import CarriedState, growth_obstacle, reads
from hloopt.passes.loops.elements import is_passed_through
from hloopt.rewrite.site import is_replaceable, sites

__all__ = ["carried"]

_LEAST: Final = 1 << 20
"""Bytes of a value that is worth a word."""
_LARGER: Final = 8
"""How many times as large a value is as all that it is made of."""
_MOST: Final = 32
"""Ops that make a value which is cheap to make again."""
_PART: Final = 0.01
"""The part of a run that reading a value takes at least, for its loop to be planned again."""
_TRIED: Final = 4
"""Values that are tried, those that are read longest."""
_MOVES: Final = frozenset({"broadcast", "reshape", "transpose"})


@dataclass(frozen=True)
class _Made:
    """A value, the ops that make it, its own last, and the small arrays of which they make it."""

    ops: tuple[Instruction, ...]
    given: tuple[Instruction, ...]

    @property
    def what(self) -> str:
        """In the words of the field."""
        compared = [one for one in self.ops if one.opcode == "compare"]
        for one in compared:
            if one.direction == "EQ" and any(side.opcode == "iota" for side in one.operands):
                return "a one-hot matrix"
        if compared or any(one.array.dtype.name == "pred" for one in self.ops):
            return "a mask"
        spread = [one for one in self.ops if one.opcode == "broadcast" and one.dimensions]
        return "an outer product" if len(spread) > 1 else "a broadcast"


def carried(subject: Subject) -> Iterator[FindingCandidate]:
    """Such values that are made before a loop, and read by each iteration."""
    if is_planned(subject.module):
        return
    predictor = subject.planner.predictor
    found = []
    for loop in sites(subject.module, "while"):
        source = loop.operands[0]
        if source.opcode != "tuple" or growth_obstacle(loop) or len(loop.body.callers) != 1:
            continue
        state = reads(loop.body.parameters[0])
        runs = subject.runs(loop.body.root)[0]
        for index, value in enumerate(source.operands):
            if not value.is_array or value.shape.byte_size < _LEAST or index not in state:
                continue
            read = runs * value.shape.byte_size / predictor.target.memory_bandwidth
            if read < _PART * subject.plan.seconds or not is_passed_through(loop.body, index):
                continue
            made = _made(value)
            if made is not None:
                found.append((read, loop, value, made))
    found.sort(key=lambda row: -row[0])
    for _, loop, value, made in found[:_TRIED]:
        yield _candidate(subject, loop, value, made)


def _candidate(
    subject: Subject, loop: Instruction, value: Instruction, made: _Made
) -> FindingCandidate:
    runs = subject.runs(loop.body.root)[0]
    small = sum(one.shape.byte_size for one in made.given)
    source = ", ".join(f"%{one.name}" for one in made.given[:3]) or "constants alone"
    return FindingCandidate(
        (value, loop),
        f"%{value.name} is {made.what} of {byte_size(value.shape.byte_size)}, which {len(made.ops)} ops "
        "make of "
        f"{source} ({byte_size(small)}). It is made before %{loop.name}, and each of {runs:,} "
        "iterations reads it "
        "from memory; what makes it would fuse with what reads it.",
        (
            FindingRemedy(
                "model",
                "make it in the body of jax.lax.scan or fori_loop (jnp.where, jnp.arange, broadcasting), from "
                "the small arrays that the body closes over: XLA leaves it there",
            ),
        ),
        _inside,
        (loop,),
        holds=is_sure_on_host if subject.planner.predictor.target.kind == "cpu" else None,
    )


def _made(value: Instruction) -> _Made | None:
    """None for what is made of much, by many ops, or by ops that do not fuse with what reads them."""
    room = value.shape.byte_size // _LARGER
    ops: dict[Instruction, None] = {}
    given: dict[Instruction, None] = {}
    pending = [value]
    while pending:
        one = pending.pop()
        if one in ops or one in given:
            continue
        if one is not value and one.opcode not in ("constant", "iota") and _fits(one, room):
            given[one] = None
            room -= one.shape.byte_size
        elif _is_cheap(one) and len(ops) < _MOST:
            ops[one] = None
            pending.extend(one.operands)
        else:
            return None
    return _Made(tuple(one for one in value.home if one in ops), tuple(given))


def _fits(one: Instruction, room: int) -> bool:
    return one.is_array and one.shape.byte_size <= room


def _is_cheap(one: Instruction) -> bool:
    if one.opcode in ("constant", "iota"):
        return True
    return is_replaceable(one) and one.is_array and (one.op.is_elementwise or one.opcode in _MOVES)


def _inside(module: Module, places: Sequence[Instruction]) -> bool:
    """Make the value in the loop that carries it."""
    value, loop = places
    made = _made(value)
    if made is None or loop.operands[0].opcode != "tuple":
        return False
    _sink(loop, value, made)
    return True


def _sink(loop: Instruction, value: Instruction, made: _Made) -> None:
    state = CarriedState(loop)
    indices = [at for at, one in enumerate(state.init.operands) if one is value]
    own = dict(zip(made.given, state.add(made.given), strict=True))
    for index in indices:
        for read in reads(state.states[1])[index]:
            found = {one: build.element(read, state.states[1], place) for one, place in own.items()}
            for op in made.ops:
                found[op] = build.clone(op, read, tuple(found[one] for one in op.operands))
            for user in [one for one in read.users if one is not state.root]:
                edit.replace_operand(user, read, found[value])
    others = [reads(one) for one in (loop, state.states[0])]
    state.drop([at for at in indices if not any(found.get(at) for found in others)])

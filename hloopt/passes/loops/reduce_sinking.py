"""Reduces whose results a loop only adds up, done once after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.regions import combiner
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ops.traits import ASSOCIATIVE, IDEMPOTENT
from hloopt.passes.loops.carried import (
    CarriedState,
    reads,
    states,
    used_reads,
    whole_uses,
)
from hloopt.passes.loops.motion import check_growth, inner_loops_first, move_out
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.regions import identity

__all__ = ["WhileReduceSinking"]

_STEP = "reduce after a loop"
_COUNTED = ASSOCIATIVE - IDEMPOTENT


@dataclass(frozen=True)
class WhileReduceSinking(Pass):
    """Let a loop that adds up what it reduces carry the parts, and reduce them once, behind it.

    ``c = c + reduce(x)`` in each iteration becomes ``p = p + x``, and ``c + reduce(p)`` after the last; so with
    ``and``, ``or``, ``xor``, ``multiply``, ``maximum`` and ``minimum``.  Nothing but the result may read ``c``.
    What the loop does along the reduced dimensions no longer waits in each iteration for all of them.

    fast_math   also floats, whose sums round otherwise then; integers and truth values stay what they are
    max_growth  the parts take at most so many times the bytes of the rest of the state
    """

    example: ClassVar[str] = """HloModule example

sum {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

less {
  s = (s32[], s32[], s32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], s32[], s32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  total = s32[] get-tuple-element(s), index=1
  x = s32[64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = s32[64] multiply(x, x)
  zero = s32[] constant(0)
  r = s32[] reduce(y, zero), dimensions={0}, to_apply=sum
  more = s32[] add(total, r)
  ROOT t = (s32[], s32[], s32[64]) tuple(j, more, y)
}

ENTRY main {
  x = s32[64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], s32[], s32[64]) tuple(zero, zero, x)
  loop = (s32[], s32[], s32[64]) while(t), condition=less, body=next
  ROOT total = s32[] get-tuple-element(loop), index=1
}
"""

    fast_math: bool = False
    max_growth: float = 1.0

    def __post_init__(self) -> None:
        check_growth(self, self.max_growth)

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first: what leaves them may leave the outer ones, too."""
        changed = False
        for loop in inner_loops_first(module):
            changed |= self.sink(loop, log)
        return changed

    def sink(self, loop: Instruction, log: PassLog) -> bool:
        """Take the reduces of one loop behind it."""

        def begin(carried: CarriedState) -> Callable[[tuple[int, Instruction]], None]:
            return lambda part: _sink(carried, *part)

        return move_out(
            loop,
            _STEP,
            log,
            found=lambda log: list(self._found(loop, log)),
            begin=begin,
            told=lambda part: (part[1], f"{loop.name} only adds it up"),
        )

    def _found(self, loop: Instruction, log: PassLog) -> Iterator[tuple[int, Instruction]]:
        """Elements of the state and the reduces that are added up in them."""
        body = loop.body
        condition, state, _ = states(loop)
        if body.root.opcode != "tuple" or whole_uses(state) or whole_uses(condition):
            return
        inside, in_condition = used_reads(state), used_reads(condition)
        rest = loop.shape.byte_size
        for number, following in enumerate(body.root.operands):
            reduce = _added(following, inside.get(number, []))
            if reduce is None or in_condition.get(number):
                continue
            problem = self._problem(reduce, rest)
            if problem:
                log.miss(_STEP, reduce, problem)
                continue
            rest += reduce.operands[0].shape.byte_size
            yield number, reduce

    def _problem(self, reduce: Instruction, rest: int) -> str:
        kind = reduce.array.dtype
        if not (self.fast_math or kind.is_integer or kind.is_pred):
            return f"another order changes sums of {kind.name}: fast_math"
        if kind.is_complex:
            return f"{kind.name} has no plain identity"
        parts = reduce.operands[0].array
        if parts.is_dynamic:
            return "it has dynamic dimensions"
        if parts.byte_size > self.max_growth * rest:
            return (
                f"its {parts.byte_size} bytes are more than max_growth={self.max_growth:g} times the"
                f" {rest} of the state"
            )
        return ""


def _added(following: Instruction, inside: list[Instruction]) -> Instruction | None:
    """The reduce that the next value of an element is itself and that; nothing else reads either."""
    opcode = following.opcode
    if opcode not in ASSOCIATIVE or len(inside) != 1 or following.is_tied:
        return None
    (read,) = inside
    others = [operand for operand in following.operands if operand is not read]
    if len(others) != 1 or list(read.users) != [following] or sum(following.users.values()) != 1:
        return None
    (reduce,) = others
    if (
        reduce.opcode != "reduce"
        or len(reduce.operands) != 2
        or not reduce.is_array
        or sum(reduce.users.values()) != 1
        or combiner(reduce.to_apply) != opcode
        or reduce.is_tied
        or reduce.operands[0].array.dtype is not reduce.array.dtype
    ):
        return None
    start = reduce.operands[1].constant_array
    if start is None or not np.all(start.reshape(()) == identity(opcode, reduce.array.dtype)):
        return None
    return reduce


def _sink(carried: CarriedState, number: int, reduce: Instruction) -> None:
    """Carry the parts; the element itself is passed through, and what read its end reads both."""
    loop = carried.loop
    following = carried.root.operands[number]
    opcode = following.opcode
    parts, start = reduce.operands
    value = start.constant_array
    assert value is not None, "a reduce that is moved begins with a constant"
    empty = build.splat(carried.init, parts.array, value.reshape(()))
    (at,) = carried.add([empty])
    before = build.element(following, carried.states[1], at)
    more = build.make(
        following, opcode, (before, parts), shape=parts.shape, metadata=following.metadata
    )
    read = next(operand for operand in following.operands if operand is not reduce)
    operands = list(carried.root.operands)
    operands[number], operands[at] = read, more
    edit.set_operands(carried.root, tuple(operands))
    _finish(loop, number, at, reduce, opcode)
    edit.remove(following)
    edit.remove(reduce)


def _finish(loop: Instruction, number: int, at: int, reduce: Instruction, opcode: str) -> None:
    literal = reduce.operands[1].literal
    assert literal is not None, "a reduce that is moved begins with a constant"
    for end in list(reads(loop)[number]):
        first, parts = build.element(end, loop, number), build.element(end, loop, at)
        edit.set_shape(first, end.shape)
        whole = build.make(
            end, "reduce", (parts, build.constant(end, literal)), reduce.attributes,
            shape=reduce.shape, metadata=reduce.metadata,
        )  # fmt: skip
        edit.replace_instruction(end, build.make(end, opcode, (first, whole), shape=end.shape))

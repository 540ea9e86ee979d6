"""Loops of known count, written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from hloopt.analysis.backend_config import config_text, read_backend_config
from hloopt.analysis.effects import Effects, visit_loops
from hloopt.analysis.loop_values import constant_value
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, edit
from hloopt.passes.loops.carried import CarriedState, obstacle, remove_unused
from hloopt.passes.loops.counters import constant_like, counters
from hloopt.passes.loops.inline import BodyCopies, elements_of, removal_obstacle, replace_loop
from hloopt.rewrite import Pass, PassLog
from hloopt.types import FrontendAttributes, Verbatim

__all__ = ["WhileUnroll"]

_FULL = "loop written out"
_PARTIAL = "loop with several iterations in its body"
_MARK = "hloopt_unrolled"


@dataclass(frozen=True)
class WhileUnroll(Pass):
    """Write out loops of known trip count: whole, or ``factor`` iterations at a time.

    1. A loop of at most ``full_max`` iterations, whose body has at most ``body_max`` instructions and which
       makes at most ``total_max`` of them, is replaced by as many copies of its body.
    2. Of any other of known count n, n modulo ``factor`` iterations come before the loop, and its body
       becomes ``factor`` copies of itself.  The condition stays as it is: it is evaluated in iterations at
       which the original loop would have evaluated it, too, the last one included.

    Counters are numbers in each copy, and before the loop: slices at them become static with simplify and
    constant-folding.  Copies are called ``NAME.unroll.K``, those before the loop ``NAME.peel.K``; metadata
    and control edges are copied.  Refused: no known count, side effects, collectives and random numbers
    in body or condition, control edges, a sharding of the result, dynamic dimensions.  A loop is
    marked (frontend_attributes) so that it is not taken again.

    factor     iterations in a body; 1 to write out whole loops only
    full_max   the most iterations of a loop that is written out whole; 0 for none
    body_max   the most instructions in the body of one
    total_max  the most instructions of all copies, whole or in part
    """

    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3,4] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  one = s32[] constant(1)
  row = f32[1,4] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,4}
  twice = f32[1,4] add(row, row)
  y = f32[3,4] dynamic-update-slice(x, twice, i, zero)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[3,4]) tuple(j, y)
}

ENTRY main {
  x = f32[3,4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[3,4]) tuple(zero, x)
  loop = (s32[], f32[3,4]) while(t), condition=less, body=next
  ROOT y = f32[3,4] get-tuple-element(loop), index=1
}
"""

    factor: int = 1
    full_max: int = 64
    body_max: int = 800
    total_max: int = 10_000

    def __post_init__(self) -> None:
        if self.factor < 1 or self.full_max < 0 or self.body_max < 1 or self.total_max < 1:
            raise UsageError(
                f"{self.name}: factor, body_max and total_max are at least 1, full_max at least 0"
            )

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first, again where an outer one that was written out shows the count of another."""
        changed = False
        while visit_loops(module, lambda loop, effects: self.unroll(loop, effects, log)):
            changed = True
        return changed

    def unroll(self, loop: Instruction, effects: Effects, log: PassLog) -> bool:
        """Write out one loop, if that is possible and within the limits."""
        if _MARK in FrontendAttributes.of(loop.attributes):
            return False
        iterations = trip_count(loop)
        body = loop.body
        if iterations is None:
            log.miss(_FULL, loop, "its trip count is not known")
            return False
        size = len(body)
        whole = self.whole_obstacle(iterations, size)
        if whole and self.factor > 1:
            step, reason = _PARTIAL, self.part_obstacle(loop, iterations, size)
        else:
            step, reason = _FULL, whole
        reason = reason or _obstacle(loop, effects)
        if reason:
            log.miss(step, loop, reason)
            return False
        if not log.allows():
            return False
        if step is _FULL:
            log.hit(step, loop, f"{iterations} iterations")
            state, once = elements_of(loop.operands[0], loop), BodyCopies(body)
            replace_loop(loop, _copies(once, loop, loop, state, iterations, "unroll"))
            once.settle()
        else:
            log.hit(step, loop, f"{self.factor} of {iterations} iterations")
            _unroll_partly(loop, iterations, self.factor)
        return True

    def whole_obstacle(self, iterations: int, size: int) -> str:
        """Which limit a whole loop exceeds, or an empty string."""
        if iterations > self.full_max:
            return f"{iterations} iterations, more than full_max={self.full_max}"
        if size > self.body_max:
            return f"{size} instructions in its body, more than body_max={self.body_max}"
        if iterations * size > self.total_max:
            return f"{iterations * size} instructions in all, more than total_max={self.total_max}"
        return ""

    def part_obstacle(self, loop: Instruction, iterations: int, size: int) -> str:
        """What speaks against ``factor`` copies and those before the loop, or an empty string."""
        if iterations < 2 * self.factor:
            return f"{iterations} iterations, fewer than two times factor={self.factor}"
        total = size * (self.factor + iterations % self.factor)
        if total > self.total_max:
            return f"{total} instructions in all, more than total_max={self.total_max}"
        return obstacle(loop)


def _obstacle(loop: Instruction, effects: Effects) -> str:
    body, condition = loop.body, loop.condition
    for called in (condition, body):
        for inner in called:
            if effects.has(inner) or inner.opcode == "rng":
                return f"{inner.name} does more than compute its result"
    return removal_obstacle(loop)


def _copies(
    body: BodyCopies,
    loop: Instruction,
    position: Instruction,
    state: Sequence[Instruction],
    iterations: int,
    word: str,
) -> list[Instruction]:
    """The state after the first ``trips`` iterations, computed before an instruction."""
    known = counters(loop) if loop.is_tuple else {}
    for iteration in range(iterations + 1):
        if iteration:
            state = body.copy(position, state, _named(word, iteration - 1), loop)
        numbers = {index: variable.at(iteration) for index, variable in known.items()}
        state = _counted(body, position, state, numbers)
    return list(state)


def _counted(
    body: BodyCopies, position: Instruction, state: Sequence[Instruction], numbers: dict[int, int]
) -> list[Instruction]:
    """The state with numbers for its counters, under the names of what computed them in a copy."""
    counted: list[Instruction] = []
    replaced: dict[Instruction, Instruction] = {}
    unused: list[Instruction] = []
    for index, value in enumerate(state):
        known = replaced.get(value)
        if known is None and index in numbers and constant_value(value) is None:
            is_copy = body.is_copy(value)
            known = constant_like(value if is_copy else position, value, numbers[index])
            if is_copy:
                replaced[value], operands = known, value.operands
                edit.replace_instruction(value, known)
                unused += operands
        counted.append(known or value)
    remove_unused(filter(body.is_copy, unused), keep={*counted, *state})
    return counted


def _unroll_partly(loop: Instruction, iterations: int, factor: int) -> None:
    """Iterations that are left over before the loop, then ``factor`` of them in one body."""
    rest = iterations % factor
    carried = CarriedState(loop)
    once, root = BodyCopies(carried.body), carried.root
    if rest:
        state = carried.init.operands
        before = _copies(once, loop, carried.init, state, rest, "peel")
        edit.set_operands(carried.init, tuple(before))
    for number in range(1, factor):
        edit.set_operands(root, tuple(once.copy(root, root.operands, _named("unroll", number))))
    once.settle()
    written = FrontendAttributes.of(loop.attributes).written
    marked = FrontendAttributes((*written, (_MARK, f'"{factor}"')))
    edit.set_attribute(loop, "frontend_attributes", Verbatim.of(marked))
    _rewrite_config(loop, rest, iterations // factor, factor)


def _named(word: str, number: int) -> Callable[[str], str]:
    return lambda name: f"{name}.{word}.{number}"


def _rewrite_config(loop: Instruction, rest: int, iterations: int, factor: int) -> None:
    """The count that is known, and what XLA wrote about the counter, for the new body."""
    config = read_backend_config(loop)
    if config is None:
        return
    changed = {**config, "known_trip_count": {"n": str(iterations)}}
    start = config.get("known_init_step")
    if isinstance(start, dict):
        first, step = int(start.get("init", 0)), int(start.get("step", 0))
        changed["known_init_step"] = {"init": str(first + rest * step), "step": str(factor * step)}
    changed.pop("dynamic_variables", None)
    edit.set_attribute(loop, "backend_config", config_text(loop, changed))

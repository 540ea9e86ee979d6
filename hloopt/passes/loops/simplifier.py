"""Loops that carry less, run never or once, or count one thing instead of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hloopt.analysis.effects import Effects, visit_loops
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.passes.loops import counters, elements, flatten
from hloopt.passes.loops.carried import CarriedState, obstacle, reads, uses, whole_uses
from hloopt.passes.loops.inline import BodyCopies, elements_of, removal_obstacle, replace_loop
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.source_lines import merge_lines

__all__ = ["WhileLoopSimplifier"]


@dataclass(frozen=True)
class WhileLoopSimplifier(Pass):
    """Let loops carry only what they need, and run what runs at most once without a loop.

    1. A loop that never runs is replaced by its initial state, one that runs once by its body.
    2. Tuples within the state become elements of it, and a state that is an array the element of a tuple.
    3. The result of an element that the body passes through is what it was before the loop; one whose next
       value is the constant it begins with becomes that constant inside, too.
    4. Of elements that are always equal, one stays.
    5. A counter that is a multiple of another plus a number is computed from it; after a loop of known
       count, a counter is a number.
    6. Elements that only their own next values need are dropped, in cycles, too.

    A loop with side effects in body or condition is never replaced (1), nor is one with control edges,
    or whose result has a sharding.  An endless loop stays one: nothing is said about a loop whose count is
    not known.  Bodies of fusions and of asynchronous calls are left alone, as are dynamic dimensions and
    shardings given by elements of elements.
    """

    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  j = s32[] get-tuple-element(s), index=1
  x = f32[4] get-tuple-element(s), index=2
  w = f32[4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  two = s32[] constant(2)
  i1 = s32[] add(i, one)
  j1 = s32[] add(j, two)
  y = f32[4] multiply(x, w)
  ROOT r = (s32[], s32[], f32[4], f32[4]) tuple(i1, j1, y, w)
}

ENTRY main {
  x = f32[4] parameter(0)
  w = f32[4] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], s32[], f32[4], f32[4]) tuple(zero, zero, x, w)
  loop = (s32[], s32[], f32[4], f32[4]) while(t), condition=less, body=next
  j = s32[] get-tuple-element(loop), index=1
  y = f32[4] get-tuple-element(loop), index=2
  v = f32[4] get-tuple-element(loop), index=3
  ROOT r = (s32[], f32[4], f32[4]) tuple(j, y, v)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first, again and again: what happens to one shows more of another."""
        changed = False
        while visit_loops(module, lambda loop, effects: _simplify(loop, effects, log)):
            changed = True
        return changed


_Step = Callable[[Instruction, Effects, PassLog], bool]


def _simplify(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    if _remove_loop(loop, effects, log):
        return True
    changed = flatten.wrap(loop, log)
    if not loop.is_tuple:
        return False
    reason = obstacle(loop)
    for name, step in _STEPS:
        if not log.allows():
            break
        if reason:
            log.miss(name, loop, reason)
            break
        changed |= step(loop, effects, log)
    return changed


def _remove_loop(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Step 1."""
    iterations = trip_count(loop)
    if iterations not in (0, 1):
        return False
    name = "loop that never runs" if iterations == 0 else "loop that runs once"
    body, condition = loop.body, loop.condition
    reason = removal_obstacle(loop)
    acting = [condition, *([body] if iterations else [])]
    if not reason and any(effects.has(one) for called in acting for one in called):
        reason = "body or condition have side effects"
    if reason:
        log.miss(name, loop, reason)
        return False
    if not log.allows():
        return False
    log.hit(name, loop)
    state = elements_of(loop.operands[0], loop)
    once = BodyCopies(body)
    replace_loop(loop, once.copy(loop, state, loop=loop) if iterations else state)
    once.settle()
    return True


def _pass_through(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Step 3, results: what the body passes through is what it was."""
    name = "element that the body passes through"
    body, source = loop.body, loop.operands[0]
    passed_through = [
        index for index in range(len(loop.elements)) if elements.is_passed_through(body, index)
    ]
    unneeded = set[int]()
    if passed_through and (whole_uses(loop) or loop.is_root):
        # A tuple in place of the whole result is worth it for what can then be dropped.
        others = set(range(len(loop.elements))).difference(passed_through)
        unneeded = set(passed_through) - elements.needed_for(loop, others, effects)
    found = reads(loop)
    chosen = []
    for index in passed_through:
        if index not in unneeded and not any(one.is_used for one in found[index]):
            continue
        if not elements.may_replace_result(loop, index, source, found[index]):
            log.miss(name, loop, f"element {index} of the result has another layout or sharding")
        elif log.allows():
            log.hit(name, loop, f"element {index}")
            chosen.append(index)
    if chosen:
        carried = CarriedState(loop)
        found = reads(loop)
        for index in chosen:
            for read in found[index]:
                edit.replace_uses(read, carried.init.operands[index])
    return bool(chosen)


def _constants(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Step 3, inside: an element that begins with a constant and is set to it again."""
    name = "element that is always the same constant"
    source, found = loop.operands[0], uses(loop)
    chosen: dict[int, Instruction] = {}
    for index in range(len(loop.elements) if source.opcode == "tuple" else 0):
        value = source.operands[index]
        again = elements.following(loop.body, index)
        if again is None or not elements.same_constant(value, again) or not found[index]:
            continue
        if not all(elements.may_replace(one, value) for one in found[index]):
            log.miss(name, loop, f"element {index} has a layout, sharding or control edges")
        elif log.allows():
            log.hit(name, loop, f"element {index}")
            chosen[index] = value
    if chosen:
        CarriedState(loop, keeps_state=True)
        found = uses(loop)
        for index, value in chosen.items():
            for use in found[index]:
                edit.replace_uses(use, build.clone(value, use, ()))
    return bool(chosen)


def _merge(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Step 4."""
    name = "element that equals another"
    found = uses(loop)
    chosen: dict[int, int] = {}
    for index, first in elements.duplicates(loop, effects).items():
        if not elements.may_merge(loop, index, first, found):
            log.miss(name, loop, f"element {index} has another layout or sharding than {first}")
        elif log.allows():
            log.hit(name, loop, f"element {index} equals {first}")
            chosen[index] = first
    if chosen:
        carried = CarriedState(loop)
        found = uses(loop)
        for index, first in chosen.items():
            merge_lines(carried.root.operands[first], (carried.root.operands[index],))
            for use in found[index]:
                edit.replace_instruction(use, build.element(use, use.operands[0], first))
        carried.drop(chosen)
    return bool(chosen)


def _drop(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Step 6."""
    live = elements.needed(loop, effects)
    dead = [index for index in range(len(loop.elements)) if index not in live]
    if dead and len(dead) == len(loop.elements):
        del dead[0]  # the state of an endless loop that nothing reads is not empty
    if not dead or not log.allows():
        return False
    log.hit("elements that nothing needs", loop, f"elements {dead}")
    CarriedState(loop).drop(dead)
    return True


_STEPS: tuple[tuple[str, _Step], ...] = (
    ("tuple within the state", flatten.flatten),
    ("element that the body passes through", _pass_through),
    ("element that is always the same constant", _constants),
    ("element that equals another", _merge),
    ("counter after the loop", counters.final_values),
    ("counter that follows another", counters.merge),
    ("elements that nothing needs", _drop),
)

"""The worklist driver: applies rules to a computation until none applies.

Each instruction is visited once, and again only when something close below it changed: a rewrite puts
what it built, and the users up to as many levels as the patterns are deep, back on the list.  Work is
proportional to the instructions plus the rewrites.  What a rewrite leaves unused is removed at once, so
that "used once" stays true.

Never rewritten: an instruction with control edges; a replacement is refused when its layout or sharding
differs from the original's, or when a shape is dynamic.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from hloopt.analysis.values import Values
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite.history import Fights, History
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.rewrite.pattern import Bindings, match_inside
from hloopt.rewrite.rule import Match, Rule, RuleSet
from hloopt.rewrite.source_lines import MOST_LINES, merge_lines
from hloopt.types import (
    ArrayShape,
    BufferShape,
    Metadata,
    Shape,
    TupleShape,
    compatible,
    descending,
)

__all__ = ["RulePass", "apply_rules", "same_layout"]


_Gone: TypeAlias = list[tuple[Instruction, tuple[Instruction, ...]]]

_FEW_USERS = 8
"""Where an instruction loses a user and has at most this many left, all of them are visited again."""


def apply_rules(
    computation: Computation,
    rules: RuleSet,
    log: PassLog,
    *,
    fast_math: bool = False,
    floats_are_real: bool = False,
) -> bool:
    """Rewrite with ``rules`` until nothing matches; whether anything changed.

    Rules that undo each other are stopped and named in a note of the log (see ``rewrite/history.py``).
    """
    driver = _Driver(computation, rules, log, fast_math, floats_are_real)
    driver.pending.extend(computation)
    driver.listed.update(driver.pending)
    driver.has_dynamic = any(instruction.shape.is_dynamic for instruction in driver.pending)
    return driver.run()


class RulePass(Pass):
    """Base of passes that apply some rules of ``simplify`` where it does."""

    rule_set: ClassVar[RuleSet]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.rules = {rule.name: rule.fast_math for rule in cls.rule_set.rules}

    def run(self, module: Module, log: PassLog) -> bool:
        """Apply the rules to every computation that is not the body of a fusion or asynchronous call."""
        changed = False
        for computation in open_computations(module):
            changed |= apply_rules(computation, self.rule_set, log)
        return changed


@dataclass
class _Driver:
    """``has_dynamic``: whether any instruction of the computation had a dynamic shape so far."""

    computation: Computation
    rules: RuleSet
    log: PassLog
    fast_math: bool
    floats_are_real: bool
    pending: deque[Instruction] = field(default_factory=deque)
    listed: set[Instruction] = field(default_factory=set)
    history: dict[Instruction, History] = field(default_factory=dict)
    fights: Fights = field(default_factory=Fights)
    values: Values = field(default_factory=Values)
    memory: dict[type, Any] = field(default_factory=dict)
    has_dynamic: bool = False

    def push(self, instruction: Instruction) -> None:
        if instruction not in self.listed:
            self.listed.add(instruction)
            self.pending.append(instruction)

    def run(self) -> bool:
        changed = False
        while self.pending and self.log.allows():
            instruction = self.pending.popleft()
            self.listed.discard(instruction)
            if _may_rewrite(instruction):
                changed |= self.visit(instruction)
        self.fights.report(self.log, self.computation)
        return changed

    def visit(self, instruction: Instruction) -> bool:
        history = self.history.get(instruction)
        if history is not None and history.fights:
            return False
        if instruction.attributes and not instruction.is_understood:
            return False
        found = None
        for rule in self.rules.candidates(instruction):
            for bound in match_inside(rule.pattern, instruction):
                if self.has_dynamic and _is_dynamic(instruction, bound):
                    continue
                # Most rules that match decline, and leave the record as it was.
                if found is None:
                    found = self.found(instruction, bound)
                else:
                    found.bound = bound
                result = rule.apply(found)
                objection = _objection(found, result, rule) if result is not None else found.refusal
                if result is not None and not objection:
                    self.replace(found, result, rule)
                    return True
                if found.created:
                    _discard(found.created)
                if objection:
                    self.log.miss(rule.name, instruction, objection)
                if found.created or objection:
                    found = None
        return False

    def found(self, instruction: Instruction, bound: Bindings) -> Match:
        return Match(
            instruction,
            bound,
            self.fast_math,
            values=self.values,
            floats_are_real=self.floats_are_real,
            memory=self.memory,
        )

    def replace(self, found: Match, result: Instruction, rule: Rule) -> None:
        root = found.root
        self.log.hit(rule.name, root)
        size = len(self.computation) - len(found.created)
        before = self.history.get(root)
        history = before.then(rule.name, size) if before else History.begin(rule.name, root, size)
        moved, operands = list(root.users), root.operands
        if history.fights:
            self.fights.add(history)
        edit.replace_instruction(root, result)
        for instruction in found.created:
            self.history[instruction] = history
            self.has_dynamic |= instruction.shape.is_dynamic
            self.push(instruction)
        self.push_users(moved)
        different = self.values.refresh(moved)
        self.push_users([user for entry in different for user in (entry, *entry.users)])
        gone = self.remove_unused(operands)
        self.remove_unused(tuple(found.created))
        _keep_lines(found.created, gone)

    def push_users(self, users: list[Instruction]) -> None:
        """Put users back on the list, as far up as patterns reach down."""
        level = users
        for _ in range(self.rules.depth - 1):
            for user in level:
                self.push(user)
            level = [above for user in level for above in user.users if above not in self.listed]

    def remove_unused(self, instructions: tuple[Instruction, ...]) -> _Gone:
        """Remove what nothing needs, and what only that needed; users before what they use."""
        gone: _Gone = []
        stack = list(instructions)
        while stack:
            instruction = stack.pop()
            if instruction.computation is None:
                continue
            if 0 < len(instruction.users) <= _FEW_USERS:
                # Rules ask who else uses an operand, and some ask it of the root.
                self.push(instruction)
                self.push_users(list(instruction.users))
            elif _is_dead(instruction):
                stack.extend(instruction.operands)
                gone.append((instruction, instruction.operands))
                edit.remove(instruction)
        return gone


def _may_rewrite(instruction: Instruction) -> bool:
    return instruction.computation is not None and not instruction.has_control_edges


def _keep_lines(created: list[Instruction], gone: _Gone) -> None:
    """What a rewrite made does the work of what stood between the root and what it reads."""
    made = [instruction for instruction in created if instruction.computation is not None]
    inner = {operand for instruction in made for operand in instruction.operands}
    between: dict[Metadata | None, Instruction] = {}
    for instruction, operands in reversed(gone):
        if not inner.isdisjoint(operands):
            inner.add(instruction)
            between.setdefault(instruction.metadata, instruction)
    for instruction in made if between else ():
        merge_lines(instruction, list(between.values())[:MOST_LINES])


def _is_dynamic(instruction: Instruction, bound: Bindings) -> bool:
    """Whether a rule would need sizes that are known only at run time."""
    seen = (instruction, *instruction.operands, *bound.values())
    return any(entry.shape.is_dynamic for entry in seen)


def _is_dead(instruction: Instruction) -> bool:
    return not (
        instruction.users
        or instruction.is_root
        or instruction.opcode == "parameter"
        or instruction.has_control_edges
        or instruction.op.side_effect
        or not instruction.is_understood
        or instruction.op.family in ("collective", "async", "host", "custom")
        or any(called for called in instruction.attributes.values() if _calls(called))
    )


def _calls(value: object) -> bool:
    return isinstance(value, Computation) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], Computation)
    )


def _objection(found: Match, result: Instruction, rule: Rule) -> str:
    """Why ``result`` may not stand for the root, or nothing.

    A new result gets the root's layout and what is said about it.
    """
    root = found.root
    if not compatible(root.shape, result.shape):
        raise AssertionError(f"rule '{rule.name}' makes {result.shape} out of {root.shape}")
    is_new = result in found.created
    if (not is_new or result.opcode in _LAYOUT_MATTERS) and not same_layout(
        root.shape, result.shape
    ):
        return f"the layout would change from {root.shape} to {result.shape}"
    for name in _SAID:
        said = root.attributes.get(name)
        if said is None or result.attributes.get(name) == said:
            continue
        if not is_new:
            return f"its {name} would be lost"
        edit.set_attribute(result, name, said)
    if is_new:
        edit.set_shape(result, root.shape)
    return ""


_SAID = ("sharding", "frontend_attributes")
_LAYOUT_MATTERS = ("bitcast", "get-tuple-element", "custom-call")


def same_layout(left: Shape, right: Shape) -> bool:
    """Whether compatible shapes also agree in layout and dynamic marks; no layout is row-major."""
    if left is right:
        return True
    if isinstance(left, TupleShape) and isinstance(right, TupleShape):
        return all(map(same_layout, left.elements, right.elements))
    if isinstance(left, BufferShape) and isinstance(right, BufferShape):
        return same_layout(left.element, right.element)
    if not (isinstance(left, ArrayShape) and isinstance(right, ArrayShape)):
        return False
    if left.dynamic != right.dynamic and (any(left.dynamic) or any(right.dynamic)):
        return False
    return left.layout == right.layout or _layout(left) == _layout(right)


def _layout(shape: ArrayShape) -> object:
    return shape.layout if shape.layout is not None else descending(shape.rank)


def _discard(created: list[Instruction]) -> None:
    for instruction in reversed(created):
        edit.remove(instruction)

"""Rewrite rules: data named by the equation they apply, and what makes the instructions of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Never, TypeAlias

from hloopt.analysis.value_range import ValueRange
from hloopt.analysis.values import Values
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, build
from hloopt.rewrite.pattern import Bindings, Pattern
from hloopt.rewrite.spec import did_you_mean
from hloopt.types import ArrayShape, Literal, Shape, scalar

__all__ = ["Maker", "Match", "Rewrite", "Rule", "RuleSet", "instantiate", "own_attributes"]


def own_attributes(instruction: Instruction) -> dict[str, Any]:
    """The attributes that say what the op computes: those of its row."""
    schema = {entry.name for entry in instruction.op.attributes}
    return {name: value for name, value in instruction.attributes.items() if name in schema}


class Maker:
    """Makes instructions right before ``root``, with its metadata; ``created`` are those it made."""

    root: Instruction
    created: list[Instruction]

    def make(
        self, opcode: str, /, *operands: Instruction, shape: Shape | None = None, **attributes: Any
    ) -> Instruction:
        """A new instruction; its shape is inferred unless given."""
        root = self.root
        made = build.make(root, opcode, operands, attributes, shape=shape, metadata=root.metadata)
        self.created.append(made)
        return made

    def result(self, opcode: str, /, *operands: Instruction, **attributes: Any) -> Instruction:
        """A new instruction of the root's shape."""
        return self.make(opcode, *operands, shape=self.root.shape, **attributes)

    def results(self, results: Sequence[Instruction]) -> Instruction:
        """What the root gives: a tuple of the results where it is one, else the only one."""
        is_tuple = self.root.is_tuple
        return self.result("tuple", *results) if is_tuple else results[0]

    def again(
        self, computed: Instruction, *operands: Instruction, shape: Shape | None = None
    ) -> Instruction:
        """The op of ``computed`` on other operands; of the root's shape unless one is given."""
        attributes = own_attributes(computed)
        return self.make(computed.opcode, *operands, shape=shape or self.root.shape, **attributes)

    def constant(self, literal: Literal) -> Instruction:
        """A new constant."""
        return self.make("constant", shape=literal.shape, literal=literal)

    def scalar(self, element: str, value: object) -> Instruction:
        """A number as a constant of rank 0."""
        return self.constant(scalar(element, value))

    def splat(self, shape: ArrayShape, value: object) -> Instruction:
        """``value`` in every element of ``shape``."""
        return self.splat_of(shape, scalar(shape.dtype.name, value))

    def splat_of(self, shape: ArrayShape, literal: Literal) -> Instruction:
        """A scalar literal in every element of ``shape``."""
        return self.fill(shape, self.constant(literal))

    def fill(self, shape: ArrayShape, value: Instruction) -> Instruction:
        """A scalar in every element of ``shape``."""
        return self.make("broadcast", value, shape=shape, dimensions=()) if shape.dims else value


@dataclass(eq=False)
class Match(Maker):
    """A pattern found at ``root``; ``match.A`` is what the variable ``A`` stands for.

    ``make``, ``constant`` and ``splat`` build right before the root and carry its metadata.
    ``memory`` is for what rules find out about the computation, whose values no rewrite changes.
    """

    root: Instruction
    bound: Bindings
    fast_math: bool = False
    created: list[Instruction] = field(default_factory=list)
    refusal: str = ""
    values: Values = field(default_factory=Values)
    floats_are_real: bool = False
    memory: dict[type, Any] = field(default_factory=dict)

    @property
    def inner(self) -> Instruction:
        """The root's first operand."""
        return self.root.operands[0]

    @property
    def array(self) -> ArrayShape:
        """The root's shape, which must be an array; raises ``TypeError`` otherwise."""
        return self.root.array

    def range_of(self, instruction: Instruction) -> ValueRange:
        """What is known of the values of an instruction."""
        return self.values.of(instruction)

    def full(self, value: object) -> Instruction:
        """``value`` in every element of the root's shape."""
        return self.splat(self.array, value)

    def refuse(self, reason: str) -> Never | None:  # noqa: RUF020 - mypy lets it be returned
        """Say why the rule does not apply after all: ``return match.refuse("...")``.

        The reason names the threshold and the value that met it; a user sees it as a missed remark.
        """
        self.refusal = reason
        return None

    def __getattr__(self, name: str) -> Instruction:
        try:
            return self.bound[name]
        except KeyError:
            raise AttributeError(f"the pattern binds no variable {name}") from None


_FEW_OPERANDS = 4

Rewrite: TypeAlias = Callable[[Match], "Instruction | None"]


@dataclass(frozen=True, eq=False)
class Rule:
    """``pattern => rewrite``.

    name            the equation: doc line, statistics key, off-switch and test name
    rewrite         a pattern to build (variables stand for what they matched), or a function that
                    returns the replacement, or None where the rule does not apply after all
    when            a condition on the whole match; either may ``return match.refuse("why")``
    among           opcodes of which some operand has one, where the pattern leaves open which
    fast_math       only with the pass option of that name: results may change by more than rounding
    floats_are_real only with that option, which allows more: infinities and NaN may become numbers
    """

    name: str
    pattern: Pattern
    rewrite: Pattern | Rewrite
    when: Callable[[Match], bool | None] | None = None
    fast_math: bool = False
    floats_are_real: bool = False
    among: frozenset[str] = frozenset()

    def apply(self, match: Match) -> Instruction | None:
        """The replacement for the root of a match, or None."""
        if self.when is not None and not self.when(match):
            return None
        if isinstance(self.rewrite, Pattern):
            return instantiate(self.rewrite, match, match.root.shape)
        return self.rewrite(match)

    @cached_property
    def operand_opcodes(self) -> tuple[frozenset[str] | None, ...]:
        """The opcodes each operand of the root may have (None: any)."""
        return tuple(operand.opcodes for operand in self.pattern.operands or ())

    def may_match(self, instruction: Instruction) -> bool:
        """A quick look at the operands' opcodes: False means that the pattern cannot match."""
        wanted = self.operand_opcodes
        operands = instruction.operands
        if self.among and self.among.isdisjoint([operand.opcode for operand in operands]):
            return False
        if not wanted:
            return True
        if len(wanted) != len(operands):
            return False
        if _fits(wanted, operands):
            return True
        return self.pattern.commutative and _fits(wanted, operands[::-1])


def _fits(wanted: tuple[frozenset[str] | None, ...], operands: tuple[Instruction, ...]) -> bool:
    for opcodes, operand in zip(wanted, operands, strict=True):
        if opcodes is not None and operand.opcode not in opcodes:
            return False
    return True


def instantiate(pattern: Pattern, match: Match, shape: Shape | None = None) -> Instruction:
    """Build what a pattern says; ``shape`` is that of the result where it is known."""
    if pattern.name:
        return match.bound[pattern.name]
    if pattern.number is not None:
        target = shape if shape is not None else match.root.shape
        assert isinstance(target, ArrayShape)
        return match.splat(target, pattern.number)
    if pattern.build is not None:
        return pattern.build(match)
    operands = tuple(instantiate(operand, match) for operand in pattern.operands or ())
    if pattern.opcodes is None:
        return match.again(match.root, *operands)
    (opcode,) = pattern.opcodes
    return match.make(opcode, *operands, shape=shape, **pattern.attributes)


class RuleSet:
    """Rules indexed by the opcode of their root, in the order given."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            twice = {name for name in names if names.count(name) > 1}
            raise ValueError(f"rules with the same equation: {', '.join(sorted(twice))}")
        self.depth = max((rule.pattern.depth() for rule in self.rules), default=1)
        self._by_opcode: dict[str, list[Rule]] = {}
        self._by_opcodes: dict[tuple[str, ...], tuple[Rule, ...]] = {}
        for rule in self.rules:
            if rule.pattern.opcodes is None:
                raise ValueError(f"rule {rule.name}: the root of a pattern names its opcodes")
            for opcode in rule.pattern.opcodes:
                self._by_opcode.setdefault(opcode, []).append(rule)

    def candidates(self, instruction: Instruction) -> Iterable[Rule]:
        """Rules whose root and operands' opcodes fit."""
        rules = self._by_opcode.get(instruction.opcode, ())
        if len(instruction.operands) > _FEW_OPERANDS:
            return filter(lambda rule: rule.may_match(instruction), rules)
        # There are few such combinations in a module, and each is met again and again.
        opcodes = (instruction.opcode, *[operand.opcode for operand in instruction.operands])
        known = self._by_opcodes.get(opcodes)
        if known is None:
            known = tuple(rule for rule in rules if rule.may_match(instruction))
            self._by_opcodes[opcodes] = known
        return known

    def without(
        self, names: Iterable[str], fast_math: bool, floats_are_real: bool = False
    ) -> RuleSet:
        """These rules less the named ones, and less those that need an option which is not set.

        Raises ``UsageError`` for a name that is not the equation of a rule.
        """
        known = {
            "".join(rule.name.split()): rule.name for rule in self.rules
        }  # blanks do not matter
        dropped = set()
        for name in names:
            found = known.get("".join(name.split()))
            if found is None:
                raise UsageError(f"no rule is called '{name}'" + did_you_mean(name, known.values()))
            dropped.add(found)
        return RuleSet(
            rule
            for rule in self.rules
            if rule.name not in dropped
            and (fast_math or not rule.fast_math)
            and (floats_are_real or not rule.floats_are_real)
        )

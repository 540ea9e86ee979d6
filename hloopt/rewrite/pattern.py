"""Patterns over instructions, written like the expressions they match.

::

    A, B = var("A"), var("B")
    A + 0                            add of anything and a splat of 0, in either order
    op("select", A, B, B)            a repeated variable is the same instruction
    op("compare", A, A, direction="EQ")
    -(-A).one_use

Python's operators make the HLO op of the same meaning; a number stands for ``splat(number)``.  Two-operand
ops that the table calls commutative match in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.types import Literal

__all__ = [
    "Bindings",
    "Pattern",
    "built",
    "constant",
    "match",
    "match_inside",
    "op",
    "same_op",
    "splat",
    "splat_literal",
    "used_once",
    "var",
    "variables",
]

Bindings: TypeAlias = Mapping[str, Instruction]
Test: TypeAlias = Callable[[Instruction], bool]


def _binary(opcode: str, *, turned: bool = False) -> Callable[[Pattern, Pattern | float], Pattern]:
    """The operator of a two-operand op; ``turned`` where the pattern is on the right."""

    def make(pattern: Pattern, other: Pattern | float) -> Pattern:
        sides = pattern, _lift(other)
        return op(opcode, *(sides[::-1] if turned else sides))

    return make


@dataclass(frozen=True, eq=False)
class Pattern:
    """What an instruction has to look like; everything left out may be anything.

    As the right side of a rule the same value says what to build: ``opcodes`` has one entry, or none for the
    opcode of the root; ``number`` is the value of a splat, and ``build`` makes from the match what is no
    expression.
    """

    opcodes: frozenset[str] | None = None
    operands: tuple[Pattern, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    tests: tuple[Test, ...] = ()
    commutative: bool = False
    number: float | None = None
    build: Callable[[Any], Instruction] | None = None

    def bind(self, name: str) -> Pattern:
        """The same pattern, giving what it matches a name."""
        return replace(self, name=name)

    def where(self, *tests: Test) -> Pattern:
        """The same pattern with further conditions."""
        return replace(self, tests=self.tests + tests)

    @property
    def one_use(self) -> Pattern:
        """The same pattern, only for an instruction that exactly one operand slot refers to."""
        return self.where(used_once)

    def depth(self) -> int:
        """How many levels of operands the pattern looks at."""
        return 1 + max((operand.depth() for operand in self.operands or ()), default=0)

    __add__ = _binary("add")
    __sub__ = _binary("subtract")
    __rsub__ = _binary("subtract", turned=True)
    __mul__ = _binary("multiply")
    __truediv__ = _binary("divide")
    __rtruediv__ = _binary("divide", turned=True)
    __mod__ = _binary("remainder")
    __and__ = _binary("and")
    __or__ = _binary("or")
    __xor__ = _binary("xor")

    def __neg__(self) -> Pattern:
        return op("negate", self)

    def __invert__(self) -> Pattern:
        return op("not", self)


def _lift(value: Pattern | float) -> Pattern:
    return value if isinstance(value, Pattern) else splat(value)


def var(name: str, *tests: Test) -> Pattern:
    """Any instruction; the same one wherever the name comes again."""
    return Pattern(name=name, tests=tests)


def variables(names: str) -> Iterator[Pattern]:
    """What ``var`` makes of each word of a text."""
    return map(var, names.split())


def op(opcode: str | Collection[str], *operands: Pattern, **attributes: Any) -> Pattern:
    """An instruction of one of the opcodes; without operands they may be anything.

    ``attributes`` must be there with equal values.
    """
    opcodes = (opcode,) if isinstance(opcode, str) else opcode
    commutative = len(operands) == 2 and all(OPS[name].commutative for name in opcodes)
    return Pattern(
        frozenset(opcodes), operands or None, attributes=attributes, commutative=commutative
    )


def same_op(*operands: Pattern) -> Pattern:
    """On the right side of a rule: the root's op of other operands."""
    return Pattern(operands=operands)


def built(function: Callable[[Any], Instruction]) -> Pattern:
    """On the right side of a rule: what a function makes from the match."""
    return Pattern(build=function)


def constant(name: str = "") -> Pattern:
    """An array constant whose value is known (not elided)."""
    return Pattern(frozenset(("constant",)), name=name, tests=(_has_value,))


def splat(value: float | None = None, name: str = "") -> Pattern:
    """A scalar constant or a broadcast of one, equal to ``value`` if given (0 matches -0.0 too)."""

    def test(instruction: Instruction) -> bool:
        literal = splat_literal(instruction)
        if literal is None or literal.array is None:
            return False
        return value is None or literal.number == value

    return Pattern(_SPLATS, name=name, tests=(test,), number=value)


_SPLATS = frozenset(("constant", "broadcast"))


def splat_literal(instruction: Instruction) -> Literal | None:
    """The scalar in every element of a constant, or of a broadcast of a scalar constant."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    literal = instruction.literal
    return literal if literal is not None and literal.is_scalar else None


def _has_value(instruction: Instruction) -> bool:
    literal = instruction.literal
    return literal is not None and literal.array is not None


def used_once(instruction: Instruction) -> bool:
    """Whether exactly one operand slot refers to the instruction, and it is not the root."""
    users = instruction.users
    return len(users) == 1 and not instruction.is_root and next(iter(users.values())) == 1


def match(
    pattern: Pattern, instruction: Instruction, bound: Bindings | None = None
) -> Sequence[Bindings]:
    """All ways in which ``instruction`` fits; each is the map from names to instructions."""
    opcodes = pattern.opcodes
    if opcodes is not None and (
        instruction.opcode not in opcodes
        or (instruction.attributes and not instruction.is_understood)
    ):
        return ()
    return match_inside(pattern, instruction, bound)


def match_inside(
    pattern: Pattern, instruction: Instruction, bound: Bindings | None = None
) -> Sequence[Bindings]:
    """As ``match``, of an instruction that has one of the opcodes and no attribute that is not in the table."""
    if pattern.attributes:
        for key, value in pattern.attributes.items():
            if instruction.attributes.get(key) != value:
                return ()
    for test in pattern.tests:
        if not test(instruction):
            return ()
    name = pattern.name
    if bound is None:
        bound = {name: instruction} if name else {}
    elif name:
        known = bound.get(name)
        if known is None:
            bound = {**bound, name: instruction}
        elif known is not instruction:
            return ()
    patterns, operands = pattern.operands, instruction.operands
    if patterns is None:
        return (bound,)
    if len(operands) != len(patterns):
        return ()
    if len(operands) == 1:
        return match(patterns[0], operands[0], bound)
    if pattern.commutative and operands[0] is not operands[1]:
        turned = (operands[1], operands[0])
        return (*_match_all(patterns, operands, bound), *_match_all(patterns, turned, bound))
    return _match_all(patterns, operands, bound)


def _match_all(
    patterns: tuple[Pattern, ...], operands: tuple[Instruction, ...], bound: Bindings
) -> Sequence[Bindings]:
    """All ways in which operands fit patterns, one each; the last operand's change first."""
    found: Sequence[Bindings] = (bound,)
    for pattern, operand in zip(patterns, operands, strict=True):
        if len(found) == 1:
            opcodes = pattern.opcodes
            if opcodes is not None and operand.opcode not in opcodes:
                return ()
            found = match(pattern, operand, found[0])
        else:
            found = [more for one in found for more in match(pattern, operand, one)]
        if not found:
            break
    return found

"""What is known of the values an instruction computes: bounds, NaN, -0.0, whole numbers.

``Values().of(instruction)`` is a ``ValueRange`` that holds of every element, whatever the parameters are.
It follows constants, iota, arithmetic, conversions, comparisons, selections and whatever moves elements;
nothing is derived from loops, calls and random numbers.  In ``select(compare(x, c), add(x, n), x)`` each arm is
taken to see only those x that choose it.

Each instruction is visited once, on demand, and its answer cached: all queries about a computation
together take time proportional to it.  A rewrite that keeps values keeps answers true; ``refresh`` says
which became different.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

import numpy as np

from hloopt.analysis.float_values import FLOAT_RULES, after_rounding, rounded_to, square
from hloopt.analysis.integer_values import INTEGER_RULES, integer_range
from hloopt.analysis.value_range import (
    IEEE,
    UNKNOWN,
    ValueRange,
    anything,
    hull,
    of_elements,
)
from hloopt.dataclass import dataclass
from hloopt.graphs import post_order
from hloopt.ir import Instruction
from hloopt.ops.traits import (
    EXTREMA,
    IDEMPOTENT,
    INDEXING,
    INVERSE,
    MIRRORED,
    REARRANGING,
    op_table,
)
from hloopt.types import ArrayShape, DType

__all__ = ["ValueRange", "Values", "decided"]

_MOVES: Final = (
    REARRANGING | INDEXING - {"dynamic-update-slice"} | {"all-gather", "collective-permute"}
)
_COUNTS: Final = {"partition-id": "num_partitions", "replica-id": "replica_count"}


@dataclass
class Values:
    """Answers about the instructions of one computation."""

    known: dict[Instruction, ValueRange] = field(default_factory=dict)

    def of(self, instruction: Instruction) -> ValueRange:
        """What holds of all elements of the instruction's result."""
        found = self.known.get(instruction)
        if found is not None:
            return found
        for one in post_order((instruction,), _sources, self.known):
            self.known[one] = self._find(one)
        return self.known[instruction]

    def refresh(self, changed: Iterable[Instruction]) -> list[Instruction]:
        """Recompute answers for instructions with replaced operands, and for users as far as answers change.

        Returns those whose answers changed; what was never queried is not computed.
        """
        pending = deque(self._readers(changed))
        listed = set(pending)
        different: list[Instruction] = []
        while pending:
            instruction = pending.popleft()
            listed.discard(instruction)
            found = self._find(instruction)
            if found == self.known[instruction]:
                continue
            self.known[instruction] = found
            different.append(instruction)
            fresh = [entry for entry in self._readers(instruction.users) if entry not in listed]
            pending.extend(fresh)
            listed.update(fresh)
        return different

    def _readers(self, users: Iterable[Instruction]) -> list[Instruction]:
        """Users with an answer, and theirs: a select looks at what its operands are made of."""
        near = (entry for user in users for entry in (user, *user.users))
        return [entry for entry in dict.fromkeys(near) if entry in self.known]

    def _find(self, instruction: Instruction) -> ValueRange:
        shape = instruction.shape
        if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
            return UNKNOWN
        if shape.is_dynamic or not instruction.is_understood:
            return anything(shape.dtype)
        rule = _RULES.get(instruction.opcode, _arithmetic)
        return rule(self, instruction, shape.dtype)


def decided(direction: str, a: ValueRange, b: ValueRange) -> bool | None:
    """Whether ``a DIRECTION b`` holds of any two such numbers, if that is the same for all."""
    if direction in ("GT", "GE"):
        return decided(MIRRORED[direction], b, a)
    if a.nan or b.nan:
        never = a.high < b.low or b.high < a.low
        if direction in ("EQ", "NE"):
            return (direction == "NE") if never else None
        above = b.high < a.low if direction == "LE" else b.high <= a.low
        return False if above else None
    if direction in ("EQ", "NE"):
        if a.high < b.low or b.high < a.low:
            return direction == "NE"
        same = a.is_single and b.is_single
        return (direction == "EQ") if same else None
    if direction == "LT":
        return True if a.high < b.low else False if a.low >= b.high else None
    return True if a.high <= b.low else False if a.low > b.high else None


def _sources(instruction: Instruction) -> tuple[Instruction, ...]:
    """The instructions whose ranges a range is made of."""
    if instruction.opcode == "get-tuple-element":
        source = instruction.operands[0]
        if source.opcode in ("tuple", "sort"):
            return (source.operands[instruction.tuple_index],)
        return ()
    if instruction.opcode in _RULES or instruction.opcode in _ARITHMETIC:
        return tuple(entry for entry in instruction.operands if isinstance(entry.shape, ArrayShape))
    return ()


def _arithmetic(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    opcode, operands = instruction.opcode, instruction.operands
    if opcode not in _ARITHMETIC or any(entry.array.dtype is not dtype for entry in operands):
        return _absolute_value(opcode, dtype)
    if opcode == "multiply" and operands[0] is operands[1] and dtype.name in IEEE:
        return square(dtype, values.of(operands[0]))
    return _combined(opcode, dtype, tuple(map(values.of, operands)))


def _absolute_value(opcode: str, dtype: DType) -> ValueRange:
    """The size of a complex number has no sign."""
    if opcode == "abs" and dtype.name in IEEE:
        return ValueRange(0.0, float("inf"), nan=True)
    return anything(dtype)


def _combined(opcode: str, dtype: DType, ranges: tuple[ValueRange, ...]) -> ValueRange:
    if (dtype.is_pred or dtype.is_integer) and opcode in INTEGER_RULES:
        return integer_range(opcode, dtype, ranges)
    if dtype.name in IEEE and opcode in FLOAT_RULES:
        return FLOAT_RULES[opcode](dtype, *ranges)
    return anything(dtype)


def _constant(_: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    array = instruction.constant_array
    return anything(dtype) if array is None else of_elements(array, dtype)


def _iota(_: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    last = max(instruction.array.dims[instruction.iota_dimension] - 1, 0)
    if dtype.name in IEEE:
        return ValueRange(0.0, rounded_to(last, dtype), whole=True)
    if dtype.is_integer and last <= dtype.limits[1]:
        return ValueRange(0, last, whole=True)
    return anything(dtype)


def _device(_: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    """Below the count that the module's header gives; nothing is known without one."""
    module = instruction.computation.module if instruction.computation is not None else None
    count = module.attributes.get(_COUNTS[instruction.opcode]) if module is not None else None
    if not isinstance(count, int) or not dtype.is_integer:
        return anything(dtype)
    return ValueRange(0, count - 1, whole=True)


def _size(_: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    (dimension,) = instruction.dimensions
    return ValueRange(0, instruction.operands[0].array.dims[dimension], whole=True)


def _move(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    """Elements of the first operand; where it is empty, there may be zeros instead."""
    source = instruction.operands[0]
    if not isinstance(source.shape, ArrayShape) or source.array.dtype is not dtype:
        return anything(dtype)
    if not source.array.elements or instruction.opcode == "collective-permute":
        return hull((values.of(source), of_elements(np.zeros(1, dtype.numpy), dtype)))
    return values.of(source)


def _any_of_them(values: Values, instruction: Instruction, _: DType) -> ValueRange:
    """Elements of all operands, or of an update's first two: concatenate, pad, dynamic-update-slice."""
    count = 2 if instruction.opcode == "dynamic-update-slice" else None
    return hull(map(values.of, instruction.operands[:count]))


def _element(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    sources = _sources(instruction)
    return values.of(sources[0]) if sources else anything(dtype)


def _reduce(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    """Of elements and the initial value: extrema stay within both, sums of what has no sign have none."""
    root = instruction.to_apply.root
    if len(instruction.operands) != 2 or {entry.opcode for entry in root.operands} != {"parameter"}:
        return anything(dtype)
    kinds = {entry.array.dtype for entry in (*instruction.operands, *root.operands, root)}
    if kinds != {dtype} or root.operands[0] is root.operands[1]:
        return anything(dtype)
    both = hull(map(values.of, instruction.operands))
    if root.opcode in EXTREMA or (dtype.is_pred and root.opcode in IDEMPOTENT):
        return both
    if root.opcode == "add" and dtype.name in IEEE and both.low >= 0:
        return ValueRange(0.0, float("inf"), both.nan, both.negative_zero)
    return anything(dtype)


def _convert(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    source_type, source = instruction.operands[0].array.dtype, values.of(instruction.operands[0])
    from_integer = source_type.is_pred or source_type.is_integer
    if dtype.is_pred:
        sure = source.low > 0 or source.high < 0
        return ValueRange(int(sure), 0 if from_integer and source == _ZERO else 1, whole=True)
    if dtype.name in IEEE and (from_integer or source_type.is_float):
        return after_rounding(source, dtype)
    if not dtype.is_integer:
        return anything(dtype)
    low, high = dtype.limits
    if from_integer:
        fits = low <= source.low and source.high <= high
        return source if fits else anything(dtype)
    if not source_type.is_float:
        return anything(dtype)
    bounds = [low if x <= low else high if x >= high else int(x) for x in (source.low, source.high)]
    if source.nan:
        bounds.append(0)
    return ValueRange(min(bounds), max(bounds), whole=True)


_ZERO: Final = ValueRange(0, 0, whole=True)


def _bits(values: Values, instruction: Instruction, dtype: DType) -> ValueRange:
    """Floats without a sign are ordered as their bits are, up to infinity."""
    source_type, source = instruction.operands[0].array.dtype, values.of(instruction.operands[0])
    if source_type.bits != dtype.bits or dtype.is_pred or source_type.is_pred:
        return anything(dtype)
    if source_type.is_integer and dtype.is_integer:
        low, high = dtype.limits
        return source if low <= source.low and source.high <= high else anything(dtype)
    if dtype.name in IEEE and source_type.is_integer:
        word, infinity = np.dtype(f"u{dtype.bits // 8}"), np.array(np.inf, dtype.numpy)
        if source.low < 0 or source.high > int(infinity.view(word)):
            return anything(dtype)
        ends = np.array((int(source.low), int(source.high)), word).view(dtype.numpy)
        return ValueRange(float(ends[0]), float(ends[1]))
    return anything(dtype)


def _compare(values: Values, instruction: Instruction, _: DType) -> ValueRange:
    left, right = instruction.operands
    kind = left.array.dtype
    if instruction.attributes.get("type") == "TOTALORDER" and kind.is_float:
        return ValueRange(0, 1, whole=True)
    answer = decided(instruction.direction, values.of(left), values.of(right))
    return ValueRange(int(answer is True), int(answer is not False), whole=True)


def _is_finite(values: Values, instruction: Instruction, _: DType) -> ValueRange:
    return ValueRange(int(values.of(instruction.operands[0]).is_finite), 1, whole=True)


def _select(values: Values, instruction: Instruction, _: DType) -> ValueRange:
    predicate, on_true, on_false = instruction.operands
    choice = values.of(predicate)
    if choice.is_single:
        return values.of(on_true if choice.low else on_false)
    return hull(
        (
            _where(values, on_true, predicate, holds=True),
            _where(values, on_false, predicate, holds=False),
        )
    )


def _where(values: Values, arm: Instruction, predicate: Instruction, *, holds: bool) -> ValueRange:
    """The range of an integer arm where the comparison holds, or where it does not."""
    whole = values.of(arm)
    if predicate.opcode != "compare" or not arm.array.dtype.is_integer:
        return whole
    left, right = predicate.operands
    if left.array.dims != arm.array.dims or left.array.dtype is not arm.array.dtype:
        return whole
    direction = predicate.direction
    if not holds:
        direction = INVERSE[direction]
    for x, other, way in ((left, right, direction), (right, left, MIRRORED[direction])):
        seen = _cut(values.of(x), way, values.of(other))
        if seen is None:
            continue
        if arm is x:
            return seen
        if arm.opcode in ("add", "subtract") and x in arm.operands:
            ranges = (seen if entry is x else values.of(entry) for entry in arm.operands)
            return _combined(arm.opcode, arm.array.dtype, tuple(ranges))
    return whole


def _cut(x: ValueRange, direction: str, other: ValueRange) -> ValueRange | None:
    """The part of a range of integers that compares so with some number of another; None if it is empty."""
    low, high = x.low, x.high
    if direction in ("LT", "LE", "EQ"):
        high = min(high, other.high - (direction == "LT"))
    if direction in ("GT", "GE", "EQ"):
        low = max(low, other.low + (direction == "GT"))
    return ValueRange(low, high, whole=True) if low <= high else None


_ARITHMETIC: Final = frozenset(INTEGER_RULES) | frozenset(FLOAT_RULES)
_RULES: Final[Mapping[str, Callable[[Values, Instruction, DType], ValueRange]]] = op_table(
    {
        **dict.fromkeys(_MOVES, _move),
        **dict.fromkeys(_COUNTS, _device),
        "bitcast-convert": _bits,
        "compare": _compare,
        "concatenate": _any_of_them,
        "constant": _constant,
        "convert": _convert,
        "dynamic-update-slice": _any_of_them,
        "get-dimension-size": _size,
        "get-tuple-element": _element,
        "iota": _iota,
        "is-finite": _is_finite,
        "pad": _any_of_them,
        "reduce": _reduce,
        "select": _select,
        "sort": lambda values, instruction, _: values.of(instruction.operands[0]),
    },
    otherwise="arithmetic of ranges, or anything of its type",
)

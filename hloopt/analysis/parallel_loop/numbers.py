"""Instructions of a loop as terms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.parallel_loop.edges import leaf_count, nodes_of, regrouped, shape_of
from hloopt.analysis.parallel_loop.model import LoopNode
from hloopt.analysis.parallel_loop.terms import ScalarArray, TermId, Terms
from hloopt.ir import Computation, Instruction
from hloopt.ir.normal import normal_attributes
from hloopt.ops import ScalarArgs
from hloopt.ops.traits import BODIES, FORWARDING, IDEMPOTENT, INDEXING, VIEWS, op_table
from hloopt.types import rounded

__all__ = ["numbers"]


def numbers(terms: Terms, computation: Computation) -> dict[LoopNode, TermId]:
    """The term of every array of a condition or body; element n of its state is ``state`` n."""
    found: dict[LoopNode, TermId] = {}
    for instruction in computation:
        if instruction.opcode == "parameter":
            for node in nodes_of(instruction):
                found[node] = terms.make("state", node[1])
        elif instruction.opcode in ("tuple", "get-tuple-element"):
            parts = [found[node] for node in regrouped(instruction)]
            found.update(zip(nodes_of(instruction), parts, strict=True))
        elif instruction.opcode in FORWARDING:
            for node in nodes_of(instruction):
                found[node] = found[instruction.operands[0], node[1]]
        elif instruction.opcode in BODIES:
            for node in nodes_of(instruction):
                found[node] = terms.make("opaque", node)
        else:
            parts = [found[operand, 0] for operand in instruction.operands]
            for node in nodes_of(instruction):
                found[node] = _term(terms, instruction, node[1], tuple(parts))
    return found


def _term(terms: Terms, one: Instruction, leaf: int, parts: tuple[TermId, ...]) -> TermId:
    if leaf_count(one) == 1:
        rule = _RULES.get(one.opcode)
        found = rule(terms, one, parts) if rule is not None else None
        if found is not None:
            return found
        value = _folded(terms, one, parts)
        if value is not None:
            return terms.constant(value, one.array.dtype)
    if one.op.commutative:
        parts = tuple(sorted(parts))
    return terms.make(one.opcode, _detail(one, leaf), parts)


def _detail(one: Instruction, leaf: int) -> Hashable:
    """What an op depends on besides its operands; not its dimensions, where it is elementwise."""
    known = {attribute.name for attribute in one.op.attributes}
    attributes = tuple(
        (name, _name(value)) for name, value in normal_attributes(one).items() if name in known
    )
    kinds = tuple(operand.array.dtype.name for operand in one.operands)
    if one.op.is_elementwise:
        return one.array.dtype.name, kinds, attributes
    shapes = tuple(operand.array.dims for operand in one.operands)
    result = tuple((shape.dtype.name, shape.dims) for shape in map(shape_of, nodes_of(one)))
    return leaf, result, kinds, shapes, attributes


def _name(value: object) -> Hashable:
    """An attribute's value; computations of one op by that op, as each op has a separate copy."""
    if isinstance(value, Computation):
        return plain_opcode(value) or value
    return tuple(map(_name, value)) if isinstance(value, tuple) else _hashable(value)


def _hashable(value: object) -> Hashable:
    assert isinstance(value, Hashable)
    return value


def _folded(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> ScalarArray | None:
    """The number that an elementwise op makes of numbers, where every device makes the same."""
    if one.op.numpy is None or one.op.transcendentals or not one.is_understood:
        return None
    if not all(part in terms.values for part in parts) or not parts:
        return None
    kinds = [operand.array.dtype for operand in one.operands]
    operands = [
        terms.values[part].astype(kind.compute) for part, kind in zip(parts, kinds, strict=True)
    ]
    result = one.array.dtype
    with np.errstate(all="ignore"):
        value = one.op.numpy(ScalarArgs(kinds[-1], result, one.attributes), *operands)
    return rounded(np.asarray(value), result.numpy)


_Rule: TypeAlias = Callable[[Terms, Instruction, tuple[TermId, ...]], "TermId | None"]


def _constant(terms: Terms, one: Instruction, _: tuple[TermId, ...]) -> TermId:
    literal = one.literal
    assert literal is not None
    if literal.splat is not None:
        return terms.constant(literal.splat, one.array.dtype)
    return terms.make("literal", literal)


def _view(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    """One and the same value at each position, or the same shape."""
    source, result = one.operands[0].array, one.array
    if source.dtype is not result.dtype or not result.elements:
        return None
    same = one.opcode in ("bitcast", "reshape") and source.dims == result.dims
    same = same and (one.opcode == "reshape" or source.layout == result.layout)
    alike = parts[0] in terms.values or source.elements == 1
    return parts[0] if same or alike else None


def _concatenate(terms: Terms, _: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    return parts[0] if parts[0] in terms.values and len(set(parts)) == 1 else None


def _select(terms: Terms, _: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    chosen, yes, no = parts
    if chosen in terms.values:
        return yes if terms.values[chosen] else no
    if yes == no:
        return yes
    form = terms.forms[chosen]
    if form.op == "not":
        parts = form.parts[0], no, yes
    return terms.make("select", None, parts)


def _compare(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    if one.attributes.get("type") == "TOTALORDER" or all(part in terms.values for part in parts):
        return None
    kind = one.operands[0].array.dtype
    left, right = parts
    return terms.compare(one.direction, left, right, kind)


def _not(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    return terms.opposite(parts[0]) if one.array.dtype.is_pred else None


def _junction(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    """``and`` and ``or`` of pred."""
    if not one.array.dtype.is_pred:
        return None
    for this, other in (parts, parts[::-1]):
        if this in terms.values:
            decides = bool(terms.values[this]) == (one.opcode == "or")
            return this if decides else other
    if parts[0] == parts[1]:
        return parts[0]
    return terms.make(one.opcode, "pred", (min(parts), max(parts)))


def _add(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    for this, other in (parts, parts[::-1]):
        value = terms.values.get(this)
        # x + 0.0 makes 0.0 of -0.0.
        if value is not None and value == 0 and (_whole(one) or _is_minus_zero(one, value)):
            return other
    return None


def _subtract(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    value = terms.values.get(parts[1])
    plain = value is not None and value == 0 and (_whole(one) or _is_zero(one, value))
    return parts[0] if plain else None


def _multiply(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    for this, other in (parts, parts[::-1]):
        value = terms.values.get(this)
        if value is not None and not one.array.dtype.is_complex:
            if value == 1:
                return other
            if value == 0 and _whole(one):
                return this
    return None


def _divide(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    value = terms.values.get(parts[1])
    plain = value is not None and value == 1 and not one.array.dtype.is_complex
    return parts[0] if plain else None


def _extreme(_: Terms, __: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    return parts[0] if parts[0] == parts[1] else None


def _convert(_: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    return parts[0] if one.operands[0].array.dtype is one.array.dtype else None


def _reduce(terms: Terms, one: Instruction, parts: tuple[TermId, ...]) -> TermId | None:
    """Of one and the same value, by a reducer that makes of two equal ones the same."""
    opcode = plain_opcode(one.to_apply)
    alike = opcode in IDEMPOTENT and parts[0] in terms.values
    return parts[0] if alike and parts[0] == parts[1] and one.operands[0].array.elements else None


def _whole(one: Instruction) -> bool:
    return one.array.dtype.is_integer


def _is_minus_zero(one: Instruction, value: ScalarArray) -> bool:
    return one.array.dtype.is_float and bool(np.signbit(value))


def _is_zero(one: Instruction, value: ScalarArray) -> bool:
    return one.array.dtype.is_float and not np.signbit(value)


_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        **dict.fromkeys(VIEWS | INDEXING - {"dynamic-update-slice"}, _view),
        "add": _add,
        "and": _junction,
        "compare": _compare,
        "concatenate": _concatenate,
        "constant": _constant,
        "convert": _convert,
        "divide": _divide,
        "maximum": _extreme,
        "minimum": _extreme,
        "multiply": _multiply,
        "not": _not,
        "or": _junction,
        "reduce": _reduce,
        "select": _select,
        "subtract": _subtract,
    },
    otherwise="a fresh term",
)

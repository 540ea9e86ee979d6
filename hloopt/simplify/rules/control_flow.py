"""Rules for while, conditional, tuples and barriers; call-inliner takes the calls they leave apart."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.trip_count import trip_count
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import has_side_effect
from hloopt.ops.traits import PLUMBING
from hloopt.rewrite import Match, Rule, op, var
from hloopt.simplify.predicates import scalar_value
from hloopt.types import ArrayShape, TupleShape, parts_of

__all__ = ["RULES", "TUPLE_RULES"]

P = var("P")
_MOST_BRANCHES = 4
_MOST_OPS = 8
_NUMBERS = ("pred", "signed", "unsigned", "float", "complex")


def _is_pure(computation: Computation) -> bool:
    return not any(has_side_effect(instruction) for instruction in computation)


def _never_runs(match: Match) -> Instruction | None:
    root = match.root
    if trip_count(root) != 0 or not _is_pure(root.condition):
        return None
    return root.operands[0]


def _runs_once(match: Match) -> Instruction | None:
    root = match.root
    if trip_count(root) != 1 or not _is_pure(root.condition):
        return None
    return _call(match, root.body, root.operands[0])


def _call(match: Match, computation: Computation, argument: Instruction) -> Instruction:
    return match.result("call", argument, to_apply=computation)


def _known_branch(match: Match) -> Instruction | None:
    """The branch of a constant; an index out of range takes the last."""
    root = match.root
    value = scalar_value(root.operands[0])
    if value is None:
        return None
    if "branch_computations" in root.attributes:
        branches = root.attributes["branch_computations"]
    else:
        branches = (root.attributes["true_computation"], root.attributes["false_computation"])
    if root.operands[0].array.dtype.is_pred:
        index = 0 if bool(value) else 1
    else:
        index = int(value) if 0 <= int(value) < len(branches) else len(branches) - 1
    return _call(match, branches[index], root.operands[1 + index])


def _branches(root: Instruction) -> tuple[Computation, ...]:
    """The branches in the order of their index; of two with a predicate the true one is first."""
    if "branch_computations" in root.attributes:
        found: tuple[Computation, ...] = root.attributes["branch_computations"]
        return found
    return root.attributes["true_computation"], root.attributes["false_computation"]


def _by_predicate(match: Match) -> Instruction | None:
    """Index 1 is true: the branches change places."""
    if not match.P.array.dtype.is_pred or "branch_computations" not in match.root.attributes:
        return None
    return _exchanged(match)


def _by_the_other(match: Match) -> Instruction | None:
    if not match.P.array.dtype.is_pred or "true_computation" not in match.root.attributes:
        return None
    return _exchanged(match)


def _exchanged(match: Match) -> Instruction | None:
    """The conditional by P, with its two branches in the other order."""
    root, branches = match.root, _branches(match.root)
    if len(branches) != 2:
        return None
    first, second = branches
    attributes = {
        name: value for name, value in root.attributes.items() if name != "branch_computations"
    }
    attributes |= {"true_computation": second, "false_computation": first}
    return match.result("conditional", match.P, *root.operands[:0:-1], **attributes)


def _same_branches(match: Match) -> Instruction | None:
    root = match.root
    first, *others = _branches(root)
    if any(other is not first for other in others):
        return None
    if any(operand is not root.operands[1] for operand in root.operands[2:]):
        return None
    return _call(match, first, root.operands[1])


def _is_free(branch: Computation) -> bool:
    """Whether all it computes are a few scalars, so that computing them costs less than choosing."""
    if not isinstance(branch.root.shape, ArrayShape | TupleShape):
        return False
    ops = 0
    for instruction in branch:
        if instruction.control_predecessors or not instruction.is_understood:
            return False
        if "sharding" in instruction.attributes:
            return False
        if instruction.opcode in PLUMBING:
            continue
        shape = instruction.shape
        ops += 1
        if not (instruction.op.is_elementwise and isinstance(shape, ArrayShape)) or shape.dims:
            return False
    results = branch.root.shape
    parts = parts_of(results)
    return ops <= _MOST_OPS and all(
        isinstance(part, ArrayShape) and not part.dims and part.dtype.kind in _NUMBERS
        for part in parts
    )


def _selected(match: Match) -> Instruction | None:
    """Compute all branches and select; an index out of range takes the last."""
    root = match.root
    branches = _branches(root)
    if len(branches) > _MOST_BRANCHES or not all(map(_is_free, branches)):
        return None
    if isinstance(root.shape, TupleShape) and not root.shape.elements:
        return None
    results = [
        _inlined(match, branch, operand)
        for branch, operand in zip(branches, root.operands[1:], strict=True)
    ]
    if isinstance(root.shape, TupleShape):
        columns = [
            _chosen(match, [_part(match, result, at) for result in results])
            for at in range(len(root.shape.elements))
        ]
        return match.result("tuple", *columns)
    return _chosen(match, results)


def _inlined(match: Match, branch: Computation, operand: Instruction) -> Instruction:
    values = {branch.parameters[0]: operand}
    for instruction in branch:
        if instruction.opcode != "parameter":
            inputs = tuple(values[entry] for entry in instruction.operands)
            attributes = dict(instruction.attributes)
            values[instruction] = match.make(
                instruction.opcode, *inputs, shape=instruction.shape, **attributes
            )
    return values[branch.root]


def _part(match: Match, result: Instruction, index: int) -> Instruction:
    return match.make("get-tuple-element", result, index=index)


def _chosen(match: Match, values: list[Instruction]) -> Instruction:
    index = match.inner
    chosen = values[-1]
    for number in reversed(range(len(values) - 1)):
        condition = index
        if not index.array.dtype.is_pred:
            limit = match.splat(index.array, number)
            condition = match.make("compare", index, limit, direction="EQ")
        chosen = match.make("select", condition, values[number], chosen, shape=chosen.shape)
    return chosen


_ENDS: Final = {"recv": ("recv-done", "tuple"), "send": ("send-done", "tuple")}
"""The one op that may use a transfer.  Through a tuple and a loop around it others may, too."""


def _element(match: Match) -> Instruction | None:
    index = match.root.tuple_index
    whole = match.inner
    element = whole.operands[index]
    if element.opcode not in _ENDS:
        return element
    kept = _keeps(whole)
    return element if kept is None else match.refuse(f"{kept.name} keeps the {element.opcode}")


def _keeps(whole: Instruction) -> Instruction | None:
    """What needs a tuple with transfers as it is; else each of them is read by the one op that ends it."""
    if whole.is_root:
        return whole
    read: set[Instruction] = set()
    for user in whole.users:
        if user.opcode != "get-tuple-element":
            return user
        element = whole.operands[user.tuple_index]
        ends = _ENDS.get(element.opcode)
        if ends is None:
            continue
        by = list(user.users)
        if user.is_root or element in read or len(by) != 1 or by[0].opcode not in ends:
            return user
        read.add(element)
    return None


def _whole(match: Match) -> Instruction | None:
    """The tuple that all the elements come from, in order and complete."""
    operands = match.root.operands
    if not operands or operands[0].opcode != "get-tuple-element":
        return None
    source = operands[0].operands[0]
    if not isinstance(source.shape, TupleShape) or len(source.shape.elements) != len(operands):
        return None
    for index, operand in enumerate(operands):
        if operand.opcode != "get-tuple-element" or operand.operands[0] is not source:
            return None
        if operand.tuple_index != index:
            return None
    return source


def _taken_apart(match: Match) -> Instruction | None:
    literal = match.root.literal
    if literal is None or not match.root.is_tuple or literal.elided:
        return None
    elements = tuple(map(match.constant, literal.elements))
    return match.result("tuple", *elements)


def _barred(match: Match) -> Instruction | None:
    """A barrier of the elements that are read; the others need not wait for it."""
    root = match.root
    inner = root.operands[0]
    if root.is_root or inner.opcode != "tuple" or not root.users:
        return None
    if any(user.opcode != "get-tuple-element" for user in root.users):
        return None
    used = sorted({user.tuple_index for user in root.users})
    if len(used) == len(inner.operands):
        return None
    if "sharding" in root.attributes:
        return match.refuse("its sharding is one of the whole tuple")
    read = tuple(inner.operands[index] for index in used)
    kept = read[0]
    if len(used) > 1:
        kept = match.make("tuple", *read)
    barrier = match.make("opt-barrier", kept, shape=kept.shape, **root.attributes)
    elements = list(inner.operands)
    for place, index in enumerate(used):
        elements[index] = barrier
        if len(used) > 1:
            elements[index] = match.make("get-tuple-element", barrier, index=place)
    return match.result("tuple", *elements)


TUPLE_RULES = (
    Rule("constant((A, B)) => tuple(constant(A), constant(B))", op("constant"), _taken_apart),
    Rule("get-tuple-element(tuple(A, B)) => A", op("get-tuple-element", op("tuple")), _element),
    Rule("tuple(get-tuple-element(A), ...) => A", op("tuple"), _whole),
    Rule(
        "opt-barrier(tuple(A, B)) where B is not read => tuple(opt-barrier(A), B)",
        op("opt-barrier"),
        _barred,
    ),
)


RULES = (
    Rule("while(A) that never runs => A", op("while"), _never_runs),
    Rule("while(A) that runs once => call(A)", op("while"), _runs_once),
    Rule("conditional(C, A, B) => call(A)", op("conditional"), _known_branch),
    Rule("conditional(C, A, A) of one computation => call(A)", op("conditional"), _same_branches),
    Rule(
        "conditional(convert(P), A, B) => conditional(P, B, A)",
        op("conditional", op("convert", P), var("A"), var("B")),
        _by_predicate,
    ),
    Rule(
        "conditional(not(P), A, B) => conditional(P, B, A)",
        op("conditional", op("not", P), var("A"), var("B")),
        _by_the_other,
    ),
    Rule("conditional(I, A, B) of scalars => select(I, A, B)", op("conditional"), _selected),
)
